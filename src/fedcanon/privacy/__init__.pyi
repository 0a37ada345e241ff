# What fedcanon.privacy offers, by where it lives.
from .accounting import epsilon as epsilon
from .accounting import noise_multiplier as noise_multiplier
from .noise import bernoulli as bernoulli
from .noise import discrete_gaussian as discrete_gaussian
from .noise import gaussian as gaussian
from .settings import ClientPrivacy as ClientPrivacy
from .settings import Privacy as Privacy
from .settings import RecordPrivacy as RecordPrivacy
