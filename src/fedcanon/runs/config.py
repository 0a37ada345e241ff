"""The configuration of a run: reads TOML and validates the settings.

The default configuration is the first run of the tutorial: digits, ten heterogeneous clients, an
MLP, FedCanon+ with MCP.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
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
from fedcanon.penalties import with_our_names
from fedcanon.privacy.accounting import Accountant
from fedcanon.runs.mistakes import explain

Table = dict[str, Any]
PenaltyTable = Annotated[Table, AfterValidator(with_our_names)]
S = TypeVar("S", bound=BaseModel)

DEPLOYED = "deployed"
"""The engine name of a run with real clients."""
CLIENTS_OWN = "the clients' own data"
"""The dataset name of a run with real clients."""

DEEPEST = 30
"""Tables and lists inside one another that a configuration may have."""

DEFAULT_ALGORITHM: Table = {"name": "fedcanon+", "local_steps": 10}
DEFAULT_PENALTY: Table = {"name": "mcp", "kappa": 1.5e-3}
DEFAULT_LOSS: Table = {"name": "cross_entropy"}
_DEFAULTS = {"algorithm": DEFAULT_ALGORITHM, "penalty": DEFAULT_PENALTY, "loss": DEFAULT_LOSS}


class Section(BaseModel):
    """A table of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSection(Section):
    """The dataset, how it is divided among the clients, and random changes to its images.

    With ``validation`` that share of every client's samples is not trained on, and takes the place
    of the test data in all measures. Other keys are options of the dataset, such as the path of a
    table.
    """

    model_config = ConfigDict(extra="allow")

    name: str = "digits"
    partition: str = "dirichlet:0.2"
    augment: list[Augmentation] = []
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def source(self) -> Table:
        """The dataset's name and its own options."""
        return {"name": self.name, **(self.model_extra or {})}


class ClientsSection(Section):
    """How many clients there are, how many take part in a round, and how they are weighed.

    With the ``weights`` "uniform", a small client counts as much as a large one. With "samples",
    the default of estimators, f is the mean loss over all samples.
    """

    count: PositiveInt = 10
    participants: PositiveInt | None = None
    weights: Literal["uniform", "samples"] = "uniform"


class ModelSection(Section):
    """The model that is trained; other keys are options of the model."""

    model_config = ConfigDict(extra="allow")

    name: str = "mlp"


class EvaluateSection(Section):
    """How often measures are taken, and whether they include ‖G^a‖ with a = ``step``.

    Without ``clients`` only test data are looked at, which is faster where there are few of them.
    """

    every: PositiveInt = 1
    clients: bool = True
    gradient: bool | None = None
    step: PositiveFloat | None = None


class StopSection(Section):
    """Tolerances on ‖G‖ and on the relative change of φ that stop a run early; 0 never stops it."""

    gradient: NonNegativeFloat = 0.0
    objective: NonNegativeFloat = 0.0


class CheckpointSection(Section):
    """When checkpoints are written: every so many ``rounds`` or ``seconds``, and at the end.

    The last ``keep`` checkpoints are kept.
    """

    rounds: PositiveInt | None = None
    seconds: PositiveFloat = 60.0
    keep: PositiveInt = 2


class EngineSection(Section):
    """Where clients run: in this process ("serial"), in ``workers`` processes, or on a cluster.

    "auto" chooses one of the first two by the size of the problem. "ray" is a Ray cluster, "flower"
    Flower's simulation; "deployed" is for runs with real clients.

    With ``vectorised`` the clients of small models take their local steps together; if it is not
    set, the size of the problem decides. Client states are kept on disk if they need more than
    ``state_memory`` GiB. With ``bfloat16`` local steps compute matrix products in that precision,
    which the hardware must support.
    """

    # Of a union the first error message is shown, which does not offer what is for deployments.
    name: Literal["auto", "serial", "processes", "ray", "flower"] | Literal["deployed"] = "auto"
    workers: PositiveInt | None = None
    vectorised: bool | None = None
    state_memory: PositiveFloat = 1.0
    bfloat16: bool = False


class DeploymentSection(Section):
    """How a server on Flower treats clients that may fail.

    ``state`` says who keeps the clients' states: the "server", or each "client" on its own disk.
    A round ends after ``deadline`` seconds; with fewer than ``minimum`` updates it is repeated. A
    client that causes more than ``restarts`` restarts is excluded. A server without data needs the
    ``shape`` of one input and the number of ``classes``; a simulation takes them from its data.
    An update more than ``outlier`` times as large as usual is refused. ``samples`` are the clients'
    numbers of samples as the operator knows them, for weights that no client can claim.

    With ``secure``, the server learns sums of at least ``minimum`` updates and no single one;
    ``identities`` are the public identities of the clients in their order, which
    'fedcanon site identity' prints at each site.
    """

    state: Literal["server", "client"] = "server"
    minimum: PositiveInt = 1
    deadline: PositiveFloat = 600.0
    restarts: PositiveInt = 3
    outlier: Annotated[float, Field(gt=1)] = 10.0
    samples: list[PositiveInt] = []
    shape: list[PositiveInt] = []
    classes: PositiveInt | None = None
    secure: bool = False
    identities: list[str] = []


class PrivacySection(Section):
    """What a private run protects, and how much of it may become known.

    ``level`` says whether clients or single records are hidden, ``epsilon`` and ``delta`` how well.
    ``clip`` is the largest norm of one client's update, or of one record's gradient. With
    ``sampling`` below 1, each client or record is drawn into a round or a step with that
    probability, in secret. ``forgetting`` is for clients only. The ``noise`` multiplier follows
    from the budget and the number of rounds; so does the number of ``rounds`` that are planned.
    """

    level: Literal["client", "record"]
    epsilon: PositiveFloat
    clip: PositiveFloat
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    sampling: Annotated[float, Field(gt=0, le=1)] = 1.0
    forgetting: Annotated[float, Field(ge=0, le=1)] | None = None
    accountant: Accountant = "rdp"
    noise: NonNegativeFloat | None = None
    rounds: PositiveInt | None = None


class RobustSection(Section):
    """How many clients may be bad, and the rule that combines updates in spite of them.

    With 0 bad clients the rule is the mean.
    """

    byzantine: NonNegativeInt = 0
    rule: str = "filter"


class AdversarySection(Section):
    """Bad clients of a simulation: their attack, how many or which they are, and its strength."""

    attack: str
    clients: PositiveInt | list[NonNegativeInt]
    strength: float | None = None


class Config(Section):
    """All settings of a run."""

    seed: NonNegativeInt = 0
    rounds: PositiveInt = 120
    batch_size: PositiveInt | Literal["full"] = 32
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    data: DataSection = DataSection()
    clients: ClientsSection = ClientsSection()
    model: ModelSection = ModelSection()
    loss: Table = Field(default_factory=lambda: dict(DEFAULT_LOSS))
    penalty: PenaltyTable = Field(default_factory=lambda: dict(DEFAULT_PENALTY))
    algorithm: Table = Field(default_factory=lambda: dict(DEFAULT_ALGORITHM))
    compression: Table = Field(default_factory=lambda: {"name": "none"})
    privacy: PrivacySection | None = None
    evaluate: EvaluateSection = EvaluateSection()
    stop: StopSection = StopSection()
    checkpoint: CheckpointSection = CheckpointSection()
    engine: EngineSection = EngineSection()
    deployment: DeploymentSection = DeploymentSection()
    robust: RobustSection | None = None
    adversary: AdversarySection | None = None


def load_config(path: str | os.PathLike[str] | None = None, settings: Sequence[str] = ()) -> Config:
    """Read a TOML file and apply settings ``key=value``; without a file, change the default run.

    Raises:
        FedcanonError: The file cannot be read, or a setting is not valid.
    """
    table = {} if path is None else read_toml(Path(path))
    for setting in settings:
        _apply(table, setting)
    return _completed(table)


def make_config(
    source: Config | str | os.PathLike[str] | Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> Config:
    """Make a configuration from Python values.

    Args:
        source: A configuration, a dictionary or the path of a TOML file; None is the default run.
        settings: Changes by key. A table without a name changes some of its keys:
            ``algorithm={"beta": 0.05}``. A table with a name replaces the old one:
            ``penalty={"name": "l1"}``, or shorter ``penalty="l1"``.

    Raises:
        FedcanonError: The file cannot be read, or a setting is not valid.
    """
    table: Table = {}
    if isinstance(source, Config):
        table = source.model_dump()
    elif isinstance(source, str | os.PathLike):
        table = read_toml(Path(source))
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


def read_toml(path: Path) -> Table:
    """Read a TOML file.

    Raises:
        FedcanonError: It cannot be read, or is no TOML.
    """
    try:
        with explained(f"cannot read {path}"):
            return _parsed(path.read_text(encoding="utf-8-sig"))  # some editors write a mark
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
    return validated(Config, table)


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return the configuration with new values for dotted keys, such as ``algorithm.beta``."""
    table = config.model_dump()
    for key, value in settings.items():
        _put(table, key, value)
    return validated(Config, table)


def dotted(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of every entry in nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def engine_settings(name: str | None, workers: int | None) -> Table:
    """Return the settings for an engine's name and its number of workers; None is left out."""
    given = {"engine.name": name, "engine.workers": workers}
    return {key: value for key, value in given.items() if value is not None}


def validated(kind: type[S], table: Table) -> S:
    """Return the settings in a table.

    Raises:
        FedcanonError: A key is unknown or missing, or a value cannot be; there is a line for every
            mistake.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise FedcanonError(explain(error, kind)) from None


def _apply(table: Table, setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise FedcanonError(f"--set takes key=value, such as algorithm.beta=0.1, not '{setting}'.")
    _put(table, key, parse_value(text))


def parse_value(text: str) -> Any:
    """Parse a value in the syntax of TOML; anything else is a string."""
    try:
        return _parsed(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _put(table: Table, key: str, value: Any) -> None:
    """Set the value of a dotted key such as ``a.b.c`` in nested tables."""
    *parents, last = key.split(".")
    for parent in parents:
        if table.get(parent) is None:  # missing, or a section that may be missing
            table[parent] = {}
        table = table[parent]
        if not isinstance(table, dict):
            raise FedcanonError(f"{key} cannot be set: '{parent}' is a value, not a table.")
    table[last] = value
