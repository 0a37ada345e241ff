# What fedcanon.runs offers, by where it lives.
from .federation import Federation as Federation
from .fitting import fit as fit
from .measures import Record as Record
from .observers import Observer as Observer
from .result import Result as Result
