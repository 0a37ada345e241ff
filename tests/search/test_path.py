"""``fedcanon path``: against scikit-learn, against cold starts, and what it keeps."""

import csv

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression

from fedcanon.data import DATASETS
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Logistic, Problem
from fedcanon.penalties import (
    L0,
    L1,
    MCP,
    SCAD,
    GroupLasso,
    Huber,
    LInf,
    Nuclear,
    WeightedL1,
    on_weights,
)
from fedcanon.runs.build import build, build_problem
from fedcanon.runs.config import changed, load_config
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import fit_as
from fedcanon.search.kappas import largest_kappa, parse_kappas
from fedcanon.search.path import PathSearch, follow
from fedcanon.search.selection import Selection, hold_out, parse_selection

LASSO = [
    *("data.name=breast_cancer", "data.partition=iid", "model.name=logistic", "penalty.name=l1"),
    *("clients.count=4", "clients.weights=samples", "precision=float64", "batch_size=full"),
    *("algorithm={name='fedcanon+', beta=0.4, local_steps=10, accelerated=false}", "rounds=2000"),
    *("stop.gradient=1e-6", "evaluate.every=5"),
]


class Unwatched(Observer):
    """No progress bar."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def unwatched(number, count):
    return Unwatched()


@pytest.fixture(scope="module")
def lasso(tmp_path_factory):
    """The path of ℓ1 logistic regression, from all zeros to a twentieth of that κ."""
    config = load_config(settings=LASSO)
    problem = build_problem(config)
    largest = largest_kappa(problem, lambda kappa: on_weights(L1(kappa), problem.layout))
    kappas = tuple(np.geomspace(largest, largest / 20, 5))
    folder = tmp_path_factory.mktemp("lasso") / "path"
    return config, follow(PathSearch(config, Selection("bic"), kappas), folder, unwatched)


@pytest.mark.slow
def test_the_path_of_the_lasso_is_scikit_learns(lasso):
    _, path = lasso
    train = DATASETS["breast_cancer"]().train
    X, y = train.features("float64"), train.targets.numpy()
    for number, point in enumerate(path.points):
        # At the first κ all is zero; a little more makes that certain for rounding, too.
        kappa = point.kappa * (1 + 1e-6) if number == 0 else point.kappa
        oracle = LogisticRegression(
            C=1 / (kappa * len(y)), l1_ratio=1, solver="saga", tol=1e-8, max_iter=50_000
        ).fit(X, y)
        expected = np.append(oracle.coef_[0], oracle.intercept_)
        found = path.parameters(number).vector.numpy()
        assert np.abs(found - expected).max() < 1e-3
        assert point.nonzeros == np.count_nonzero(oracle.coef_)
    counts = [point.nonzeros for point in path.points]
    assert counts[0] == 0
    assert counts[1] > 0
    assert path.coefficients().shape == (5, 30)


@pytest.mark.slow
def test_a_warm_start_takes_fewer_rounds(tmp_path):
    config = changed(load_config(settings=LASSO), {"stop.gradient": 1e-4})
    kappas = tuple(np.geomspace(0.2, 0.03, 5))
    path = follow(PathSearch(config, Selection("bic"), kappas), tmp_path / "path", unwatched)
    cold = 0
    for point in path.points:
        own = changed(config, {"penalty.kappa": point.kappa})
        result = fit_as(own, build(own))
        assert result.last.objective == pytest.approx(point.record.objective, rel=1e-5)
        cold += result.last.round
    warm = sum(point.record.round for point in path.points)
    assert warm < 0.7 * cold


def test_bic_is_the_formula(lasso):
    _, path = lasso
    samples = 455
    for number, point in enumerate(path.points):
        nonzeros = int(path.parameters(number).vector.count_nonzero())
        expected = 2 * samples * point.record.loss + nonzeros * np.log(samples)
        assert point.criterion == pytest.approx(expected, rel=1e-9)
    assert path.chosen == np.argmin([point.criterion for point in path.points])


UNPENALISED = f"{{name='weighted_l1', kappa=1.0, weights={[0.0, 2.0, *[1.0] * 28]}}}"

SHORT = [word for setting in LASSO for word in ("--set", setting)]
SHORT += ["--set", "rounds=20", "--kappas", "0.3:0.03:4"]


def rows(folder):
    with (folder / "path.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("select", ["validation", "bic", "sparsity:0.9"])
def test_the_command_prints_draws_and_keeps(fedcanon, tmp_path, select):
    folder = tmp_path / "path"
    code, out, _ = fedcanon("path", *SHORT, "--select", select, "--folder", str(folder))
    assert code == 0
    assert max(map(len, out.splitlines()[:-1])) <= 80  # the last line is a path to copy
    assert (folder / "path.png").read_bytes().startswith(b"\x89PNG")
    found = rows(folder)
    assert [float(row["kappa"]) for row in found] == pytest.approx(np.geomspace(0.3, 0.03, 4))
    taken = [line.split()[0] for line in out.splitlines() if line.rstrip().endswith("←")]
    if select == "sparsity:0.9":
        sparse = [row for row in found if float(row["sparsity"]) >= 0.9]
        best = min(sparse, key=lambda row: float(row["loss"]))
    else:
        name = {"validation": "validation_loss", "bic": "BIC"}[select]
        best = min(found, key=lambda row: float(row[name]))
    assert taken == [f"{float(best['kappa']):.3g}"]
    chosen = load_config(folder / "selected.toml")
    assert chosen.penalty["kappa"] == float(best["kappa"])
    model = load_file(folder / "model.safetensors")
    assert int(model["weight"].count_nonzero()) == int(best["nonzeros"])


@pytest.mark.slow
def test_the_picture_may_go_elsewhere(fedcanon, tmp_path):
    elsewhere = ("--plot", str(tmp_path / "own.svg"))
    assert fedcanon("path", *SHORT, *elsewhere, "--folder", str(tmp_path / "path"))[0] == 0
    assert (tmp_path / "own.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert not (tmp_path / "path" / "path.png").exists()


@pytest.mark.slow
def test_an_interrupted_path_goes_on(fedcanon, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fedcanon("path", *SHORT, "--folder", str(whole))
    rounds = Observer.round

    def interrupt(self, t):
        if len(list(parts.glob("kappa-*"))) == 2 and t == 10:
            raise KeyboardInterrupt
        rounds(self, t)

    with monkeypatch.context() as patched:
        patched.setattr("fedcanon.cli.progress.ProgressBar.round", interrupt)
        code, _, err = fedcanon("path", *SHORT, "--folder", str(parts))
    assert code == 130
    assert "stopped: the same command goes on" in err
    before = {path: path.stat().st_mtime_ns for path in parts.glob("kappa-*/*")}
    assert len(before) == 2
    assert fedcanon("path", *SHORT, "--folder", str(parts))[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for name in ("model.safetensors", "selected.toml"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    timeless = [
        [{k: v for k, v in row.items() if "seconds" not in k} for row in rows(folder)]
        for folder in (whole, parts)
    ]
    assert timeless[0] == timeless[1]
    code, _, err = fedcanon("path", *SHORT, "--select", "bic", "--folder", str(parts))
    assert code == 2
    assert "holds another search (selection.kind was validation and is bic)" in err


def test_validation_holds_out_a_fifth_by_the_seed():
    dataset = DATASETS["digits"]()
    kept, held = hold_out(dataset, 0)
    assert len(held) == 288
    assert len(kept.train) + len(held) == len(dataset.train)
    both = torch.cat([kept.train.inputs, held.inputs]).flatten(1)
    assert torch.equal(both.sum(0), dataset.train.inputs.flatten(1).sum(0))
    assert torch.equal(held.inputs, hold_out(dataset, 0)[1].inputs)
    assert not torch.equal(held.targets, hold_out(dataset, 1)[1].targets)
    assert kept.test is dataset.test


def shifted_problem():
    """Logistic regression on features and labels that are not centred."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6)) + 0.5
    y = X[:, 0] + rng.standard_normal(80) > 1.0
    return Problem([Logistic(X, y)], torch.zeros(7, dtype=torch.float64))


def null_gradient(problem):
    """∇f of the weights at weights 0 and the bias at its optimum, the log-odds."""
    y = problem.clients[0]._y > 0
    point = torch.zeros(7, dtype=torch.float64)
    point[6] = np.log(y.mean() / (1 - y.mean()))
    return problem.value_and_gradient(point)[1][:6]


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [
        (L1, lambda g: g.abs().max()),
        (MCP, lambda g: g.abs().max()),
        (lambda kappa: MCP(kappa, form="lambda"), lambda g: g.abs().max()),
        (SCAD, lambda g: g.abs().max()),
        (lambda kappa: GroupLasso(kappa, axis=1), lambda g: g.abs().max()),
        (GroupLasso, lambda g: g.norm() / 6**0.5),
        (Nuclear, lambda g: g.norm()),
        (LInf, lambda g: g.abs().sum()),
        (L0, lambda g: g.abs().max() ** 2 / 2),
    ],
    ids=["l1", "mcp", "mcp lambda", "scad", "entries", "rows", "nuclear", "linf", "l0"],
)
def test_the_largest_kappa_is_the_dual_norm_of_the_gradient(penalty, expected):
    problem = shifted_problem()
    found = largest_kappa(problem, lambda kappa: on_weights(penalty(kappa), problem.layout))
    assert found == pytest.approx(float(expected(null_gradient(problem))), rel=1e-5)


def test_the_largest_kappa_is_that_of_the_penalised_weights():
    problem = shifted_problem()
    weights = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 1.0])
    found = largest_kappa(problem, lambda k: on_weights(WeightedL1(k, weights), problem.layout))
    X, y = problem.clients[0]._x, problem.clients[0]._y > 0
    free = LogisticRegression(C=np.inf, tol=1e-10).fit(X[:, weights == 0], y)
    residual = free.predict_proba(X[:, weights == 0])[:, 1] - y
    gradient = np.abs(X.T @ residual / len(y))[weights > 0] / weights[weights > 0]
    assert found == pytest.approx(gradient.max(), rel=1e-5)
    groups = {"groups": [[0, 3], [1, 2], [4, 5]], "weights": [0, 1, 3]}
    found = largest_kappa(
        problem, lambda k: on_weights(GroupLasso(k, axis=1, **groups), problem.layout)
    )
    norms = [np.linalg.norm(X[:, columns].T @ residual) / len(y) for columns in ([1, 2], [4, 5])]
    assert found == pytest.approx(max(norms[0], norms[1] / 3), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["data.name=breast_cancer", "model.name=logistic", "penalty.name=l1"],
        ["data.name=breast_cancer", "model.name=logistic", f"penalty={UNPENALISED}"],
        ["model.name=linear", "penalty.name=group_lasso"],
    ],
    ids=["l1", "unpenalised weights", "groups from a random start"],
)
def test_an_automatic_path_begins_with_zeros(fedcanon, tmp_path, settings):
    words = [word for setting in [*settings, "rounds=3"] for word in ("--set", setting)]
    code, out, _ = fedcanon("path", *words, "--select", "bic", "--folder", str(tmp_path / "path"))
    assert code == 0
    found = rows(tmp_path / "path")
    assert len(found) == 20
    assert [float(found[0][name]) for name in ("nonzeros", "sparsity", "round")] == [0, 1, 0]
    # It is the solution for its κ, as far as float32 tells.
    assert float(found[0]["gradient_norm"]) < 1e-4
    assert float(found[-1]["kappa"]) == pytest.approx(1e-3 * float(found[0]["kappa"]))
    assert "nothing says whether 19 of 20 models converged: set stop.gradient" in " ".join(
        out.split()
    )
    assert "+" not in out


@pytest.mark.slow
def test_models_that_did_not_converge_are_marked_and_counted(fedcanon, tmp_path):
    kappas = ("--kappas", "0.3:0.003:3", "--select", "bic", "--set", "rounds=150")
    tolerance = ("--set", "stop.gradient=1e-4")
    folder = tmp_path / "path"
    code, out, _ = fedcanon("path", *SHORT, *kappas, *tolerance, "--folder", str(folder))
    assert code == 0
    marked = [line.split()[1].endswith("+") for line in out.splitlines()[2:5]]
    assert marked == [row["stopped"] == "all rounds done" for row in rows(folder)]
    assert marked == [float(row["gradient_norm"]) > 1e-4 for row in rows(folder)]
    assert 0 < sum(marked) < 3
    said = " ".join(out.split())
    assert f"{sum(marked)} of 3 models, marked +, had not converged" in said
    assert "use more rounds" in said


def test_no_kappa_of_a_smooth_penalty_makes_zeros():
    problem = shifted_problem()
    with pytest.raises(FedcanonError, match="no kappa makes all weights zero"):
        largest_kappa(problem, lambda kappa: on_weights(Huber(kappa), problem.layout))


@pytest.mark.slow
def test_a_network_goes_from_weak_to_strong(fedcanon, tmp_path):
    quick = ["--set", "rounds=8", "--set", "evaluate.every=8", "--select", "sparsity:0.5"]
    folder = ("--folder", str(tmp_path / "path"))
    code, _, err = fedcanon("path", *quick, "--kappas", "0.05:0.005:3", *folder)
    assert code == 2
    assert "all weights are zero at kappa = 0.05, a point that a network cannot leave" in err
    folder = ("--folder", str(tmp_path / "other"))
    code, _, _ = fedcanon("path", *quick, "--kappas", "1e-4:1e-2:3", *folder)
    assert code == 0
    shares = [float(row["sparsity"]) for row in rows(tmp_path / "other")]
    assert shares == sorted(shares)
    assert shares[-1] > 0.5
    code, _, err = fedcanon("path", *quick)
    assert code == 2
    assert "give --kappas from small to large" in err


@pytest.mark.slow
def test_statistics_of_normalisation_are_part_of_a_start(tmp_path):
    settings = ["data={name='synthetic', d=12, partition='iid'}", "clients.count=3", "rounds=2"]
    settings += ["model.name=tests.search.test_path:normalised", "penalty.name=l1"]
    config = load_config(settings=settings)
    starts = []

    class Watching(Unwatched):
        def begin(self, federation, rounds):
            starts.append((federation.server["z"], federation.engine.buffers))

    search = PathSearch(config, Selection("sparsity"), (1e-3, 1e-2))
    path = follow(search, tmp_path / "path", lambda number, count: Watching())
    assert torch.equal(starts[1][0], path.parameters(0).vector)
    assert torch.equal(starts[1][1], path.parameters(0).buffers)
    assert not torch.equal(starts[0][1], starts[1][1])


def normalised(shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], classes), torch.nn.BatchNorm1d(classes))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kappas", "0.1:0.01"], "--kappas takes first:last:count"),
        (["--kappas", "0.1:0:5"], "--kappas takes first:last:count"),
        (["--kappas", "inf:0.01:3"], "--kappas takes first:last:count"),
        (["--kappas", "1e300:1:3"], "L1 needs a kappa of at most 1e+30, not 1e+300"),
        (["--kappas", "0.1:0.01:1"], "--kappas takes first:last:count"),
        (["--kappas", "0.1:0.01:2.5"], "--kappas takes first:last:count"),
        (["--select", "aic"], "--select takes validation, bic or sparsity:0.9"),
        (["--select", "sparsity"], "--select takes validation, bic or sparsity:0.9"),
        (["--select", "sparsity:2"], "--select takes validation, bic or sparsity:0.9"),
        (["--set", "penalty.name=box"], "a path needs a penalty with one kappa"),
        (["--set", "penalty={name='sum', terms=[]}"], "not a sum or one per layer"),
        (["--set", "penalty.nme=l1"], "unknown key 'penalty.nme'"),
        (["--set", "penalty.name=l11"], "there is no penalty called 'l11'"),
        (["--set", "algorithm.bta=1"], "unknown key 'algorithm.bta'"),
        (
            ["--set", "penalty.name=mcp", "--set", "algorithm.alpha=4.0", "--kappas", "10:1:3"],
            "MCP is ρ-weakly convex",
        ),
        (["--plot", "absent/path.png"], "cannot write the picture"),
        (["absent.toml"], "cannot read absent.toml"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_get_one_sentence_and_leave_nothing(fedcanon, tmp_path, arguments, expected):
    folder = tmp_path / "path"
    code, _, err = fedcanon("path", *SHORT, *arguments, "--folder", str(folder))
    assert code == 2
    assert expected in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_sparsity_that_no_model_has(fedcanon, tmp_path):
    kappas = ("--kappas", "1e-3:1e-4:2", "--select", "sparsity:0.99")
    code, _, err = fedcanon("path", *SHORT, *kappas, "--folder", str(tmp_path / "path"))
    assert code == 2
    assert "no model of the path has 99.0% zeros" in err


def test_parsing():
    assert parse_kappas("1:0.01:3") == pytest.approx((1, 0.1, 0.01))
    assert parse_selection("sparsity:1") == Selection("sparsity", 1.0)


def test_a_private_path_is_refused(tmp_path):
    privacy = {"level": "record", "epsilon": 3.0, "clip": 1.0}
    config = changed(load_config(settings=LASSO), {"privacy": privacy})
    with pytest.raises(FedcanonError, match="each would spend the privacy budget"):
        follow(PathSearch(config, Selection("bic"), (0.1, 0.01)), tmp_path / "path", unwatched)
