"""The configuration of a run: TOML in, validated settings out.

Without any setting it is the first run of the tutorial: digits, ten heterogeneous clients, an MLP,
FedCanon+ with MCP.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from fedcanon.errors import FedcanonError
from fedcanon.files import explained
from fedcanon.objectives.augment import Name as Augmentation

Table = dict[str, Any]

DEPLOYED = "deployed"
"""The engine of a run over real clients."""
CLIENTS_OWN = "the clients' own data"
"""What the data of such a run are called."""

DEEPEST = 30
"""Tables and lists inside one another that a configuration may have."""

DEFAULT_ALGORITHM: Table = {"name": "fedcanon+", "alpha": 1.0, "beta": 0.1, "local_steps": 10}
DEFAULT_PENALTY: Table = {"name": "mcp", "kappa": 1.5e-3}
DEFAULT_LOSS: Table = {"name": "cross_entropy"}
_DEFAULTS = {"algorithm": DEFAULT_ALGORITHM, "penalty": DEFAULT_PENALTY, "loss": DEFAULT_LOSS}


class Section(BaseModel):
    """A table of the configuration; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSection(Section):
    """The dataset, how it is spread over the clients, and random changes to its images.

    Keys beside these are options of the dataset, such as the path of a table.
    """

    model_config = ConfigDict(extra="allow")

    name: str = "digits"
    partition: str = "dirichlet:0.2"
    augment: list[Augmentation] = []

    @property
    def source(self) -> Table:
        """The dataset's name and its own options."""
        return {"name": self.name, **(self.model_extra or {})}


class ClientsSection(Section):
    """How many clients there are, how many take part in a round, and what each one weighs."""

    count: PositiveInt = 10
    participants: PositiveInt | None = None
    weights: Literal["uniform", "samples"] = "uniform"


class ModelSection(Section):
    """The model that is trained; keys beside its name are the model's own options."""

    model_config = ConfigDict(extra="allow")

    name: str = "mlp"


class EvaluateSection(Section):
    """When measures are taken; ``gradient`` asks for ‖G^a‖, with a = ``step``."""

    every: PositiveInt = 1
    gradient: bool | None = None
    step: PositiveFloat | None = None


class StopSection(Section):
    """Tolerances on ‖G‖ and on the relative change of φ that end a run early; 0 is off."""

    gradient: NonNegativeFloat = 0.0
    objective: NonNegativeFloat = 0.0


class CheckpointSection(Section):
    """When a run's state is kept: after so many ``rounds`` or so many ``seconds``, and at its end.

    The last ``keep`` checkpoints stay.
    """

    rounds: PositiveInt | None = None
    seconds: PositiveFloat = 60.0
    keep: PositiveInt = 2


class EngineSection(Section):
    """Where clients run: in this process ("serial"), in ``workers`` processes, or by a size rule.

    "ray" runs them on a cluster, "flower" on Flower's simulation runtime; "deployed" stands in runs
    over real clients.

    ``vectorised`` has the clients of small models take their local steps together; unset, a rule
    on sizes decides. Client states beyond ``state_memory`` GiB are kept on disk. ``bfloat16`` has
    the products of local steps computed in that precision, where the hardware has it.
    """

    name: Literal["auto", "serial", "processes", "ray", "flower", "deployed"] = "auto"
    workers: PositiveInt | None = None
    vectorised: bool | None = None
    state_memory: PositiveFloat = 1.0
    bfloat16: bool = False


class DeploymentSection(Section):
    """How a server deals with clients that may fail, on Flower.

    ``state`` says who keeps the clients' states: the "server", or each "client" on its own disk.
    A round ends after ``deadline`` seconds; with fewer than ``minimum`` updates it is repeated. A
    client that causes more than ``restarts`` is excluded. ``shape`` of one input and the number of
    ``classes`` are for a server that has no data; a simulation takes them from its.
    """

    state: Literal["server", "client"] = "server"
    minimum: PositiveInt = 1
    deadline: PositiveFloat = 600.0
    restarts: PositiveInt = 3
    shape: list[PositiveInt] = []
    classes: PositiveInt | None = None


class Config(Section):
    """Everything that determines a run."""

    seed: NonNegativeInt = 0
    rounds: PositiveInt = 120
    batch_size: PositiveInt | Literal["full"] = 32
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    data: DataSection = DataSection()
    clients: ClientsSection = ClientsSection()
    model: ModelSection = ModelSection()
    loss: Table = Field(default_factory=lambda: dict(DEFAULT_LOSS))
    penalty: Table = Field(default_factory=lambda: dict(DEFAULT_PENALTY))
    algorithm: Table = Field(default_factory=lambda: dict(DEFAULT_ALGORITHM))
    compression: Table = Field(default_factory=lambda: {"name": "none"})
    evaluate: EvaluateSection = EvaluateSection()
    stop: StopSection = StopSection()
    checkpoint: CheckpointSection = CheckpointSection()
    engine: EngineSection = EngineSection()
    deployment: DeploymentSection = DeploymentSection()


def load_config(path: Path | None = None, settings: Sequence[str] = ()) -> Config:
    """Read a TOML file (the default run without one) and apply ``key=value`` settings to it."""
    table = {} if path is None else _read(path)
    for setting in settings:
        _apply(table, setting)
    return _completed(table)


def make_config(
    source: Config | str | Path | Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> Config:
    """A configuration from Python: a source, changed by settings.

    The settings of a table are added to it, unless they name another entry: ``algorithm={"beta":
    0.05}`` changes one key, ``penalty={"name": "l1"}`` replaces the penalty. For a table with a
    name, ``data="mnist"`` will do.
    """
    table: Table = {}
    if isinstance(source, Config):
        table = source.model_dump()
    elif isinstance(source, str | Path):
        table = _read(Path(source))
    elif source is not None:
        _change(table, source)
    _change(table, settings)
    return _completed(table)


def _change(table: Table, settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        given = {"name": value} if isinstance(value, str) and key in _NAMED else value
        before = table.get(key)
        if isinstance(given, Mapping):
            kept = before if isinstance(before, dict) and "name" not in given else {}
            given = {**kept, **given}
        table[key] = given


_NAMED = ("data", "model", "loss", "penalty", "algorithm", "compression")


def _read(path: Path) -> Table:
    try:
        with explained(f"cannot read {path}"):
            return _parsed(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FedcanonError(f"{path} is not valid TOML: {error}.") from None


def _parsed(text: str) -> Table:
    """TOML, of which every library can hold the whole numbers.

    Raises:
        ValueError: the text is no TOML, or a number has more than 64 bits.
        RecursionError: tables or lists are nested too deeply.
    """
    table = tomllib.loads(text)
    _check_numbers(table)
    return table


def _check_numbers(value: Any, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise RecursionError("tables or lists are nested too deeply")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_numbers(inner, depth + 1)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number has more than 64 bits")


def _completed(table: Table) -> Config:
    for name, default in _DEFAULTS.items():
        complete = {"name", "layers"} if name == "penalty" else {"name"}
        given = table.get(name, {})
        # A method or penalty that is named starts from its own defaults, not the default run's.
        if isinstance(given, dict) and not given.keys() & complete:
            table[name] = {**default, **given}
    return _validated(table)


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration with other values for some dotted keys, such as ``algorithm.beta``."""
    table = config.model_dump()
    for key, value in settings.items():
        _put(table, key, value)
    return _validated(table)


def dotted(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables, by their dotted keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def engine_settings(name: str | None, workers: int | None) -> Table:
    """The settings of an engine and its number of workers, where they are given."""
    given = {"engine.name": name, "engine.workers": workers}
    return {key: value for key, value in given.items() if value is not None}


def _validated(table: Table) -> Config:
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise FedcanonError(_explain(error)) from None


def _apply(table: Table, setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise FedcanonError(f"--set takes key=value, such as algorithm.beta=0.1, not '{setting}'.")
    _put(table, key, parse_value(text))


def parse_value(text: str) -> Any:
    """A value as TOML writes it, or else a plain string."""
    try:
        return _parsed(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _put(table: Table, key: str, value: Any) -> None:
    """Set ``a.b.c`` inside nested tables."""
    *parents, last = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise FedcanonError(f"{key} cannot be set: '{parent}' is a value, not a table.")
    table[last] = value


def _explain(error: ValidationError) -> str:
    """One line for every mistake."""
    lines = {}
    for mistake in error.errors():
        path = [str(part) for part in mistake["loc"]]
        if mistake["type"] == "extra_forbidden":
            section: Any = Config
            for part in path[:-1]:
                section = section.model_fields[part].annotation
            lines[".".join(path)] = unknown_key(".".join(path), section.model_fields)
            continue
        # A union reports every branch; its first message is the one for the type itself.
        key = ".".join(part for part in path if part.isidentifier() and part in _KEYS)
        message = mistake["msg"][0].lower() + mistake["msg"][1:]
        lines.setdefault(key, f"{key} = {mistake['input']!r}: {message}.")
    return "\n".join(lines.values())


def _keys(section: type[BaseModel]) -> Iterable[str]:
    for name, field in section.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation)


_KEYS = frozenset(_keys(Config))


def unknown_key(key: str, valid: Iterable[str]) -> str:
    """A sentence about a key that does not exist, with the nearest one that does."""
    return f"unknown key '{key}': {_suggest(key.rpartition('.')[2], valid)}"


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """A sentence about a name that does not exist, with the nearest one that does."""
    return f"there is no {kind} called '{name}': {_suggest(name, valid)}"


def _suggest(word: str, valid: Iterable[str]) -> str:
    names = sorted(valid)
    nearest = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{nearest[0]}'?" if nearest else f"use one of {', '.join(names)}."
