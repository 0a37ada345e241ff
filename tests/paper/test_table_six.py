"""Table VI: rows that are kept, shown while others run, and taken only where they fit."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedcanon.errors import FedcanonError
from fedcanon.paper import accuracy, kept_rows
from fedcanon.paper.outcome import Scale, markdown
from fedcanon.paper.trials import Trainer, Training
from fedcanon.paper.tuning import Shape, Trained

RESULTS = Path(__file__).parents[2] / "docs" / "paper" / "laptop"


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_table_six_on_femnist(outcome):
    found = outcome("accuracy")
    assert "300 of 3,550 writers" in found.title
    shown = [row for row in found.tables[0].rows if row[0] != "  the paper"]
    assert len(shown) - 1 == len(accuracy.ROWS) == 14  # the row that is run has two
    assert sum(row[1] == "not run" for row in shown) == 13
    assert len(found.tables[0].rows) - len(shown) == 14  # the paper's own numbers, for every row
    for shape in ("constant", "cosine"):
        by_method = found.data[f"{shape} steps"]["FEMNIST CNN Dir(0.2)"]
        assert set(by_method) == set(accuracy.METHODS)
        for numbers in by_method.values():
            assert len(numbers["accuracies"]) == 2
            for accuracies, curve in zip(
                numbers["accuracies"], numbers["round, accuracy"], strict=True
            ):
                assert [t for t, _ in curve] == [0, 1, 2]
                assert curve[-1][1] == accuracies
    constant, cosine = found.figure.axes
    assert constant.get_title() == "(a) FEMNIST CNN Dir(0.2), constant"
    assert cosine.get_title() == "(b) FEMNIST CNN Dir(0.2), cosine"


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_files_carry_a_row_of_table_six_to_another_machine(outcome, monkeypatch, tmp_path):
    found = outcome("accuracy")
    # Neither trainings nor data are needed there.
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    constant, cosine = (
        tmp_path / "rows" / f"femnist-cnn-dir0.2-{shape}.json" for shape in ("constant", "cosine")
    )
    [again] = accuracy.run(Scale.smoke, Trainer(tmp_path / "no runs"))
    assert markdown(again) == markdown(found)
    assert (again.settings, again.data) == (found.settings, found.data)
    with pytest.raises(FedcanonError, match="femnist"):
        [*accuracy.run(Scale.smoke, Trainer(tmp_path / "elsewhere" / "runs"))]
    constant.write_text(constant.read_text(encoding="utf-8")[:100], encoding="utf-8")
    with pytest.raises(FedcanonError, match=r"dir0\.2-constant\.json is damaged .*: remove it"):
        [*accuracy.run(Scale.smoke, Trainer(tmp_path / "no runs"))]
    assert cosine.is_file()


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_table_six_shows_what_it_has_while_it_runs(tmp_path):
    run = accuracy.run(Scale.smoke, Trainer(tmp_path / "runs"))
    first = next(run)
    shown = {label: cells for label, *cells in first.tables[0].rows}
    assert shown["FEMNIST CNN Dir(0.2), cosine"][0] == "not run"
    assert shown["FEMNIST CNN Dir(0.2), constant"][0] != "not run"
    assert [claim.best for claim in first.claims] == [None]
    assert len(first.figure.axes) == 1


def test_the_rows_of_the_page_are_those_of_todays_settings(tmp_path):
    shutil.copytree(RESULTS / "rows", tmp_path / "rows")
    found = next(accuracy.run(Scale.laptop, Trainer(tmp_path / "runs")))
    assert markdown(found) == (RESULTS / "accuracy.md").read_text(encoding="utf-8")


def test_the_parts_of_a_row_are_of_the_same_data(tmp_path):
    shutil.copytree(RESULTS / "rows", tmp_path / "rows")
    file = tmp_path / "rows" / "cifar10-cnn-iid-cosine.json"
    file.write_text(file.read_text().replace('"note":""', '"note":"subset: 9 of 10"'))
    told = r"different data .*\(all samples, and subset: 9 of 10\): remove rows/cifar10-cnn-iid-"
    with pytest.raises(FedcanonError, match=told):
        next(accuracy.run(Scale.laptop, Trainer(tmp_path / "runs")))


def test_what_is_suggested_of_curves_that_are_short_and_whole():
    def trained(*diverged):
        law = {t: 0.8 - 0.9 * max(t, 1) ** -0.4 for t in range(0, 51, 5)}
        records = [kept_rows._record(t, accuracy) for t, accuracy in law.items()]
        return Trained({}, [Training(records, text) for text in diverged], [], 1)

    plan, short, long = accuracy.PLANS[Scale.laptop], accuracy.ROWS[6], accuracy.ROWS[0]
    whole = dict.fromkeys(accuracy.METHODS, trained("", ""))
    found = {**whole, "FedDR": trained("", "in round 50")}
    [table] = accuracy._suggestions(plan, {short: found, long: whole})
    [(label, *cells)] = table.rows
    assert label == short.label
    at_200 = f"{80 - 90 * 200**-0.4:.0f}"
    assert dict(zip(accuracy.METHODS, cells, strict=True)) == {
        method: "–" if method == "FedDR" else at_200 for method in accuracy.METHODS
    }
    assert not [*accuracy._suggestions(plan, {long: whole})]


def test_a_row_that_was_run_with_other_settings_is_not_taken(monkeypatch, tmp_path):
    file = tmp_path / "rows" / "femnist-cnn-dir0.2-constant.json"
    plan, shape = accuracy.PLANS[Scale.smoke], Shape.constant
    lengths, [row] = plan.lengths["cnn"], plan.rows
    key = accuracy._key(lengths, row, shape)
    kept_rows.keep(file, key, "all of it", {})
    assert kept_rows.load(file, key, shape) == ("all of it", {})
    assert kept_rows.load(tmp_path / "absent.json", key, shape) is None
    longer = replace(plan, lengths={"cnn": replace(lengths, rounds=3)})
    monkeypatch.setitem(accuracy.PLANS, Scale.smoke, longer)
    with pytest.raises(FedcanonError, match="made with other settings than today's: remove it"):
        [*accuracy.run(Scale.smoke, Trainer(tmp_path / "runs"))]
    monkeypatch.setitem(accuracy.PLANS, Scale.smoke, plan)
    monkeypatch.setattr(accuracy, "METHODS", ("FedCanon",))
    with pytest.raises(FedcanonError, match="made with other settings"):
        [*accuracy.run(Scale.smoke, Trainer(tmp_path / "runs"))]


def test_the_rows_of_table_six_are_those_of_the_paper():
    laptop = accuracy.PLANS[Scale.laptop]
    assert [row.name for row in laptop.rows if row.model == "resnet18"] == [
        "cifar10-resnet18-iid",
        "cifar10-resnet18-dir0.2",
    ]
    for plan in accuracy.PLANS.values():
        for lengths in plan.lengths.values():  # all methods have as many trials
            for method in accuracy.METHODS:
                first, second = lengths.grid(method).values()
                assert len(first) * len(second) == lengths.trials
    assert accuracy.PLANS[Scale.paper].rows == accuracy.ROWS
    for row in accuracy.ROWS:  # FedCanon is printed in bold in every row
        assert row.paper["FedCanon"][0] == max(mean for mean, _ in row.paper.values())
