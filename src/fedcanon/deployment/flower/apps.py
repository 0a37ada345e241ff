"""The apps that Flower runs in a deployment: one for the server and one for each client."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcanon.algorithms import sends_steps
from fedcanon.data import Dataset, Split
from fedcanon.data.own.arrays import numbers
from fedcanon.deployment.allowance import Allowance
from fedcanon.deployment.configured import deployment_on, vector_sizes, weights_rule
from fedcanon.deployment.flower.client import answering_app
from fedcanon.deployment.flower.grid import GridNetwork
from fedcanon.deployment.flower.internals import ask_again_soon
from fedcanon.deployment.flower.nodes import FILE as NODES
from fedcanon.deployment.flower.nodes import Nodes
from fedcanon.deployment.ledger import Ledger, own_secret
from fedcanon.deployment.participant import Participant
from fedcanon.deployment.protocol import Presence
from fedcanon.deployment.secure.configured import secured
from fedcanon.deployment.secure.identity import FILE as IDENTITY
from fedcanon.deployment.server import DeployedEngine
from fedcanon.engines.work import CountedProx
from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.objectives import DataSummary, Problem
from fedcanon.objectives.problem import no_test
from fedcanon.objectives.remote import Remote
from fedcanon.penalties import Zero
from fedcanon.privacy import Privacy
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.build import assemble, check_names, client_rules, divide_dataset, problem_on
from fedcanon.runs.config import (
    CLIENTS_OWN,
    DEPLOYED,
    Config,
    PrivacySection,
    changed,
    load_config,
)
from fedcanon.runs.federation import Federation
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Record
from fedcanon.runs.named import make_algorithm, make_compressor, make_dataset
from fedcanon.runs.observers import Observer
from fedcanon.runs.private_settings import make_privacy
from fedcanon.runs.steps import (
    AUTO,
    facts_from,
    filled,
    open_steps,
    require_given_steps,
    told_by,
    without_auto,
)
from fedcanon.runs.training import resume_with, train_in

_MAY_CHANGE = {"evaluate", "stop", "checkpoint", "deployment", "robust"}
"""The sections of a configuration that may have changed when a run goes on."""

CONFIG = "run.toml"
"""The name of the configuration file in the folder of the app's modules."""


@dataclass(frozen=True)
class ClientData:
    """One client's samples: pairs of inputs and labels 0 … classes − 1, as arrays or tensors.

    The model is tested on the ``held_out`` samples and never trained on them; None if there are
    none.
    """

    train: tuple[Any, Any]
    held_out: tuple[Any, Any] | None = None


Load = Callable[[int, Mapping[str, Any]], ClientData]
"""Loads a client's data, from its number and the --node-config of its SuperNode."""


def server_app(folder: Path) -> ServerApp:
    """Return the server of the app in a folder; it begins a run or resumes an interrupted one."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        from flwr.superlink.grid import http_grid  # not at clients: it brings a database along

        torch.set_num_threads(1)
        ask_again_soon(http_grid, "pull_objects")
        serve(load_config(folder / CONFIG), grid, Path(str(context.run_config["folder"])))

    return app


def client_app(folder: Path, load: Load) -> ClientApp:
    """Return the client of the app in a folder; ``load`` loads its data."""
    return answering_app(partial(_participant, folder, load))


def part_of_dataset(folder: Path, client: int) -> ClientData:
    """Return a client's part of the configured dataset, to try an app without own data.

    A fifth of the samples is held out.

    Raises:
        FedcanonError: The dataset has no part for this client.
    """
    config = load_config(folder / CONFIG)
    dataset, parts = divide_dataset(config, make_dataset(config.data.source))
    if client >= len(parts):
        raise FedcanonError(
            f"there is no part for client {client} in a dataset for {len(parts)} clients: "
            "load its data in app/data.py."
        )
    own = parts[client].numpy()
    inputs, targets = dataset.train.inputs[own], dataset.train.targets[own]
    fifth = len(own) // 5
    return ClientData((inputs[fifth:], targets[fifth:]), (inputs[:fifth], targets[:fifth]))


def serve(config: Config, grid: Grid, folder: Path) -> None:
    """Begin or resume the run in a folder, with the clients of a grid.

    Raises:
        FedcanonError: The configuration has a mistake, or the run is finished.
    """
    config = changed(config, {"engine.name": DEPLOYED})
    _check(config)
    stand_in = problem_on(config, _placeholder(config), [torch.arange(2)])
    network = GridNetwork(
        grid,
        make_compressor(config.compression),
        vector_sizes(stand_in, make_algorithm(without_auto(config.algorithm))),
        lifetime=2 * config.deployment.deadline,
        nodes=Nodes(folder.parent / NODES),
    )
    run = RunFolder(folder)
    if run.data is None:
        if (folder / "config.toml").is_file():  # killed before there was anything to resume
            run.discard()
        present = network.wait_for(range(config.clients.count), _print_missing)
        clients = [present[client] for client in range(config.clients.count)]
        federation = _federation(
            _with_steps(config, clients, stand_in.layout),
            stand_in,
            network,
            [client.samples for client in clients],
        )
        train_in(folder, config, federation, [_Log(), _Orders()])
        return
    _require_same(run.config, config)
    if run.result is not None and run.result.round >= config.rounds:
        raise FedcanonError(
            f"the run in {folder} is finished: raise rounds in {CONFIG} to continue it, or name "
            "another folder in pyproject.toml."
        )
    samples = run.data.samples
    make = partial(_federation, stand_in=stand_in, network=network, samples=samples)
    observers = [_Log(), _Orders()]
    # Starting from round 0 would cost the clients days of work.
    settings = {"rounds": config.rounds, **config.model_dump(include=_MAY_CHANGE)}
    resume_with(run, make, settings=settings, observers=observers, may_restart=False)


def _require_same(before: Config, now: Config) -> None:
    """Raise a ``FedcanonError`` if a setting has changed that clients and server must share."""
    fixed = ("seed", "batch_size", "precision", "clients", "model", "penalty", "algorithm")
    for name in (*fixed, "loss", "compression", "privacy"):
        old, new = getattr(before, name), getattr(now, name)
        if isinstance(new, PrivacySection) and isinstance(old, PrivacySection):
            new = new.model_copy(update={"noise": old.noise, "rounds": old.rounds})
        if isinstance(new, dict):  # the old table also contains the values of defaults
            new = {key: value for key, value in new.items() if value != AUTO}
            old = {key: old.get(key) for key in new}
        if old != new:
            raise FedcanonError(
                f"{name} in {CONFIG} has changed since the run began: change it back, or name "
                "another folder in pyproject.toml."
            )
    first, then = make_privacy(before), make_privacy(now)
    if first is not None and then is not None and first.noise != then.noise:
        raise FedcanonError(
            f"rounds in {CONFIG} has changed, and with it the noise of the privacy budget: write "
            f"privacy.noise = {first.noise!r} and privacy.rounds = {first.rounds} into {CONFIG}, "
            "at the server and at all sites."
        )


def _check(config: Config) -> None:
    check_names(config)
    algorithm = make_algorithm(without_auto(config.algorithm))
    server = algorithm.server_init(torch.zeros(2), CountedProx(Zero()))
    if config.privacy is not None:
        require_given_steps(config.algorithm)
    steps = open_steps(config.algorithm) if config.privacy is None else set()
    if not sends_steps(algorithm, server) or steps - {"alpha", "beta", "gain", "accelerated"}:
        for key in sorted(steps):
            raise FedcanonError(
                f"algorithm.{key} cannot be automatic in a deployment, where clients must know it "
                "from the start: use the number that 'fedcanon check' or a simulation prints."
            )
    if config.adversary is not None:
        raise FedcanonError(
            "adversary is for simulations, and here are real clients: leave it out."
        )
    if config.device != "cpu":
        raise FedcanonError('deployments train on processors: use device = "cpu".')
    if not config.deployment.shape or config.deployment.classes is None:
        raise FedcanonError(f"set deployment.shape and deployment.classes in {CONFIG}.")


def _with_steps(config: Config, clients: Sequence[Presence], layout: Layout) -> Config:
    """Return the configuration with the steps that follow from what the clients have told."""
    if config.privacy is not None or not open_steps(config.algorithm):
        return config
    counts = {len(client.told) for client in clients}
    if len(counts) != 1 or 0 in counts:
        raise FedcanonError(
            "clients have told different things about step sizes: give all the same app/run.toml."
        )
    weights = _weights(config, [client.samples for client in clients])
    told, exact = [client.told for client in clients], config.batch_size == "full"
    return filled(config, layout, facts_from(told, weights, exact=exact))


def _placeholder(config: Config) -> Dataset:
    """Return a dataset of two samples of zeros: a server only needs it to make the model."""
    classes = config.deployment.classes or 0
    nothing = Split(torch.zeros(2, *config.deployment.shape), torch.tensor([0, classes - 1]))
    return Dataset(CLIENTS_OWN, nothing, nothing, classes)


def _federation(
    config: Config, stand_in: Problem, network: GridNetwork, samples: list[int]
) -> Federation:
    shape, classes = tuple(config.deployment.shape), config.deployment.classes or 0
    problem = Problem(
        [Remote(stand_in.clients[0], count) for count in samples],
        stand_in.start,
        _weights(config, samples),
        no_test,
        DataSummary(CLIENTS_OWN, shape, classes, [], samples),
    )
    return assemble(config, problem, deployment_on(network, config))


def _weights(config: Config, samples: Sequence[int]) -> list[float]:
    """Return the weights of the clients, from the samples that they claim or the registered ones.

    Raises:
        FedcanonError: A client claims so many samples that it would decide alone.
    """
    rule = weights_rule(config)
    weights = [rule.of(client, count) for client, count in enumerate(samples)]
    for client, count in enumerate(samples):
        others = weights[:client] + weights[client + 1 :]
        if objection := rule.objection(client, count, others):
            raise FedcanonError(objection)
    return weights


class _Orders(Observer):
    """Lets the run pause or end between two rounds, as the operator orders."""

    def begin(self, federation: Federation, rounds: int) -> None:
        assert isinstance(federation.engine, DeployedEngine)
        self._status = federation.engine.status

    def round(self, t: int) -> str | None:
        return "ended by the operator" if self._status.must_end() else None


def _print_missing(missing: set[int]) -> None:
    print(f"waiting for clients {', '.join(map(str, sorted(missing)))} …", flush=True)


def _participant(folder: Path, load: Load, context: Context) -> Participant:
    config, node = load_config(folder / CONFIG), context.node_config
    client = node.get("client")
    if not isinstance(client, int) or client < 0:
        raise FedcanonError("start the SuperNode with --node-config 'client=0 state=\"folder\"'.")
    dataset = _checked(config, load(client, node), client)
    problem = problem_on(config, dataset, [torch.arange(len(dataset.train))])
    table = without_auto(config.algorithm)  # the server's messages have the steps
    rules = client_rules(config.model_copy(update={"algorithm": table}), problem)
    objective, rng = problem.clients[0], generator(config.seed, Purpose.SMOOTHNESS, client)
    told = partial(told_by, objective, problem.start, rules.batch_size, rng)
    kept = node.get("state")
    states = None if kept is None else Path(str(kept))
    participant = Participant(
        client,
        rules,
        objective,
        problem.test if len(dataset.test) else no_test,
        len(dataset.test),
        None if states is None else partial(Ledger.on_disk, states, client),
        told if open_steps(config.algorithm) else tuple,
        None if states is None else own_secret(states),
        _allowance(states, client, rules.privacy),
    )
    if not config.deployment.secure:
        return participant
    identity = Path(str(node.get("identity", IDENTITY)))
    return secured(participant, config, states, identity)


def _allowance(states: Path | None, client: int, privacy: Privacy | None) -> Allowance | None:
    if states is None or privacy is None:
        return None
    return Allowance(states / f"spent-{client}.json", privacy)


def _checked(config: Config, data: ClientData, client: int) -> Dataset:
    classes = config.deployment.classes or 0
    if not isinstance(data, ClientData):
        raise FedcanonError(f"load in app/data.py must return ClientData, not {data!r:.40}.")
    train = _split(config, data.train, f"client {client}'s training")
    if not len(train):
        raise FedcanonError(f"client {client} has no training data.")
    nothing = Split(train.inputs[:0], train.targets[:0])
    held_out = data.held_out
    test = nothing if held_out is None else _split(config, held_out, f"client {client}'s held-out")
    return Dataset(f"client {client}", train, test, classes)


def _split(config: Config, pair: tuple[Any, Any], what: str) -> Split:
    expected, classes = tuple(config.deployment.shape), config.deployment.classes or 0
    try:
        inputs, given = numbers(pair[0], what), pair[1]
        # A copy, because PyTorch warns of arrays that are read-only, as those of pandas are.
        labels = given if isinstance(given, torch.Tensor) else torch.from_numpy(np.array(given))
    except (TypeError, ValueError, IndexError) as error:
        raise FedcanonError(f"{what} data are not a pair of arrays of numbers: {error}.") from None
    targets = labels.to(torch.int64)
    if labels.ndim != 1 or not torch.equal(targets.to(labels.dtype), labels):
        raise FedcanonError(f"{what} labels must be whole numbers, one for each input.")
    if tuple(inputs.shape[1:]) != expected:
        raise FedcanonError(
            f"{what} inputs have the shape {tuple(inputs.shape[1:])}, but deployment.shape is "
            f"{expected}."
        )
    if len(targets) != inputs.shape[0]:
        raise FedcanonError(f"{what} data have {inputs.shape[0]} inputs and {len(targets)} labels.")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < classes):
        raise FedcanonError(f"{what} labels must be 0 to {classes - 1}.")
    return Split(inputs, targets)


class _Log(Observer):
    """Prints a line for every record; 'flwr run --stream' and 'flwr log' show it."""

    def record(self, record: Record) -> None:
        test = "".join(f" · {name} {value:.4g}" for name, value in record.test.items())
        stationarity = "" if record.gradient_norm is None else f" · ‖G‖ {record.gradient_norm:.3g}"
        objective = "" if math.isnan(record.objective) else f" f + h {record.objective:.6g}"
        spent = record.diagnostics.get("epsilon")
        private = "" if spent is None else f" · ε {spent:.3g}"
        print(
            f"round {record.round}:{objective}{stationarity} · "
            f"{record.sparsity:.1%} zeros{test}{private}",
            flush=True,
        )

    def event(self, message: str) -> None:
        print(message, flush=True)
