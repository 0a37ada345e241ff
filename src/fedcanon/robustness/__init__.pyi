# What fedcanon.robustness offers, by where it lives.
from .attacks import ATTACKS as ATTACKS
from .attacks import Adversary as Adversary
from .attacks import flipped as flipped
from .rules import RULES as RULES
from .rules import Combination as Combination
from .rules import Rule as Rule
