"""From a configuration to a federation that is ready to train."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from fedcanon import theory
from fedcanon.algorithms import Algorithm, Schedule
from fedcanon.compression import COMPRESSORS
from fedcanon.data import Dataset, make_partition
from fedcanon.data.partition.skew import label_counts
from fedcanon.engines.randomness import Purpose, generator, torch_seed
from fedcanon.engines.round import Rules
from fedcanon.engines.store import GIB
from fedcanon.engines.workers import InProcess
from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives import (
    DataSummary,
    FlatModule,
    Logistic,
    ModuleClients,
    ModuleObjective,
    Problem,
)
from fedcanon.objectives.augment import augmentations
from fedcanon.objectives.logistic import LogisticTest
from fedcanon.objectives.models import BinaryLogistic, Model, require_fit
from fedcanon.objectives.module import ModuleTest
from fedcanon.penalties import PENALTIES
from fedcanon.runs.config import DEPLOYED, Config, Table
from fedcanon.runs.engine import devices, is_vectorised, require_bfloat16, workers_for
from fedcanon.runs.federation import Federation, MakeEngine
from fedcanon.runs.named import (
    make_algorithm,
    make_compressor,
    make_dataset,
    make_model,
    make_penalty,
)

AUTO = "auto"


def build(config: Config, dataset: Dataset | None = None) -> Federation:
    """Load and spread the data, make model, penalty and algorithm, and put them together.

    ``dataset`` takes the place of the one that the configuration names.

    A step size "auto" is filled in from an estimate L of the smoothness at the starting point, by
    the algorithm's own rule: for FedCanon+ β = 1/(KL), and α = 1/L but at most half the domain 1/ρ
    of the prox.
    """
    check_names(config)
    if config.engine.name == DEPLOYED:
        raise FedcanonError("runs over real clients begin with 'fedcanon deploy init'.")
    if dataset is not None and config.engine.name == "flower":
        raise FedcanonError(
            'engine.name = "flower" has every client load its data: name them in the configuration.'
        )
    return assemble(config, build_problem(config, dataset))


def check_names(config: Config) -> None:
    """Show mistakes in the algorithm and the compressor before any data are loaded."""
    draft_algorithm(config.algorithm)
    make_compressor(config.compression)


def assemble(config: Config, problem: Problem, make_engine: MakeEngine | None = None) -> Federation:
    """A federation on a problem that is there already."""
    if AUTO in config.algorithm.values():
        L = theory.smoothness(problem, generator(config.seed, Purpose.SMOOTHNESS))
        rho = make_penalty(config.penalty, problem.layout).rho
        config = config.model_copy(update={"algorithm": fill_in(config.algorithm, L, rho)})
    rules = make_rules(config, problem.layout)
    if make_engine is None and config.engine.name == "flower":
        make_engine = _flower_simulation(config)
    here = make_engine is None
    return Federation(
        problem,
        rules.algorithm,
        rules.penalty,
        config.clients.participants,
        rules.batch_size,
        rules.seed,
        rules.compressor,
        workers_for(config, problem, rules.algorithm) if here else InProcess,
        here and is_vectorised(config, problem, rules.algorithm),
        int(config.engine.state_memory * GIB),
        make_engine,
    )


def _flower_simulation(config: Config) -> MakeEngine:
    if config.device != "cpu":
        raise FedcanonError('engine.name = "flower" trains on processors: use device = "cpu".')
    try:
        from fedcanon.runs.simulated import simulated_engine
    except ModuleNotFoundError:
        raise FedcanonError(
            'engine.name = "flower" needs a package: pip install "fedcanon[flower]".'
        ) from None
    return simulated_engine(config)


def make_rules(config: Config, layout: Layout) -> Rules:
    """What every client does; no step size is "auto" any more."""
    return Rules(
        make_algorithm(config.algorithm),
        make_penalty(config.penalty, layout),
        None if config.batch_size == "full" else config.batch_size,
        config.seed,
        make_compressor(config.compression),
    )


def resolved(config: Config, federation: Federation) -> Config:
    """The configuration with every parameter of method, penalty and compressor written out."""
    algorithm = {
        field.name: getattr(federation.algorithm, field.name)
        for field in fields(federation.algorithm)  # type: ignore[arg-type]
    }
    numbers = {k: v for k, v in algorithm.items() if not (v is None or isinstance(v, Schedule))}
    if algorithm.get("alpha", 0) is None:
        numbers["alpha"] = "beta*K"
    penalty = _written_out(PENALTIES, config.penalty)
    if "layers" in penalty:
        penalty = {"layers": [_written_out(PENALTIES, rule) for rule in penalty["layers"]]}
    return config.model_copy(
        update={
            "algorithm": {**config.algorithm, **numbers},
            "penalty": penalty,
            "compression": _written_out(COMPRESSORS, config.compression),
            # It changes results by rounding: a resumed run must not decide anew.
            "engine": config.engine.model_copy(update={"vectorised": federation.vectorised}),
        }
    )


def _written_out(registry: Mapping[str, Callable[..., object]], table: Table) -> Table:
    """A table with the defaults of the parameters that it leaves to the entry it names."""
    if table.get("name") not in registry:
        return table
    parameters = inspect.signature(registry[table["name"]]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default not in (p.empty, None)}
    return {**defaults, **table}


def draft_algorithm(table: Table) -> Algorithm:
    """The algorithm with a step of 1 in place of "auto"."""
    automatic = [key for key, value in table.items() if value == AUTO and key != "name"]
    others = {key: value for key, value in table.items() if key not in automatic}
    algorithm = make_algorithm(others)
    can = sorted(k for k in algorithm.automatic(L=1.0, rho=0.0) if hasattr(algorithm, k))
    for key in automatic:
        if key not in can:
            only = " and ".join(can)
            raise FedcanonError(f'algorithm.{key} cannot be "auto": only {only} can.')
    return make_algorithm({**others, **dict.fromkeys(automatic, 1.0)})


def fill_in(table: Table, L: float, rho: float) -> Table:
    """The algorithm's table with numbers in place of "auto"; β last, by its own rule."""
    for keys in (table.keys() - {"beta"}, {"beta"}):
        rules = draft_algorithm(table).automatic(L, rho)
        table = {
            k: rules[k] if v == AUTO and k in keys & rules.keys() else v for k, v in table.items()
        }
    return table


def build_problem(config: Config, dataset: Dataset | None = None) -> Problem:
    """The dataset spread over clients, each with its objective, and the starting point."""
    make_model(config.model.model_dump())  # shows mistakes before any data are loaded
    return problem_on(config, *spread(config, dataset or make_dataset(config.data.source)))


def spread(config: Config, dataset: Dataset) -> tuple[Dataset, list[Tensor]]:
    """The dataset, distorted if the partition does that, and every client's samples."""
    partition = make_partition(config.data.partition)
    rng = generator(config.seed, Purpose.PARTITION)
    train = dataset.train
    parts = partition.parts(train.targets, config.clients.count, rng, train.users)
    return replace(dataset, train=partition.distort(train, parts, rng)), parts


def problem_on(config: Config, dataset: Dataset, parts: list[Tensor]) -> Problem:
    """The problem in which client i has the samples ``parts[i]`` of a dataset."""
    model = make_model(config.model.model_dump())
    by_samples = config.clients.weights == "samples"
    weights = [float(len(part)) if by_samples else 1.0 for part in parts]
    if isinstance(model, BinaryLogistic):
        if config.data.augment:
            raise FedcanonError("data.augment is for networks on images, not for logistic.")
        return _logistic_problem(config, dataset, parts, weights)
    return _module_problem(config, model, dataset, parts, weights)


def _logistic_problem(
    config: Config, dataset: Dataset, parts: list[Tensor], weights: list[float]
) -> Problem:
    """Binary logistic regression in closed form, started at 0."""
    if dataset.classes != 2:
        raise FedcanonError(
            f"the model 'logistic' is for two classes, but {dataset.name} has {dataset.classes}: "
            "use the model 'linear'."
        )
    features, labels = dataset.train.features(config.precision), dataset.train.targets.numpy()
    clients = [Logistic(features[part.numpy()], labels[part.numpy()]) for part in parts]
    held_out = dataset.test
    test = LogisticTest(Logistic(held_out.features(config.precision), held_out.targets.numpy()))
    start = torch.zeros(clients[0].layout.size, dtype=getattr(torch, config.precision))
    return Problem(clients, start, weights, test, _summary(dataset, parts))


def _module_problem(
    config: Config, model: Model, dataset: Dataset, parts: list[Tensor], weights: list[float]
) -> Problem:
    """A network under the cross-entropy loss, started at PyTorch's random initialisation."""
    dtype = getattr(torch, config.precision)
    device = torch.device("cpu") if devices(config) else _device(config.device)
    augment = augmentations(config.data.augment, dataset.shape)
    inputs, targets = dataset.train.tensors(dtype, device)
    order = torch.cat(parts).to(device)
    inputs, targets = inputs[order], targets[order]  # a client's samples lie side by side
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(config.seed, Purpose.MODEL))
        module = model.build(dataset.shape, dataset.classes).to(device, dtype)
        smallest = inputs[: 1 if config.batch_size == 1 else 2]
        require_fit(config.model.name, module, smallest, dataset.classes)
    flat, loss = FlatModule(module), nn.CrossEntropyLoss()
    if config.engine.bfloat16:
        require_bfloat16(device)
    clients = ModuleClients(
        flat,
        loss,
        inputs,
        targets,
        [len(part) for part in parts],
        augment,
        bfloat16=config.engine.bfloat16,
    )
    test = ModuleTest(ModuleObjective(flat, loss, *dataset.test.tensors(dtype, device)))
    return Problem(clients, flat.vector, weights, test, _summary(dataset, parts))


def _summary(dataset: Dataset, parts: list[Tensor]) -> DataSummary:
    name = f"{dataset.name} ({dataset.note})" if dataset.note else dataset.name
    counts = label_counts(dataset.train.targets, parts, dataset.classes)
    return DataSummary(name, dataset.shape, dataset.classes, counts.tolist())


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except Exception:  # every backend raises its own
        raise FedcanonError(
            f'the device "{name}" is not available to PyTorch here: use device = "cpu".'
        ) from None
    return device
