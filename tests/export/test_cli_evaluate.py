"""``fedcanon evaluate`` as a user types it."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from fedcanon.data import Split, from_arrays
from fedcanon.export.evaluation import evaluate
from fedcanon.runs.training import load, train


def table(path, classes, rows=60, features=3, seed=0):
    """A table whose classes can be told apart by the first column."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    frame = pd.DataFrame(rng.normal(size=(rows, features)), columns=[*"abcdefgh"][:features])
    frame["a"] += 6 * labels
    frame.assign(label=labels).to_csv(path, index=False)


@pytest.fixture(scope="session")
def table_run(tmp_path_factory):
    """A linear model of a table with three classes."""
    folder = tmp_path_factory.mktemp("table")
    table(folder / "train.csv", 3)
    data = {"name": "table", "path": str(folder / "train.csv"), "label": "label"}
    data["partition"] = "iid"
    run = folder / "run"
    train(rounds=40, data=data, clients={"count": 2}, model="linear", folder=run)
    return run


def figures(out):
    """Loss and accuracy as printed."""
    line = next(line for line in out.splitlines() if line.startswith("loss"))
    loss, accuracy = line.replace("loss", "").split("· accuracy")
    return float(loss), float(accuracy)


@pytest.mark.slow
def test_the_test_split_of_the_run_gives_the_run_s_last_measures(fedcanon, sparse_run):
    code, out, err = fedcanon("evaluate", str(sparse_run))
    assert (code, err) == (0, "")
    last = load(sparse_run).last.test
    assert figures(out) == pytest.approx((last["test_loss"], last["accuracy"]), abs=1e-4)
    rows = [line.split() for line in out.splitlines()[4:]]
    assert [int(row[0]) for row in rows] == list(range(10))
    assert sum(int(row[1]) for row in rows) == 360
    right = sum(int(row[1]) * float(row[2].rstrip("%")) / 100 for row in rows)
    assert right / 360 == pytest.approx(last["accuracy"], abs=1e-3)


def test_logistic_regression_is_evaluated_as_in_training(fedcanon, tmp_path):
    run = tmp_path / "logistic"
    train(rounds=3, model="logistic", data="breast_cancer", folder=run)
    _, out, _ = fedcanon("evaluate", str(run))
    assert figures(out)[1] == pytest.approx(load(run).last.test["accuracy"], abs=1e-4)


def test_new_rows_are_scaled_like_the_rows_of_training(fedcanon, table_run, tmp_path):
    table(tmp_path / "new.csv", 3, rows=30, seed=1)
    code, out, _ = fedcanon("evaluate", str(table_run), "--set", f"data.test={tmp_path}/new.csv")
    assert code == 0
    assert "30 test samples" in out
    assert figures(out)[1] > 0.8


def test_another_dataset_of_the_same_shape(fedcanon, table_run, tmp_path):
    table(tmp_path / "other.csv", 3, rows=50, seed=2)
    options = ["--set", f"data.path={tmp_path}/other.csv", "--set", "data.label=label"]
    code, out, _ = fedcanon("evaluate", str(table_run), "--data", "table", *options)
    assert code == 0
    assert "on other · 10 test samples" in out


@pytest.mark.slow
def test_images_of_one_s_own(fedcanon, tmp_path):
    def pictures(folder, size):
        for label in ("dark", "light"):
            (folder / label).mkdir(parents=True)
            for number in range(10):
                grey = np.full((size, size), 20 * number * (label == "light"), dtype=np.uint8)
                Image.fromarray(grey).save(folder / label / f"{number}.png")

    pictures(tmp_path / "photos", 4)
    pictures(tmp_path / "larger", 5)
    data = {"name": "images", "folder": str(tmp_path / "photos"), "partition": "iid"}
    run = tmp_path / "run"
    train(rounds=1, data=data, clients={"count": 2}, model="cnn", folder=run)
    assert fedcanon("evaluate", str(run))[0] == 0
    code, _, err = fedcanon("evaluate", str(run), "--set", f"data.folder={tmp_path / 'larger'}")
    assert code == 2
    assert "larger has inputs of shape 1×5×5, but the run run was trained on 1×4×4." in err


def test_a_dataset_from_python_is_not_mistaken_for_the_default_one(fedcanon, tmp_path):
    rng = np.random.default_rng(0)
    samples = from_arrays((rng.normal(size=(400, 64)), np.arange(400) % 10), name="mine (old)")
    run = tmp_path / "arrays"
    train(rounds=1, dataset=samples, model="linear", data={"partition": "iid"}, folder=run)
    code, _, err = fedcanon("evaluate", str(run))
    assert code == 2
    assert "was trained on mine (old)" in err
    assert fedcanon("evaluate", str(run), "--data", "digits")[0] == 0


@pytest.mark.parametrize("classes", [2, 10, 62, 200])
def test_any_number_of_classes_fits_a_terminal(fedcanon, tmp_path, monkeypatch, classes):
    rng = np.random.default_rng(0)
    labels = np.arange(5 * classes) % classes
    samples = from_arrays((rng.normal(size=(len(labels), 2)), labels), name="many")
    run, source = tmp_path / "many", {"count": 2}
    train(rounds=1, dataset=samples, model="linear", clients=source, folder=run)
    monkeypatch.setattr("fedcanon.runs.named.make_dataset", lambda table: samples)
    code, out, _ = fedcanon("evaluate", str(run))
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 75
    shown = {word for line in lines[4:] for word in line.split()[::3]}
    assert shown == {str(label) for label in range(classes)}


def test_classes_without_samples_are_shown_as_such():
    split = Split(torch.eye(3)[[0, 2, 2]], torch.tensor([0, 2, 0]))
    found = evaluate(_scorer(), split, 3)
    assert found.samples.tolist() == [2, 0, 1]
    assert found.correct.tolist() == [1, 0, 1]
    assert found.accuracy == pytest.approx(2 / 3)


def _scorer():
    """A network that returns its inputs."""
    layer = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
    return layer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "breast_cancer"), "has inputs of shape 30, but the run"),
        (("--data", "digit"), "did you mean 'digits'?"),
        (("--set", "rounds=3"), "--set takes an option of the dataset here"),
        (("--set", "data.name=mnist"), "--data names another dataset"),
        (("--set", "data.partition=iid"), "--set takes an option of the dataset here"),
        (("--set", "data.colour=red"), "has no options"),
        (("--data", "table", "--set", "data.path=absent.csv"), "needs a value for 'label'"),
    ],
)
def test_mistakes_end_with_a_message_and_code_two(fedcanon, sparse_run, arguments, message):
    code, _, err = fedcanon("evaluate", str(sparse_run), *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_another_number_of_classes_is_refused(fedcanon, table_run, tmp_path):
    table(tmp_path / "two.csv", 2)
    code, _, err = fedcanon("evaluate", str(table_run), "--set", f"data.path={tmp_path}/two.csv")
    assert code == 2
    assert "two has 2 classes, but the run run was trained on 3." in err


def test_a_run_that_is_not_finished_is_refused(fedcanon, sparse_run, tmp_path):
    (tmp_path / "config.toml").write_bytes((sparse_run / "config.toml").read_bytes())
    for command in ("evaluate", "export"):
        code, _, err = fedcanon(command, str(tmp_path))
        assert code == 2
        assert "is not finished" in err


def test_a_run_on_a_relative_path_is_evaluated_from_another_folder(fedcanon, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    table(tmp_path / "here" / "train.csv", 3)
    table(tmp_path / "here" / "new.csv", 3, seed=1)
    monkeypatch.chdir(tmp_path / "here")
    data = {"name": "table", "path": "train.csv", "test": "new.csv", "label": "label"}
    settings = {"data": {**data, "partition": "iid"}, "clients": {"count": 2}}
    train(settings, rounds=2, model="linear", folder="run")
    monkeypatch.chdir(tmp_path / "there")
    code, out, err = fedcanon("evaluate", "../here/run")
    assert (code, err) == (0, "")
    assert figures(out)[1] == pytest.approx(load("../here/run").last.test["accuracy"], abs=1e-4)
