"""Builds a federation that is ready to train from a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import torch
from torch import Tensor

from fedcanon.algorithms import Schedule
from fedcanon.compression import COMPRESSORS
from fedcanon.data import DATASETS, Dataset, make_partition
from fedcanon.data.partition.base import held_out_of_each
from fedcanon.data.partition.skew import label_counts
from fedcanon.engines import LocalEngine, MakeEngine, Robust, Rules
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
from fedcanon.objectives.losses import Loss
from fedcanon.objectives.mean_check import require_mean
from fedcanon.objectives.models import BinaryLogistic, Model, require_fit
from fedcanon.objectives.module import ModuleTest
from fedcanon.penalties import PENALTIES
from fedcanon.randomness import Purpose, generator, torch_seed
from fedcanon.robustness import Adversary, flipped
from fedcanon.runs.config import DEFAULT_LOSS, DEPLOYED, Config, Table
from fedcanon.runs.engine_choice import devices, engine_for, require_bfloat16
from fedcanon.runs.federation import Federation
from fedcanon.runs.named import (
    make_algorithm,
    make_compressor,
    make_dataset,
    make_loss,
    make_model,
    make_penalty,
)
from fedcanon.runs.privacy import Parts, private_parts
from fedcanon.runs.private_settings import make_privacy, with_noise
from fedcanon.runs.steps import open_steps, with_steps, without_auto
from fedcanon.threads import one_thread


@one_thread()
def build(config: Config, dataset: Dataset | None = None) -> Federation:
    """Build the federation of a configuration: data, partition, model, penalty and algorithm.

    Step sizes that are "auto" or not given are replaced by those that the algorithm suggests, from
    the curvature of linear models, and from short trials on some clients for networks.

    Args:
        config: The configuration.
        dataset: A dataset to use instead of the one that the configuration names.

    Raises:
        FedcanonError: The configuration has a mistake.
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
    """Raise a ``FedcanonError`` for mistakes in parts with names, before loading data."""
    open_steps(config.algorithm)
    make_compressor(config.compression)
    make_privacy(config)
    make_robust(config)
    make_adversary(config)


def assemble(config: Config, problem: Problem, engine: MakeEngine | None = None) -> Federation:
    """Build the federation of a configuration on a given problem.

    Step sizes that are "auto" are replaced by numbers. Without an ``engine``, the configuration
    decides.
    """
    config = with_steps(config, problem)
    rules = make_rules(config, problem.layout)
    return Federation(
        problem,
        rules.algorithm,
        rules.penalty,
        participants=config.clients.participants,
        batch_size=rules.batch_size,
        seed=rules.seed,
        compressor=rules.compressor,
        privacy=rules.privacy,
        aggregation=rules.aggregation,
        adversary=rules.adversary,
        engine=engine
        or engine_for(config, problem, rules.algorithm, private_records=rules.records is not None),
    )


def make_rules(config: Config, layout: Layout) -> Rules:
    """Return the settings of local training; no step size may be "auto" any more."""
    return Rules(
        make_algorithm(config.algorithm),
        make_penalty(config.penalty, layout),
        None if config.batch_size == "full" else config.batch_size,
        config.seed,
        make_compressor(config.compression),
        make_robust(config),
        make_privacy(config),
        make_adversary(config),
    )


def client_rules(config: Config, problem: Problem) -> Rules:
    """Return the settings as a client follows them, which protects itself in a private run.

    Raises:
        FedcanonError: What the configuration promises cannot be kept.
    """
    rules = make_rules(config, problem.layout)
    parts = Parts(rules.algorithm, rules.compressor, rules.aggregation)
    return replace(rules, **private_parts(rules.privacy, problem, parts)._asdict())


def make_robust(config: Config) -> Robust | None:
    """Return the robust rule of a configuration; None if no client is taken to be bad."""
    robust = config.robust
    return Robust(robust.rule, robust.byzantine) if robust and robust.byzantine else None


def make_adversary(config: Config) -> Adversary | None:
    """Return the bad clients of a configuration, if there are any."""
    settings = config.adversary
    if settings is None:
        return None
    clients = tuple(settings.clients) if isinstance(settings.clients, list) else settings.clients
    adversary = Adversary(settings.attack, clients, settings.strength, config.seed)
    adversary.bad(config.clients.count)  # raises an error if there are no such clients
    return adversary


def resolved(config: Config, federation: Federation) -> Config:
    """The configuration with every parameter of method, penalty and compressor written out.

    The paths of data become absolute: the run may be looked at from another folder.
    """
    named = make_algorithm(without_auto(config.algorithm))  # privacy may have changed the one here
    own = {field.name for field in fields(named)}  # type: ignore[arg-type]
    algorithm = {k: v for k, v in vars(federation.algorithm).items() if k in own}
    numbers = {k: v for k, v in algorithm.items() if not (v is None or isinstance(v, Schedule))}
    if algorithm.get("alpha", 0) is None:
        numbers["alpha"] = "beta*K"
    penalty = _written_out(PENALTIES, config.penalty)
    if "layers" in penalty:
        penalty = {"layers": [_written_out(PENALTIES, rule) for rule in penalty["layers"]]}
    engine = federation.engine
    vectorised = isinstance(engine, LocalEngine) and engine.vectorised
    return config.model_copy(
        update={
            "algorithm": {**config.algorithm, **numbers},
            "penalty": penalty,
            "compression": _written_out(COMPRESSORS, config.compression),
            "privacy": with_noise(config).privacy,
            "data": config.data.model_copy(update=_absolute_paths(config.data.source)),
            # It changes results by rounding: a resumed run must not decide anew.
            "engine": config.engine.model_copy(update={"vectorised": vectorised}),
        }
    )


def _written_out(registry: Mapping[str, Callable[..., object]], table: Table) -> Table:
    """A table with the defaults of the parameters that it leaves to the entry it names."""
    if table.get("name") not in registry:
        return table
    parameters = inspect.signature(registry[table["name"]]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default not in (p.empty, None)}
    return {**defaults, **table}


def _absolute_paths(source: Table) -> Table:
    """The options of a dataset that are paths, such as the file of a table, as absolute ones."""
    hints = get_type_hints(DATASETS[source["name"]]) if source["name"] in DATASETS else {}
    return {
        key: str(Path(value).absolute())
        for key, value in source.items()
        if isinstance(value, str) and Path in get_args(hints.get(key))
    }


def build_problem(config: Config, dataset: Dataset | None = None) -> Problem:
    """Load the dataset, divide it among the clients, and make objectives and starting model."""
    make_model(config.model.model_dump())  # finds mistakes before data are loaded
    dataset, parts = divide_dataset(config, dataset or make_dataset(config.data.source))
    return problem_on(config, _attacked(config, dataset, parts), parts)


def _attacked(config: Config, dataset: Dataset, parts: list[Tensor]) -> Dataset:
    """Return the dataset with the labels of bad clients flipped, if that is their attack."""
    adversary = make_adversary(config)
    if adversary is None or adversary.alters_uploads:
        return dataset
    targets = dataset.train.targets.clone()
    for client in adversary.bad(len(parts)):
        targets[parts[client]] = flipped(targets[parts[client]], dataset.classes)
    return replace(dataset, train=replace(dataset.train, targets=targets))


def divide_dataset(config: Config, dataset: Dataset) -> tuple[Dataset, list[Tensor]]:
    """Divide the training samples of a dataset among the clients.

    Returns:
        The dataset, with noise if the partition adds it, and the indices of every client's samples.
        With ``data.validation`` its test data are samples that no client has.
    """
    partition = make_partition(config.data.partition)
    rng = generator(config.seed, Purpose.PARTITION)
    train = dataset.train
    parts = partition.parts(train.targets, config.clients.count, rng, train.users)
    divided = replace(dataset, train=partition.distort(train, parts, rng))
    if not config.data.validation:
        return divided, parts
    kept, held = held_out_of_each(parts, config.data.validation, rng)
    told = f"validation on {config.data.validation:.0%} of each client's samples"
    note = f"{dataset.note}; {told}" if dataset.note else told
    return replace(divided, test=divided.train.take(held), note=note), kept


def problem_on(config: Config, dataset: Dataset, parts: list[Tensor]) -> Problem:
    """Return the problem in which client i has the samples ``parts[i]`` of a dataset.

    Raises:
        FedcanonError: Model, loss, data and device do not fit together.
    """
    model = make_model(config.model.model_dump())
    by_samples = config.clients.weights == "samples"
    weights = [float(len(part)) if by_samples else 1.0 for part in parts]
    if isinstance(model, BinaryLogistic):
        if config.data.augment:
            raise FedcanonError("data.augment is for networks on images, not for logistic.")
        if config.loss != DEFAULT_LOSS:
            raise FedcanonError(
                "the model 'logistic' has its own loss: leave out loss, or use the model 'linear'."
            )
        return _logistic_problem(config, dataset, parts, weights)
    return _module_problem(config, model, dataset, parts, weights)


def _logistic_problem(
    config: Config, dataset: Dataset, parts: list[Tensor], weights: list[float]
) -> Problem:
    """Make binary logistic regression with exact formulas, started at 0."""
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
    return Problem(clients, start, weights, test, _summary(config, dataset, parts))


def _module_problem(
    config: Config, model: Model, dataset: Dataset, parts: list[Tensor], weights: list[float]
) -> Problem:
    """Make a network with the configured loss, started at PyTorch's random initialisation."""
    dtype = getattr(torch, config.precision)
    device = torch.device("cpu") if devices(config) else _device(config.device)
    augment = augmentations(config.data.augment, dataset.shape)
    inputs, targets = dataset.train.tensors(dtype, device)
    order = torch.cat(parts).to(device)
    inputs, targets = inputs[order], targets[order]  # a client's samples are contiguous in memory
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(config.seed, Purpose.MODEL))
        module = model.build(dataset.shape, dataset.classes).to(device, dtype)
        smallest = inputs[: 1 if config.batch_size == 1 else 2]
        require_fit(config.model.name, module, smallest, dataset.classes)
    loss = make_loss(config.loss)
    _try_loss(config.loss["name"], loss, dataset.classes)
    flat, bfloat16 = FlatModule(module), config.engine.bfloat16
    if bfloat16:
        require_bfloat16(device)
    sizes = [len(part) for part in parts]
    clients = ModuleClients(flat, loss, inputs, targets, sizes, augment, bfloat16=bfloat16)
    test = ModuleTest(ModuleObjective(flat, loss, *dataset.test.tensors(dtype, device)))
    return Problem(clients, flat.vector, weights, test, _summary(config, dataset, parts))


def _try_loss(name: str, loss: Loss, classes: int) -> None:
    """Refuse a loss that is no mean over samples, from random scores of samples of all classes."""
    targets = torch.arange(min(2 * classes, 64)) % classes
    scores = torch.randn(len(targets), classes, generator=torch.Generator().manual_seed(0))
    require_mean(name, loss, scores, targets, piece=1)


def _summary(config: Config, dataset: Dataset, parts: list[Tensor]) -> DataSummary:
    names = dataset.names
    clients = list[str]()
    if config.data.partition == "users" and names.users and dataset.train.users is not None:
        clients = [names.users[user] for user in sorted(set(dataset.train.users.tolist()))]
    name = f"{dataset.name} ({dataset.note})" if dataset.note else dataset.name
    counts = label_counts(dataset.train.targets, parts, dataset.classes)
    return DataSummary(
        name,
        dataset.shape,
        dataset.classes,
        counts.tolist(),
        features=list(names.features),
        means=list(names.means),
        deviations=list(names.deviations),
        class_names=list(names.classes),
        client_names=clients,
    )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except Exception:  # every backend raises another type
        raise FedcanonError(
            f'the device "{name}" is not available to PyTorch here: use device = "cpu".'
        ) from None
    return device
