"""The names of a table's columns, classes and sites go with a run, to wherever it is shown."""

import json

import numpy as np
import pandas as pd
import pytest

from fedcanon import FedcanonError, train
from fedcanon.data import from_table
from fedcanon.privacy import ClientPrivacy, RecordPrivacy
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.privacy import public_summary

CLIENTS = ClientPrivacy(clip=0.5, noise=2.0, delta=1e-5)
RECORDS = RecordPrivacy(clip=1.0, noise=1.0, delta=1e-5, steps=3)
SITES = ["east", "north", "west"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    age, sex = rng.normal(60, 10, 120), rng.choice(["f", "m"], 120)
    return pd.DataFrame(
        {
            "id": [f"patient-{k}" for k in range(120)],
            "age": age,
            "sex": sex,
            "site": rng.permutation(SITES * 40),
            "result": np.where(age + 5 * (sex == "f") > 62, "ill", "well"),
        }
    )


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    table.to_csv(folder / "sites.csv", index=False)
    data = {"name": "table", "path": str(folder / "sites.csv"), "label": "result"}
    data |= {"client": "site", "drop": ["id"], "partition": "users"}
    train(rounds=3, data=data, clients={"count": 3}, model="linear", folder=folder / "run")
    return folder / "run"


def test_the_folder_keeps_names_means_and_deviations(run, table):
    data = RunFolder(run).data
    assert data.features == ["age", "sex=f", "sex=m"]
    assert data.class_names == ["ill", "well"]
    assert data.client_names == SITES
    path = run.parent / "sites.csv"
    dataset = from_table(path, "result", client="site", drop=("id",))
    ages = dataset.train.inputs[:, 0] * data.deviations[0] + data.means[0]
    assert set(np.round(ages.numpy(), 3)) <= set(np.round(table["age"].to_numpy("float32"), 3))
    assert (data.means[1:], data.deviations[1:]) == ([0, 0], [1, 1])


@pytest.mark.slow
def test_reports_evaluation_and_export_show_them(fedcanon, run, tmp_path):
    _, shown, _ = fedcanon("show", str(run))
    assert "2 classes (ill; well)" in " ".join(shown.split())
    assert "sex=f, sex=m" in " ".join(shown.split())
    page = tmp_path / "report.html"
    assert fedcanon("report", str(run), "-o", str(page))[0] == 0
    text = page.read_text(encoding="utf-8")
    assert "age (" in text
    assert '"clients": ["east", "north", "west"]' in text.replace('":[', '": [').replace(
        '","', '", "'
    )
    _, out, _ = fedcanon("evaluate", str(run))
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["ill", "well"]
    code, out, err = fedcanon(
        "export", str(run), "--format", "onnx", "--folder", str(tmp_path / "e")
    )
    assert code == 0, err
    told = json.loads((tmp_path / "e" / "inputs.json").read_text())
    data = RunFolder(run).data
    assert told == {
        "features": data.features,
        "means": data.means,
        "deviations": data.deviations,
        "class_names": ["ill", "well"],
    }
    options = [f"path={run.parent / 'sites.csv'}", "label=result", "client=site", 'drop=["id"]']
    settings = [word for option in options for word in ("--set", f"data.{option}")]
    _, out, _ = fedcanon("data", "table", *settings, "--partition", "users", "--clients", "3")
    first = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert [word for word in first if word in SITES] == SITES


def test_a_private_run_tells_none_of_them(run):
    known = RunFolder(run).data
    for privacy in (CLIENTS, RECORDS):
        found = public_summary(known, privacy)
        assert not any([found.features, found.means, found.deviations])
        assert not any([found.class_names, found.client_names, found.label_counts])
    assert public_summary(known, None) == known


def test_names_that_do_not_fit_are_refused(run, tmp_path):
    content = json.loads((run / "data.json").read_text())
    other = RunFolder(tmp_path)
    for key, value in (("features", ["age"]), ("class_names", ["a"]), ("client_names", ["a"])):
        (tmp_path / "data.json").write_text(json.dumps(content | {key: value}))
        with pytest.raises(FedcanonError, match=r"data\.json is damaged"):
            _ = other.data


def test_columns_are_chosen_or_dropped(table, tmp_path):
    path = tmp_path / "t.csv"
    table.assign(empty=np.nan).to_csv(path, index=False)
    assert from_table(path, "result", columns=("age",)).names.features == ("age",)
    dropped = from_table(path, "result", drop=("id", "empty", "site"))
    assert dropped.names.features == ("age", "sex=f", "sex=m")
    for options, message in (
        ({"columns": ("agge",)}, "has no column 'agge'"),
        ({"drop": ("x",)}, "has no column 'x'"),
        ({"drop": ("result",)}, "'result' cannot be left out"),
        ({"columns": ("age",), "drop": ("age",)}, "'age' cannot be left out"),
        ({}, "the column 'empty' of the training table lacks 120 values"),
    ):
        with pytest.raises(FedcanonError, match=message):
            from_table(path, "result", **options)


def test_a_quantity_is_not_taken_for_classes(tmp_path):
    path = tmp_path / "t.csv"
    numbers = np.arange(200)
    pd.DataFrame({"x": numbers, "few": numbers % 3, "days": numbers % 50}).to_csv(path, index=False)
    assert from_table(path, "few").names.classes == ("0", "1", "2")
    with pytest.raises(FedcanonError, match="'days' holds numbers with 50 different values"):
        from_table(path, "days")
    assert from_table(path, "days", numeric_classes=True).classes == 50
