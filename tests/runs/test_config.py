"""Configurations: defaults, settings, and one clear sentence for every mistake."""

from dataclasses import asdict

import numpy as np
import pytest

from fedcanon import Config, FedCanon, FedcanonError, build, load_config
from fedcanon.algorithms import ALGORITHMS, Cosine, FedCanonPlus, InverseTime, StepDecay
from fedcanon.objectives.warm_up import TRIED
from fedcanon.penalties import L1, MCP, GroupLasso, PerLayer, Sum
from fedcanon.runs import steps
from fedcanon.runs.config import make_config
from fedcanon.runs.named import make_algorithm, make_penalty
from fedcanon.runs.steps import open_steps


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_without_settings_it_is_the_default_run():
    config = load_config()
    assert config.data.name == "digits"
    assert config.clients.count == 10
    assert make_algorithm(config.algorithm) == FedCanonPlus(local_steps=10)
    assert open_steps(config.algorithm) == {"alpha", "beta", "gain", "accelerated"}


def test_a_file_and_settings_on_top(write):
    path = write('seed = 3\n[algorithm]\nname = "fedcanon"\nbeta = 0.2\n[data]\nname = "digits"\n')
    assert load_config(str(path)) == load_config(path)
    config = load_config(path, ["algorithm.beta=0.3", "data.partition=iid", "stop.gradient=1e-3"])
    assert (config.seed, config.data.partition, config.stop.gradient) == (3, "iid", 1e-3)
    # Another method starts from its own defaults: no alpha means α = βK.
    assert make_algorithm(config.algorithm) == FedCanon(alpha=None, beta=0.3, local_steps=10)


def test_a_name_means_the_methods_own_defaults():
    config = load_config(settings=["algorithm={name='fedcanon+', beta=0.01}"])
    assert make_algorithm(config.algorithm) == FedCanonPlus(alpha=None, beta=0.01)


def test_configurations_do_not_share_their_defaults():
    load_config().algorithm["local_steps"] = 99
    Config().penalty["kappa"] = 99
    assert load_config().algorithm["local_steps"] == 10
    assert load_config().penalty["kappa"] == 1.5e-3


def test_part_of_a_default_table_can_be_changed():
    config = load_config(settings=["penalty.kappa=0.5", "algorithm.local_steps=3"])
    assert config.penalty == {"name": "mcp", "kappa": 0.5}
    assert make_algorithm(config.algorithm).local_steps == 3


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('{schedule="step", start=0.1, factor=0.5, every=10}', StepDecay(0.1, 0.5, 10)),
        ('{schedule="cosine", start=0.1, rounds=100}', Cosine(0.1, 100)),
        ('{schedule="inverse", start=0.1}', InverseTime(0.1, 20.0)),
    ],
)
def test_schedules(table, expected):
    algorithm = make_algorithm(load_config(settings=[f"algorithm.beta={table}"]).algorithm)
    assert algorithm.beta == expected


def test_schedules_take_the_values_of_their_formulas():
    assert [StepDecay(1.0, 0.5, 10)(t) for t in (0, 9, 10, 25)] == [1, 1, 0.5, 0.25]
    assert [InverseTime(1.0, 20)(t) for t in (0, 20, 60)] == [1, 0.5, 0.25]
    cosine = Cosine(1.0, 100, floor=0.1)
    assert cosine(0) == 1
    assert cosine(50) == pytest.approx(0.55)
    assert cosine(100) == cosine(500) == pytest.approx(0.1)


def test_the_heuristic_follows_a_scheduled_beta():
    config = load_config(
        settings=["algorithm.alpha=beta*K", 'algorithm.beta={schedule="inverse", start=0.1}']
    )
    algorithm = make_algorithm(config.algorithm)
    for t in (0, 20):
        sent = algorithm.broadcast({"z": 0, "b": 0, "server_step": 1.0}, t, None)
        assert sent["alpha"] == pytest.approx(10 * 0.1 / (1 + t / 20))


LINEAR = ["data.name=breast_cancer", "model.name=logistic", "precision=float64"]
LINEAR += ["penalty.name=l1", "batch_size=full"]


def test_steps_of_a_linear_model_come_from_the_largest_curvature():
    federation = build(load_config(settings=LINEAR))
    X = [client._x for client in federation.problem.clients]
    ones = [np.column_stack([x, np.ones(len(x))]) for x in X]
    L = max(np.linalg.eigvalsh(x.T @ x / (4 * len(x)))[-1] for x in ones)
    algorithm = federation.algorithm
    assert algorithm.beta == pytest.approx(0.25 / L, rel=1e-2)
    assert algorithm.accelerated
    assert algorithm.gain == "off"
    steep = build(load_config(settings=[*LINEAR, "penalty={name='mcp', kappa=1e6}"])).algorithm
    assert steep.alpha == pytest.approx(0.9 * 3 / 1e6)


@pytest.mark.slow
def test_steps_of_a_network_come_from_trials():
    algorithm = build(load_config()).algorithm
    assert algorithm.beta in TRIED
    assert algorithm.alpha is None  # βK
    assert algorithm.gain == pytest.approx(0.25 * 10 * algorithm.beta)
    assert algorithm.accelerated
    steep = build(load_config(settings=["penalty={name='mcp', kappa=10.0}"])).algorithm
    assert steep.alpha == pytest.approx(0.5 * 3 / 10)


def test_a_given_local_step_needs_no_trials(monkeypatch):
    monkeypatch.setattr(steps, "trial_losses", None)
    beta = {"schedule": "cosine", "start": 0.2, "rounds": 50}
    algorithm = build(make_config(None, {"algorithm": {"beta": beta}})).algorithm
    assert algorithm.alpha is None
    assert algorithm.gain == pytest.approx(0.25 * 10 * 0.2)
    steep = {"algorithm": {"beta": beta}, "penalty": {"name": "mcp", "kappa": 10.0}}
    assert build(make_config(None, steep)).algorithm.alpha == Cosine(0.15, 50)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_every_method_has_automatic_steps_and_can_be_built_with_them(name, kind):
    settings = LINEAR if kind == "linear" else ["penalty.name=l1", "model.name=linear"]
    table = load_config(settings=[*settings, f"algorithm.name={name}"])
    algorithm = build(table).algorithm
    assert not open_steps(asdict(algorithm) | {"name": name})


def test_weights_by_samples():
    federation = build(load_config(settings=["clients.weights=samples"]))
    assert sum(federation.problem.weights) == 1437
    assert [c.samples for c in federation.problem.clients] == federation.problem.weights


def test_penalties_leave_biases_alone_unless_told(write):
    layout = build(load_config()).problem.layout
    weights = sum(slot.size for slot in layout if len(slot.shape) > 1)
    import torch

    def penalised(table):
        return make_penalty(table, layout).zeros(torch.zeros(layout.size))[1]

    assert penalised({"name": "l1"}) == weights
    assert penalised({"name": "l1", "on": "all"}) == layout.size


def test_penalties_per_layer_and_sums(write):
    path = write(
        """
        [[penalty.layers]]
        match = "1.weight"
        name = "group_lasso"
        kappa = 0.01

        [[penalty.layers]]
        match = "*.weight"
        name = "sum"
        terms = [{name = "l1", kappa = 0.1}, {name = "non_negative"}]
        """
    )
    config = load_config(path)
    layout = build(load_config()).problem.layout
    penalty = make_penalty(config.penalty, layout)
    assert isinstance(penalty, PerLayer)
    assert penalty.rules[0] == ("1.weight", GroupLasso(0.01))
    assert isinstance(penalty.rules[1][1], Sum)
    assert penalty.rules[1][1].terms[0] == L1(0.1)


def test_both_forms_of_mcp():
    layout = build(load_config()).problem.layout
    table = {"name": "mcp", "kappa": 0.2, "gamma": 4.0, "form": "lambda", "on": "all"}
    assert make_penalty(table, layout) == MCP(0.2, 4.0, "lambda")


MISTAKES = {
    "algorithm.bta=1": "unknown key 'algorithm.bta': did you mean 'beta'?",
    "penalty.kapa=1": "unknown key 'penalty.kapa': did you mean 'kappa'?",
    "clients.weight=samples": "unknown key 'clients.weight': did you mean 'weights'?",
    "round=3": "unknown key 'round': did you mean 'rounds'?",
    "zzz=3": "unknown key 'zzz': use one of",
    "rounds=0": "rounds = 0: input should be greater than 0.",
    "rounds=many": "rounds = 'many': input should be a valid integer",
    "clients.weights=equal": "clients.weights = 'equal': input should be 'uniform' or 'samples'",
    "algorithm=3": "algorithm = 3: this is a table; write [algorithm] with a name.",
    "algorithm.beta=-1": "beta must be a positive, finite number, not -1.",
    "algorithm.beta=fast": "algorithm.beta = 'fast'",
    "algorithm.alpha=nan": "alpha must be a positive, finite number",
    "algorithm.local_steps=0": "local_steps must be at least 1, not 0.",
    "algorithm.local_steps=auto": 'algorithm.local_steps cannot be "auto"',
    "algorithm.name=fedcannon": "no algorithm called 'fedcannon': did you mean 'fedcanon'?",
    "penalty.name=mpc": "there is no penalty called 'mpc': did you mean 'mcp'?",
    "penalty.name=weighted_l1": "penalty 'weighted_l1' needs a value for 'kappa'",
    "penalty.gamma=-1": "MCP needs a finite gamma above 0, not -1.",
    "penalty.on=biases": 'penalty.on must be "weights" or "all"',
    "clients.participants=20": "set participants between 1 and 10.",
    "algorithm.alpha=5000": "its prox needs a step below 1/ρ = 2000",
    "data.name=mnits": "there is no dataset called 'mnits'",
    "data.partition=dirichlet": "such as dirichlet:0.2",
    "model.name=resnet": "there is no model called 'resnet'",
    "model.name=logistic": "use the model 'linear'",
    "device=warp": 'the device "warp" is not available',
    'algorithm.beta={schedule="linear"}': "there is no schedule for beta called 'linear'",
    'algorithm.beta={schedule="cosine", start=1.0, round=9}': "key 'algorithm.beta.round'",
    "algorithm.beta={start=1.0}": "algorithm.beta needs the name of a schedule for beta: one of",
    "compression.fraction=0.01": "compression needs the name of a compressor: one of none, top_k",
    "algorithm={name='fedavg', local_steps='auto'}": '"auto": only beta',
    'algorithm.beta={schedule="cosine", start=1.0}': "needs a value for 'rounds'",
    "batch_size=0": "batch_size = 0: input should be greater than 0",
    "penalty={name='sum'}": "penalty.terms must be a list of one or more tables, not None",
    "penalty={name='sum', terms=[1, 2]}": "penalty.terms must be a list of one or more tables",
    "penalty={name='sum', terms=[{name='l1'}], kappa=3}": "unknown key 'penalty.kappa'",
    "penalty={layers=3}": "penalty.layers must be a list of one or more tables, not 3",
    "penalty={layers=[]}": "penalty.layers must be a list",
    "penalty={layers=[{name='l1'}]}": "needs match",
    "penalty={name='group_lasso', groups=3}": "leave groups out",
    "algorithm.alpha={schedule=['cosine']}": "no schedule for alpha called '['cosine']'",
    "algorithm.name={a=1}": "no algorithm called",
    "algorithm.name=auto": "no algorithm called 'auto'",
    "algorithm.local_steps=true": "algorithm.local_steps = True",
    "rounds=true": "rounds = True: input should be a valid integer",
    "data.label=x": "unknown key 'data.label': the dataset 'digits' has no options.",
    "data.name=table": "dataset 'table' needs a value for 'path'",
    "device=meta": 'the device "meta" is not available',
    'penalty.kappa="0.1"': "penalty.kappa = '0.1': input should be a valid number",
    "algorithm.local_steps=10.0": "algorithm.local_steps = 10.0: input should be a valid integer",
    "algorithm={layers=3}": "unknown key 'algorithm.layers'",
    f"seed={2**63}": "seed = '9223372036854775808': input should be a valid integer",
    "nonsense": "--set takes key=value",
    "seed.deep=1": "seed = {'deep': 1}",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_a_mistake_gets_one_sentence(setting):
    with pytest.raises(FedcanonError) as caught:
        build(load_config(settings=[setting]))
    message = str(caught.value)
    assert MISTAKES[setting] in message
    assert "\n" not in message


def test_several_mistakes_get_a_line_each(write):
    with pytest.raises(FedcanonError) as caught:
        load_config(write("rounds = 0\nsede = 1\n"))
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_cannot_be_read(write, tmp_path):
    with pytest.raises(FedcanonError, match=r"cannot read .*absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(FedcanonError, match="not valid TOML"):
        load_config(write("rounds = = 3"))
    for text in (f"seed = {2**63}", f"seed = 0x{'f' * 5000}", "data.x" + ".a" * 5000 + " = 1"):
        with pytest.raises(FedcanonError, match="not valid TOML: "):
            load_config(write(text))
    binary = tmp_path / "job.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FedcanonError, match="not valid TOML"):
        load_config(binary)
