"""Every benchmark still runs; what it measures is for a quiet machine."""

import json
import re
from pathlib import Path

import pytest

from tests.forked import run_script

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

MACHINE = (
    r"The machine, when this was measured: \d+ cores, load \d+\.\d; one thread makes \d+ "
    r"GFLOP/s in a float32 matrix product and copies \d+\.\d GB/s\."
)


def smoke(name, *arguments):
    """What the short form of a benchmark prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        script = ROOT / "benchmarks" / f"{name}.py"
        code, out, err = run_script(script, *arguments, "--smoke", folder=ROOT)
    assert code == 0, out + err
    return out


def test_prox():
    printed = smoke("prox")
    assert all(f" {penalty} " in printed for penalty in ("ℓ1", "MCP", "SCAD"))


def test_data():
    assert "times as fast as the DataLoader" in smoke("data")


def test_engine(tmp_path):
    path = tmp_path / "engine.md"
    printed = smoke("engine", "--markdown", path)
    assert re.fullmatch(MACHINE, path.read_text().splitlines()[-1])
    for ratio in ("ours / bare loop", "arithmetic limit / ours", "100 clients / 10 clients"):
        assert ratio in printed


@pytest.mark.parametrize(("part", "rows"), [("clients", 2), ("model", 4)])
def test_scale(part, rows, tmp_path):
    assert "checkpoint" in smoke("scale", part, "--results", tmp_path)
    found = json.loads((tmp_path / f"scale-{part}.json").read_text())
    assert len(found["rows"]) == rows
    assert found["machine"]["product_gflops"] > 0
    assert found["machine"]["copy_gb_per_s"] > 0
    *table, _, machine = (tmp_path / f"scale-{part}.md").read_text().splitlines()
    assert len(table) == rows + 2
    assert len({line.count("|") for line in table}) == 1
    assert re.fullmatch(MACHINE, machine)


def test_round_parts():
    *table, _, machine = smoke("round_parts").splitlines()
    assert re.fullmatch(MACHINE, machine)
    lines = [line.split(" | ") for line in table]
    columns = [[float(line[k].split()[0]) for line in lines[2:]] for k in (1, 2)]
    assert len(lines) == 10
    for steps, _, *others, server, whole in columns:
        assert 0 < steps < whole
        assert 0 <= server < whole
        assert sum(others) < whole


@pytest.mark.parametrize(
    ("part", "target"),
    [("convex", "newton at 1e-9 within 15 rounds on all"), ("networks", "no divergence of")],
)
def test_rounds(part, target, tmp_path):
    arguments = (part, "--work", tmp_path / "work", "--results", tmp_path)
    printed = smoke("rounds", *arguments)
    assert target in printed
    journal = tmp_path / "work" / f"{part}.jsonl"
    runs = journal.read_text()
    results = [tmp_path / f"rounds-{part}.{suffix}" for suffix in ("json", "md")]
    first = [path.read_text() for path in results]
    assert smoke("rounds", *arguments).splitlines()[-3:] == printed.splitlines()[-3:]
    assert journal.read_text() == runs  # nothing was run again
    assert [path.read_text() for path in results] == first
    assert (tmp_path / f"rounds-{part}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ("clients", "λ = 0.02, averaged model"),
        ("accountant", "clients keep their noise"),
        ("records", 'warns "the selection is noise"'),
        ("rules", "label_flip"),
        ("limits", "pull one way"),
        ("generalisation", "geometric-median, worst attack"),
    ],
)
def test_trust(part, shown, tmp_path):
    arguments = (part, "--work", tmp_path / "work", "--results", tmp_path)
    printed = smoke("trust", *arguments)
    assert shown in printed
    journal = tmp_path / "work" / f"{part}.jsonl"
    runs = journal.read_text()
    results = [tmp_path / f"trust-{part}.{suffix}" for suffix in ("json", "md")]
    first = [path.read_text() for path in results]
    smoke("trust", *arguments)
    assert journal.read_text() == runs  # nothing was run again
    assert [path.read_text() for path in results] == first
    if part in ("clients", "generalisation"):
        assert (tmp_path / f"trust-{part}.png").stat().st_size > 10_000


@pytest.mark.flower
@pytest.mark.nginx
def test_deployment(tmp_path):
    lines = smoke("deployment", "--markdown", tmp_path / "deployment.md").splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("seconds"))
    phases = ["transfer", "polling", "start", "imports", "work", "commit"]
    assert lines[start].split() == ["seconds", *phases, "a", "round", "beyond", "processor"]
    ways = ("flower-supernode", "fedcanon site start", "NumPy app")
    for way, line in zip(ways, lines[start + 1 : start + 4], strict=True):
        assert line.startswith(way)
        *parts, total, beyond, processor = map(float, line.removeprefix(way).split())
        assert total == pytest.approx(sum(parts), abs=0.1)
        assert total >= beyond > 0
        assert processor > 0
    assert "fedcanon site start / NumPy app: " in lines[start + 5]
    assert "of what is counted" in lines[-1]
    wire, seconds, machine = (tmp_path / "deployment.md").read_text().strip().split("\n\n")
    for table, rows in ((wire, 2), (seconds, 9)):
        assert len(table.splitlines()) == rows + 2
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert re.fullmatch(MACHINE, machine)


def test_phases_of_a_round_are_those_of_the_client_that_is_last(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from deployments.phases import Event, phases

    superlink, server = 100, 1

    def client(node, port, worker, speed):
        yield Event("process", node, port, -2.0, -1.0)
        for what, process, at, begin, end in (
            ("/v1/fleet/pull-object", node, None, 2.0, 2.5),
            ("/v1/fleet/confirm-message-received", node, None, 2.5, 3.0),
            ("process", worker, None, 4.0, 4.5),
            ("/v1/runtime/pull-task-input", worker, port, 6.0, 6.5),
            ("/v1/runtime/confirm-message-received", worker, port, 6.5, 7.0),
            ("called", worker, None, 8.0, 8.0),
            ("/v1/runtime/push-messages", worker, port, 10.0, 10.5),
            ("/v1/runtime/push-object", worker, port, 10.5, 11.0),
            ("/v1/fleet/push-messages", node, None, 11.5, 12.0),
            ("/v1/fleet/push-object", node, None, 12.0, 12.5),
        ):
            yield Event(what, process, at, begin / speed, end / speed)

    events = [
        Event("/v1/runtime/push-object", server, superlink, 0.5, 1.0),
        *client(11, 101, 21, speed=1.5),
        *client(12, 102, 22, speed=1),
        Event("/v1/runtime/pull-object", server, superlink, 9.0, 9.1),  # of the first client
        Event("/v1/runtime/pull-object", server, superlink, 13.0, 13.2),
        Event("/v1/runtime/confirm-message-received", server, superlink, 13.2, 13.5),
    ]
    expected = {
        "transfer": 5.5,
        "polling": 3,
        "start": 0.5,
        "imports": 2.5,
        "work": 2,
        "commit": 1.5,
    }
    assert phases(events, superlink, [101, 102], 0.0, 15.0) == expected


# Tests of figures run the others.
@pytest.mark.parametrize("part", ["stops", "compression", "settings", "newton", "drawn"])
def test_methods(part, tmp_path):
    smoke("methods", part, "--work", tmp_path / "work", "--results", tmp_path)
    assert (tmp_path / "work" / f"{part}.jsonl").read_text().count("\n") >= 3
    assert all("| --- |" in path.read_text() for path in tmp_path.glob("methods-*.md"))
    assert (tmp_path / f"methods-{part}.json").exists()


def test_none_is_forgotten():
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    expected = {
        "prox",
        "data",
        "engine",
        "round_parts",
        "deployment",
        "rounds",
        "trust",
        "scale",
        "methods",
        "which",
        "headlines",
    }
    assert names == expected | {"machine"}  # which the others write beside their results
