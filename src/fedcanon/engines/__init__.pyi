# What fedcanon.engines offers, by where it lives.
from .aggregation import Aggregation as Aggregation
from .aggregation import Mean as Mean
from .aggregation import Mixing as Mixing
from .aggregation import Streaming as Streaming
from .base import Collected as Collected
from .base import Engine as Engine
from .base import Evaluation as Evaluation
from .base import MakeEngine as MakeEngine
from .base import MeasuresWhileTraining as MeasuresWhileTraining
from .base import Rules as Rules
from .base import Verdict as Verdict
from .local import Local as Local
from .local import LocalEngine as LocalEngine
from .ray_actors import RayCluster as RayCluster
from .robust import Robust as Robust
from .traffic import Traffic as Traffic
