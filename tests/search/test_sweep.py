"""``fedcanon sweep`` as a user types it, with real worker processes."""

import csv
import json
import sys

import numpy as np
import pytest

from fedcanon.data import DATASETS
from fedcanon.export.evaluation import evaluate
from fedcanon.runs.config import load_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import load, train

SHORT = ("--set", "data.name=breast_cancer", "--set", "model.name=logistic", "--set", "rounds=3")


def rows(folder):
    with (folder / "trials.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_grid_runs_every_combination_for_every_seed(fedcanon, tmp_path):
    over = ["algorithm.beta=0.01,0.1", "algorithm.local_steps=1,5", "seed=0,1"]
    options = [word for key in over for word in ("--over", key)]
    code, out, _ = fedcanon("sweep", *options, *SHORT, "--folder", str(tmp_path / "grid"))
    assert code == 0
    assert max(map(len, out.splitlines()[:-1])) <= 80  # the last line is a path to copy
    assert (tmp_path / "grid" / "trials.png").read_bytes().startswith(b"\x89PNG")
    found = rows(tmp_path / "grid")
    settings = [(row["algorithm.beta"], row["algorithm.local_steps"]) for row in found]
    assert settings == [("0.01", "1"), ("0.01", "5"), ("0.1", "1"), ("0.1", "5")]
    runs = sorted(path.parent for path in (tmp_path / "grid").glob("*/result.json"))
    assert [run.name for run in runs] == [
        f"trial-{trial:04}-seed-{seed}" for trial in range(4) for seed in range(2)
    ]
    for row, (first, second) in zip(found, zip(runs[::2], runs[1::2], strict=True), strict=True):
        values = [RunFolder(run).result.measures["objective"] for run in (first, second)]
        assert [float(row["seed 0"]), float(row["seed 1"])] == values
        assert float(row["objective"]) == pytest.approx(np.mean(values), rel=1e-15)
        assert float(row["deviation"]) == pytest.approx(np.std(values, ddof=1), rel=1e-12)


@pytest.mark.slow
def test_a_run_of_a_sweep_is_the_run_alone(fedcanon, tmp_path):
    over = ("--over", "algorithm.name=fedcanon,fedavg", "--over", "seed=3")
    fedcanon("sweep", *over, *SHORT, "--folder", str(tmp_path / "s"))
    settings = [word for word in SHORT if word != "--set"]
    for number, name in enumerate(("fedcanon", "fedavg")):
        config = load_config(settings=[*settings, f"algorithm.name={name}", "seed=3"])
        run = RunFolder(tmp_path / "s" / f"trial-{number:04}-seed-3")
        assert run.result.measures["objective"] == train(config).last.objective


@pytest.mark.slow
def test_the_same_command_repeats_nothing(fedcanon, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCANON_RUNS", str(tmp_path))
    command = ("sweep", "--over", "algorithm.beta=0.01,0.1", *SHORT)
    _, first, _ = fedcanon(*command)
    (folder,) = tmp_path.glob("sweep-breast_cancer-logistic-*")
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trial-*/**/*")}
    code, second, _ = fedcanon(*command)
    assert code == 0
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in folder.glob("trial-*/**/*")} == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_a_diverging_trial_fails_alone(fedcanon, tmp_path):
    diverging = ("--over", "algorithm.beta=1e38,0.1", "--set", "algorithm.name=fedavg")
    code, out, _ = fedcanon("sweep", *diverging, *SHORT, "--folder", str(tmp_path / "s"))
    assert code == 0
    assert "1 of 2 trials failed; trial 0: " in out
    assert "diverged" in " ".join(out.split())
    found = rows(tmp_path / "s")
    assert [row["state"] for row in found] == ["failed", "finished"]
    assert not found[0]["objective"]
    assert "diverged" in found[0]["error"]
    folder = ("--folder", str(tmp_path / "all"))
    one = ("--over", "algorithm.beta=1e38", "--set", "algorithm.name=fedavg")
    code, out, _ = fedcanon("sweep", *one, *SHORT, *folder)
    assert code == 1
    assert "1 of 1 trials failed" in out


RANGE = ("--over", "algorithm.beta=1e-3:1:log", "--over", "algorithm.local_steps=1:8")


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_trials_follow_from_the_seed_however_often_a_sweep_is_interrupted(
    fedcanon, tmp_path, sampler
):
    def sweep(name, trials, *more):
        options = ("--sampler", sampler, "--trials", str(trials), "--workers", "1")
        code, _, _ = fedcanon(
            "sweep", *RANGE, *SHORT, *options, *more, "--folder", str(tmp_path / name)
        )
        assert code == 0
        return (tmp_path / name / "trials.csv").read_text(encoding="utf-8")

    whole = sweep("whole", 13)
    first = sweep("parts", 11)
    assert whole.startswith(first)
    assert sweep("parts", 13) == whole
    assert sweep("other", 2, "--set", "seed=1") != "\n".join(whole.splitlines()[:3])
    steps = {row["algorithm.local_steps"] for row in rows(tmp_path / "whole")}
    assert steps <= {str(k) for k in range(1, 9)}
    assert len(steps) > 1


@pytest.fixture
def noisy_table(tmp_path):
    """Forty features of which three matter and few samples: too little κ is as bad as too much."""
    rng = np.random.default_rng(0)
    for name, samples in (("train", 60), ("test", 400)):
        x = rng.standard_normal((samples, 40))
        y = x[:, :3].sum(1) + 0.5 * rng.standard_normal(samples) > 0
        head = ",".join([*(f"x{k}" for k in range(40)), "y"])
        table = np.column_stack([x, y])
        np.savetxt(tmp_path / f"{name}.csv", table, "%.6f", ",", header=head, comments="")
    return [f"data.path={tmp_path / 'train.csv'}", f"data.test={tmp_path / 'test.csv'}"]


@pytest.mark.slow
def test_tpe_finds_the_region_of_a_good_kappa(fedcanon, tmp_path, noisy_table):
    settings = ["data.name=table", "data.label=y", "data.partition=iid", *noisy_table]
    settings += ["clients.count=2", "model.name=linear", "penalty.name=l1", "batch_size=full"]
    settings += ["algorithm={name='fedcanon+', beta=0.5, local_steps=5}", "rounds=30"]
    settings += ["evaluate.every=30", "data.validation=0"]
    options = [word for setting in settings for word in ("--set", setting)]
    over = ("--over", "penalty.kappa=1e-5:10:log", "--minimise", "test_loss", "--trials", "25")
    code, _, err = fedcanon(
        "sweep", *over, *options, "--workers", "1", "--folder", str(tmp_path / "s")
    )
    assert code == 0, err
    found = [(float(row["penalty.kappa"]), float(row["test_loss"])) for row in rows(tmp_path / "s")]

    def loss_at(kappa):
        config = load_config(settings=[*settings, f"penalty.kappa={kappa}"])
        return train(config).last.test["test_loss"]

    scan = {kappa: loss_at(kappa) for kappa in np.geomspace(1e-4, 1, 13)}
    good = min(scan, key=scan.get)
    best, loss = min(found, key=lambda trial: trial[1])
    assert good / 4 < best < good * 4
    assert loss <= 1.01 * scan[good]
    assert scan[good] < 0.8 * min(loss_at(1e-5), loss_at(10.0))
    late = [kappa for kappa, _ in found[15:]]
    assert np.mean([good / 10 < kappa < good * 10 for kappa in late]) >= 0.7


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "say what to vary"),
        (["--over", "algorithm.bta=1,2"], "unknown key 'algorithm.bta': did you mean 'beta'?"),
        (["--over", "nothing=1,2"], "unknown key 'nothing'"),
        (["--over", "algorithm.beta=0.1,x"], "algorithm.beta = 'x'"),
        (["--over", "algorithm.name=fedavg,fedagv"], "did you mean 'fedavg'?"),
        (["--over", "penalty.kapa=1,2", "--maximise", "accuracy"], "unknown key 'penalty.kapa'"),
        (["--over", "penalty.kappa=1,2"], "f + h cannot be compared between penalties"),
        (["--over", "rounds=1,2", "--maximise", "acuracy"], "did you mean 'accuracy'?"),
        (["--over", "rounds=1,2", "--maximise", "test_loss"], "no measure called 'test_loss'"),
        (["--over", "rounds=1,2", "--maximise", "a", "--minimise", "b"], "a sweep has one goal"),
        (["--over", "rounds=1:9", "--sampler", "grid"], "a grid needs lists of values"),
        (["--over", "rounds=1,2", "--trials", "3"], "a grid runs every combination"),
        (["absent.toml", "--over", "rounds=1,2"], "cannot read absent.toml"),
        (["--over", "rounds=1,2", "--workers", "0"], "--workers"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_get_one_sentence_and_leave_nothing(fedcanon, tmp_path, arguments, expected):
    folder = tmp_path / "s"
    code, _, err = fedcanon("sweep", *arguments, *SHORT, "--folder", str(folder))
    assert code == 2
    assert expected in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_another_question_in_the_same_folder_is_refused(fedcanon, tmp_path):
    folder = ("--folder", str(tmp_path / "s"))
    fedcanon("sweep", "--over", "algorithm.beta=0.1", *SHORT, *folder)
    for change, expected in (
        (["--over", "algorithm.beta=0.1,0.2"], "over.algorithm.beta.texts was ['0.1'] and is"),
        (["--over", "algorithm.beta=0.1", "--set", "rounds=4"], "rounds was 3 and is 4"),
        (["--over", "algorithm.beta=0.1", "--over", "seed=0,1"], "seeds was [0] and is [0, 1]"),
        (["--over", "algorithm.beta=0.1", "--minimise", "loss"], "goal.measure was objective"),
    ):
        code, _, err = fedcanon("sweep", *SHORT, *change, *folder)
        assert code == 2
        assert "holds another search" in err
        assert expected in err
    assert len(list((tmp_path / "s").glob("trial-*"))) == 1
    other = tmp_path / "own"
    other.mkdir()
    (other / "notes.txt").write_text("mine", encoding="utf-8")
    code, _, err = fedcanon("sweep", "--over", "rounds=1", *SHORT, "--folder", str(other))
    assert code == 2
    assert "exists already and holds no search" in err
    assert json.loads((tmp_path / "s" / "search.json").read_text())["seeds"] == [0]


def test_a_sweep_without_optuna_says_what_to_install(fedcanon, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = fedcanon("sweep", "--over", "seed=0,1")
    assert code == 2
    assert 'pip install "fedcanon[sweep]"' in err


@pytest.mark.slow
def test_trials_are_judged_on_samples_that_no_client_trains_on(fedcanon, tmp_path):
    folder = tmp_path / "s"
    over = ("--over", "algorithm.beta=0.001,0.1", "--over", "seed=0,1", "--maximise", "accuracy")
    code, out, err = fedcanon("sweep", *over, *SHORT, "--folder", str(folder))
    assert code == 0, err
    assert "validation accuracy" in out
    best = max(rows(folder), key=lambda row: float(row["validation_accuracy"]))
    runs = sorted(folder.glob(f"trial-{int(best['trial']):04}-seed-*"))
    values = [RunFolder(run).result.measures["accuracy"] for run in runs]
    assert float(best["validation_accuracy"]) == pytest.approx(np.mean(values))
    test = DATASETS["breast_cancer"]().test
    tested = [evaluate(load(run).model, test, 2).accuracy for run in runs]
    assert values != tested
    told = f"trial {best['trial']}, chosen on 20% of each client's samples, has test accuracy "
    assert f"{told}{np.mean(tested):.4f} ± " in out


@pytest.mark.slow
def test_whoever_chooses_by_the_test_data_is_told(fedcanon, tmp_path):
    over = ("--over", "algorithm.beta=0.001,0.1", "--maximise", "accuracy")
    options = ("--set", "data.validation=0", "--folder", str(tmp_path / "s"))
    code, out, err = fedcanon("sweep", *over, *SHORT, *options)
    assert code == 0, err
    assert "was chosen by the test data" in out
    assert "accuracy" in rows(tmp_path / "s")[0]


@pytest.mark.slow
def test_trials_that_are_not_shown_are_counted(fedcanon, tmp_path):
    over = ("--over", "algorithm.beta=" + ",".join(f"{k / 100}" for k in range(1, 13)))
    code, out, err = fedcanon("sweep", *over, *SHORT, "--folder", str(tmp_path / "s"))
    assert code == 0, err
    assert "The best 10 of 12 trials; trials.csv has all." in out
