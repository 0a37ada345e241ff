"""What a page says, before it is drawn."""

import math

import pytest

from fedcanon import FedcanonError
from fedcanon.report.page import check_target, serving, write_report
from fedcanon.report.page.curves import POINTS, panels
from fedcanon.report.page.groups import Group, grouped
from fedcanon.report.page.html import content
from fedcanon.report.page.provenance import differences
from fedcanon.report.page.reading import read_run
from fedcanon.report.page.results import notes, results
from fedcanon.report.wording import byte_count, described, duration, mean_and_deviation, written
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.plots import plot_histories, save
from fedcanon.runs.training import train


def small(path, **settings):
    train(rounds=2, model="linear", folder=path, **settings)
    return read_run(RunFolder(path))


@pytest.mark.slow
def test_runs_that_differ_in_their_seed_only_are_grouped(runs):
    groups = grouped([read_run(run) for run in runs.values()])
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("fedcanon+", 3),
        ("scaffold", 3),
    ]


def test_labels_say_no_more_than_it_takes_to_tell_groups_apart(tmp_path):
    l1 = {"name": "l1", "kappa": 1e-3}
    found = [
        small(tmp_path / "a"),
        small(tmp_path / "b", penalty=l1),
        small(tmp_path / "c", penalty=l1, batch_size=16),
        small(tmp_path / "d", algorithm="fedavg", penalty=l1),
    ]
    groups = grouped(found)
    assert [group.label for group in groups] == [
        "fedcanon+ · mcp",
        "fedcanon+ · l1 · batch_size = 32",
        "fedcanon+ · l1 · batch_size = 16",
        "fedavg",
    ]
    shown = differences(groups)
    assert shown["batch_size"] == ["32", "32", "16", "32"]
    assert shown["penalty.kappa"] == ["0.0015", "0.001", "0.001", "0.001"]
    assert shown["penalty.gamma"] == ["3", "–", "–", "–"]
    assert not {"rounds", "model.name", "seed"} & shown.keys()


def test_means_leave_out_what_is_not_finished(runs, interrupted):
    finished = [read_run(runs[f"fedcanon+-{seed}"]) for seed in (0, 1)]
    crashed = read_run(interrupted)
    (group,) = grouped([*finished, crashed])
    assert group.measured == finished
    (row,) = results([group])
    assert (row.runs, row.cells["rounds"]) == (2, ("12", ""))
    assert notes([group]) == [
        "Not finished: crashed (interrupted, 4 of 12 rounds), left out of the means."
    ]
    alone = Group("", [crashed])
    assert results([alone])[0].cells["rounds"] == ("4", "")


def test_a_run_without_measures_has_a_page(tmp_path, interrupted):
    (tmp_path / "new").mkdir()
    for name in ("config.toml", "environment.json"):
        (tmp_path / "new" / name).write_bytes((interrupted.path / name).read_bytes())
    shown = content([read_run(RunFolder(tmp_path / "new"))])
    assert "waiting for the first measures" in shown["top"]
    assert shown["charts"]["panels"] == []


def test_long_histories_are_thinned_to_their_ends(runs, tmp_path):
    run = read_run(runs["fedcanon+-0"])
    first = run.records[0]
    many = [type(first)(**{**vars(first), "round": t, "loss": 1 / (t + 1)}) for t in range(5000)]
    many[0] = type(first)(**{**vars(first), "objective": math.inf})  # outside a constraint
    found = {panel["name"]: panel for panel in panels([Group("", [_with(run, many)])])}
    (curve,) = found["loss"]["curves"]
    assert len(curve["mean"]) == POINTS
    assert (curve["rounds"][0], curve["rounds"][-1]) == (0, 4999)
    assert found["loss"]["log"]
    assert found["objective"]["curves"][0]["mean"][0] is None
    assert not found["accuracy"]["log"]


def _with(run, records):
    return type(run)(**{**vars(run), "records": records})


LAYERS = "l1(kappa = 2) on a.*; zero on b"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1.23456789, "1.23457"),
        (True, "yes"),
        (None, "–"),
        ([], "none"),
        ({"name": "l1", "kappa": 0.5}, "l1(kappa = 0.5)"),
        ([{"match": "a.*", "name": "l1", "kappa": 2}, {"match": "b", "name": "zero"}], LAYERS),
        ({"schedule": "step", "start": 0.1}, "step(start = 0.1)"),
        ({"name": "sum", "terms": [{"name": "l1"}, 3]}, "sum(terms = l1; 3)"),
        ([0.5] * 9, "9 values"),
    ],
)
def test_settings_are_written_as_they_are_read(value, expected):
    assert written(value) == expected


def test_tables_are_described_by_name_and_settings():
    method = {"name": "fedcanon+", "alpha": "beta*K", "beta": {"schedule": "step", "start": 1.0}}
    assert described(method) == "fedcanon+: alpha = βK, beta = step(start = 1)"
    layers = [{"match": "a.*", "name": "l1", "kappa": 2}, {"match": "b", "name": "zero"}]
    assert described({"layers": layers}) == LAYERS
    assert described({"name": "mlp"}) == "mlp"
    assert described({"kappa": 3}) == "kappa = 3"


def test_layers_and_schedules_are_part_of_the_head_of_a_page(tmp_path):
    penalty = {"layers": [{"match": "*.weight", "name": "scad"}]}
    beta = {"schedule": "inverse", "start": 0.1, "period": 40}
    method = {"name": "fedcanon+", "beta": beta, "local_steps": 2}
    compression = {"name": "quantise", "bits": 8}
    run = small(tmp_path / "a", penalty=penalty, algorithm=method, compression=compression)
    top = content([run])["top"]
    assert "scad(kappa = 0.001, A = 3.7, form = scaled) on *.weight" in top
    assert "alpha = βK" in top
    assert "beta = inverse(start = 0.1, period = 40)" in top
    assert "uploads through quantise: bits = 8, bucket = 256" in top
    two = [small(tmp_path / "c", penalty=penalty), small(tmp_path / "d")]
    assert [group.label for group in grouped(two)] == ["fedcanon+ · layers", "fedcanon+ · mcp"]
    other = small(tmp_path / "b", penalty={"layers": [{"match": "*.weight", "name": "l1"}]})
    assert "l1(kappa = 0.001) on *.weight" in content([run, other])["bottom"]


def test_numbers_are_written_for_people():
    assert [byte_count(n) for n in (12, 3400, 5.6e6, 7e9, 8e15)] == [
        "12 B",
        "3.4 kB",
        "5.6 MB",
        "7 GB",
        "8e+03 TB",
    ]
    assert [duration(s) for s in (3.2, 150, 9000)] == ["3 s", "2 min", "2.5 h"]
    assert mean_and_deviation([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert mean_and_deviation([5.0]) == (5.0, 0.0)
    assert mean_and_deviation([1.0, math.inf]) == (math.inf, 0.0)
    assert mean_and_deviation([1e308, -1e308]) == (0.0, math.inf)


def test_paths_may_be_text(runs, tmp_path):
    page, picture = f"{tmp_path}/r.html", f"{tmp_path}/p.png"
    check_target(page)
    write_report([runs["scaffold-0"]], page)
    save(plot_histories({"": runs["scaffold-0"].records()}, "title"), picture)
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "p.png"}
    with serving(str(runs["scaffold-0"].path)) as address:
        assert address.startswith("http://127.0.0.1:")
    for wrong in (f"{tmp_path}/p.xyz", f"{tmp_path}/absent/p.png"):
        with pytest.raises(FedcanonError, match="cannot write the picture"):
            save(plot_histories({"": runs["scaffold-0"].records()}, "title"), wrong)
