"""The command line as a user types it."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fedcanon import build, fit, load_config
from fedcanon.report.page.head import facts_of
from fedcanon.runs.check import check_config

SHORT = ["--set", "rounds=3", "--set", "model.name=linear"]


def test_run_prints_a_summary_that_fits_a_terminal(fedcanon):
    code, out, _ = fedcanon("run", *SHORT)
    assert code == 0
    for expected in ("3 (all rounds done)", "test accuracy", "exact zeros", "3 server, 0 clients"):
        assert expected in out
    assert max(map(len, out.splitlines())) <= 80


def test_layers_and_schedules_are_described_alike_in_terminal_and_report(fedcanon, tmp_path):
    example = str(Path(__file__).parents[1] / "examples" / "sparse_digits.toml")
    run, page = tmp_path / "run", tmp_path / "r.html"
    code, out, _ = fedcanon("run", example, "--set", "rounds=1", "--folder", str(run))
    assert code == 0
    _, shown, _ = fedcanon("show", str(run))
    assert fedcanon("report", str(run), "-o", str(page))[0] == 0
    texts = [" ".join(text.split()) for text in (out, shown, page.read_text())]
    for words in (
        "scad(kappa = 0.002, A = 3.7, form = scaled) on [13].weight",
        "alpha = βK",
        "beta = inverse(start = 0.1, period = 40)",
    ):
        assert [words in text for text in texts] == [True] * 3


def test_random_changes_of_images_are_in_the_headers():
    config = load_config(settings=['data.augment=["crop", "flip"]'])
    assert "dirichlet:0.2, augmented by crop; flip" in facts_of(config, None)["data"]


@pytest.mark.slow
def test_run_writes_a_picture(fedcanon, tmp_path):
    code, _, _ = fedcanon("run", *SHORT, "--plot", str(tmp_path / "run.png"))
    assert code == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    for bad in ("absent/run.png", "run.xyz", "run"):
        code, out, err = fedcanon("run", *SHORT, "--plot", str(tmp_path / bad))
        assert code == 2
        assert "cannot write the picture" in err
        assert not out  # nothing was trained first


def test_run_says_how_clients_are_weighed(fedcanon):
    for weights, words in (("uniform", "10 clients of equal weight"), ("samples", "by samples")):
        _, out, _ = fedcanon("run", *SHORT, "--set", f"clients.weights={weights}")
        assert words in " ".join(out.split())


def test_a_warning_is_one_sentence(fedcanon, monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # and back afterwards
    fedcanon("--version")
    assert warnings.formatwarning("look here.", UserWarning, "a.py", 1) == "warning: look here.\n"


def test_a_method_that_ignores_the_penalty_says_so(fedcanon):
    _, out, _ = fedcanon("run", *SHORT, "--set", "algorithm.name=fedavg")
    assert "FedAvg minimises f alone" in out


def test_check_tells_what_holds_and_what_would_mend_the_rest(fedcanon):
    linear = ("--set", "data.name=breast_cancer", "--set", "model.name=logistic")
    plain = ("--set", "algorithm.name=fedcanon", "--set", "penalty.name=l1")
    code, out, _ = fedcanon("check", *linear, *plain)
    assert code == 0
    assert "L ≈" in out
    assert "Theorem 1" in out
    assert "Theorem 2" not in out
    assert "or less" in out
    assert "Steps are automatic: a run that diverges goes back" in out
    code, out, _ = fedcanon("check", *linear, *plain, "--set", "algorithm.beta=1e-6", "--mu", "0.1")
    assert code == 0
    assert "or less" not in out
    assert "Theorem 2" in out
    assert "diverges" not in out
    _, out, _ = fedcanon("check", *linear, *plain, "--set", "algorithm.beta=100.0")
    assert "Steps that are given are obeyed, also by a run that diverges." in out
    assert fedcanon("check", "--mu", "0")[0] == 2
    code, out, _ = fedcanon("check", *linear, "--set", "algorithm.alpha=1e5")
    assert code == 1
    assert "✗" in out


def test_check_says_which_part_of_large_data_it_looked_at(fedcanon):
    many = ("--set", "data.name=synthetic", "--set", "data.clients=30", "--set", "clients.count=30")
    users = ("--set", "data.partition=users")
    code, out, err = fedcanon("check", *many, *users, "--set", "algorithm.beta=0.1")
    assert code == 0, err
    assert "with up to 512 samples of each of 10 of 30 clients" in " ".join(out.split())


def test_ctrl_c_is_no_error(fedcanon, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedcanon.runs.config.load_config", interrupted)
    assert fedcanon("check") == (130, "", "stopped before the end.\n")


def test_the_remedy_that_check_names_meets_the_conditions():
    settings = ["data.name=breast_cancer", "model.name=logistic", "algorithm.name=fedcanon"]
    settings += ["penalty={name='mcp', kappa=10.0, gamma=1.0}", "algorithm.alpha=3.0"]
    report = check_config(load_config(settings=settings))
    assert set(report.remedy) == {"alpha", "beta"}
    mended = [f"algorithm.{name}={value!r}" for name, value in report.remedy.items()]
    again = check_config(load_config(settings=[*settings, *mended]))
    assert all(condition.holds for condition in again.conditions)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("algorithms", ["fedcanon+", "fedcanon2", "fedavg", "pgd"]),
        ("penalties", ["mcp", "scad", "group_lasso", "nuclear", "cardinality"]),
        ("datasets", ["digits", "breast_cancer", "a9a"]),
        ("models", ["logistic", "linear", "mlp"]),
    ],
)
def test_list(fedcanon, kind, names):
    code, out, _ = fedcanon("list", kind)
    assert code == 0
    assert all(name in out for name in names)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "absent.toml"),
        ("run", "--set", "algorithm.bta=1"),
        ("run", "--set", "algorithm.beta=1e30"),
        ("run", "--set", "rounds=0"),
        ("check", "--set", "penalty.name=mpc"),
        ("list", "everything"),
        ("fly",),
    ],
)
def test_mistakes_end_with_a_message_and_code_two(fedcanon, arguments):
    code, _, err = fedcanon(*arguments)
    assert code == 2
    assert err
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_installed_command_itself():
    command = [sys.executable, "-m", "fedcanon", "run", "--set", "algorithm.alpha=1e9"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    *progress, sentence = finished.stderr.splitlines()
    assert sentence.startswith("error: MCP is ρ-weakly convex")
    assert all(line.endswith("so far)") for line in progress)  # on a slow machine


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_run_is_accurate_and_sparse(seed):
    config = load_config(settings=[f"seed={seed}", "evaluate.every=1000"])
    last = fit(build(config), config.rounds, evaluate_every=config.rounds).last
    assert last.test["accuracy"] >= 0.92
    assert last.sparsity >= 0.70
