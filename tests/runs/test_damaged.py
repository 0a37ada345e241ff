"""Damaged run folders: every command works, or says in a sentence which file is damaged."""

import json
import math
import shutil
import tomllib

import pytest
import tomli_w
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from fedcanon import FedcanonError, train
from fedcanon.checkpoint import _digest
from fedcanon.cli.app import app
from fedcanon.report.page.html import content
from fedcanon.report.page.live import _Server
from fedcanon.report.page.reading import read_run
from fedcanon.runs import training
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import MODEL

EXAMPLES = 8
"""Damages of every file for every command."""

FILES = ["history.jsonl", "data.json", "environment.json", "result.json", "config.toml"]
COMMANDS = {
    "show": ["show", "{run}"],
    "report": ["report", "{run}", "-o", "{run}/report.html"],
    "resume": ["resume", "{run}"],
    "evaluate": ["evaluate", "{run}"],
    "export": ["export", "{run}", "--format", "pt"],
    "runs": ["runs"],
    "longer": ["resume", "{run}", "--rounds", "4"],
}

SCALARS = (
    st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**31, 2**62, 2**63, 10**400, 1e308, "", "[/]", "\x1b[2J", "1"])
    | st.floats()
    | st.text(max_size=5)
)


def values(*, toml=False):
    return st.recursive(
        SCALARS if toml else st.none() | SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    )


@st.composite
def changed(draw, document, *, toml=False):
    """The document with something else in one place, or without what is there."""
    if not (isinstance(document, dict | list) and document and draw(st.integers(0, 9))):
        return draw(values(toml=toml))
    copy = document.copy()
    key = draw(st.sampled_from(list(copy) if isinstance(copy, dict) else range(len(copy))))
    if draw(st.integers(0, 5)):
        copy[key] = draw(changed(copy[key], toml=toml))
    else:
        del copy[key]
    return copy


@st.composite
def damaged(draw, name, whole):
    """The bytes of a file of a run, damaged in one of many ways."""
    way = draw(st.sampled_from(["cut", "binary", "changed", "changed", "changed"]))
    if way == "cut":
        return whole[: draw(st.integers(0, len(whole)))]
    if way == "binary":
        return draw(st.binary(max_size=20)) + b"\n"
    if name == "config.toml":
        table = draw(changed(tomllib.loads(whole.decode()), toml=True))
        return tomli_w.dumps(table if isinstance(table, dict) else {"x": table}).encode()
    if name == "history.jsonl":
        lines = whole.splitlines(keepends=True)
        k = draw(st.integers(0, len(lines) - 1))
        lines[k] = json.dumps(draw(changed(json.loads(lines[k])))).encode() + b"\n"
        return b"".join(lines)
    return json.dumps(draw(changed(json.loads(whole)))).encode()


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("whole") / "first"
    layers = [{"match": "1.weight", "name": "scad", "kappa": 2e-3}]
    beta = {"schedule": "inverse", "start": 0.1, "period": 40}
    method = {"name": "fedcanon+", "alpha": "beta*K", "beta": beta, "local_steps": 2}
    train(rounds=2, model="linear", folder=folder, penalty={"layers": layers}, algorithm=method)
    return folder


@pytest.fixture
def run(whole_run, tmp_path, monkeypatch):
    """A copy of the run, in the runs folder of the commands."""
    monkeypatch.setenv("FEDCANON_RUNS", str(tmp_path))
    # A damaged configuration may ask for years of training.
    monkeypatch.setattr(training, "_train_and_save", lambda run, *_: training.load(run.path))
    return shutil.copytree(whole_run, tmp_path / "first")


def invoke(run, command):
    return CliRunner().invoke(app, [word.format(run=run) for word in COMMANDS[command]])


def put(path, **entries):
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_every_command_works_or_ends_with_a_sentence(run, whole_run, name, command):
    checks = list(HealthCheck)

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=checks)
    @given(damaged(name, (run / name).read_bytes()))
    def check(content):
        shutil.copytree(whole_run, run, dirs_exist_ok=True)
        (run / name).write_bytes(content)
        result = invoke(run, command)
        assert isinstance(result.exception, FedcanonError | None), result
        assert "\x1b" not in result.output
        if command == "runs":
            assert result.exception is None
            assert "first" in result.output

    check()


READERS = {
    "history.jsonl": {"show", "report", "evaluate", "export"},
    "data.json": {"show", "report", "evaluate", "export"},
    "environment.json": {"show", "report"},
    "result.json": {"show", "report", "resume", "evaluate", "export"},
    "config.toml": {"show", "report", "resume", "longer", "evaluate", "export"},
}


@pytest.mark.parametrize("content", [b"[1]\n", b"{\n", b"\xff\x00\n", b'"\\ud800"\n'])
@pytest.mark.parametrize("name", FILES)
def test_the_file_is_named(run, name, content):
    (run / name).write_bytes(content)
    for command in READERS[name]:
        error = invoke(run, command).exception
        assert isinstance(error, FedcanonError)
        assert str(run / name) in str(error)


def test_a_damaged_run_is_listed_among_the_others(run):
    shutil.copytree(run, run.with_name("second"))
    (run / "history.jsonl").write_text("{}\n")
    result = invoke(run, "runs")
    assert result.exit_code == 0
    first, second = result.output.splitlines()[1:3]
    assert first.split() == ["first", "damaged"]
    assert second.split()[:3] == ["second", "finished", "2"]
    assert "history.jsonl is damaged (line 1: " in result.output


def test_text_from_files_is_no_markup_and_controls_no_terminal(run):
    put(run / "data.json", name="[red]\x1b[2J\x07\u202e")
    assert r"[red]\x1b[2J\x07\u202e" in "".join(invoke(run, "show").output.split())


@pytest.mark.parametrize("shape", [[0], [2**40], [2**62], [2**62, 2**62], [2**31, 2**31, 10]])
def test_a_shape_that_fits_no_memory_is_refused(run, shape):
    put(run / "data.json", shape=shape)
    assert isinstance(invoke(run, "export").exception, FedcanonError)
    assert isinstance(invoke(run, "evaluate").exception, FedcanonError)


def test_numbers_that_no_axis_can_show_leave_the_rest_of_the_page(run):
    history = run / "history.jsonl"
    *lines, last = history.read_text().splitlines()
    record = json.loads(last)
    record["client_losses"][3] = record["gradient_norm"] = math.nan
    record["objective"] = math.inf
    history.write_text("\n".join([*lines, json.dumps(record), ""]))
    shown = content([read_run(RunFolder(run))])
    json.dumps(shown, allow_nan=False)
    assert shown["charts"]["partitions"][0]["losses"][0]["values"][3] is None


def test_a_model_file_of_another_network_is_shown_or_named(run):
    save_file({"weight": torch.zeros(2, 3), "empty": torch.zeros(0, 3)}, run / MODEL)
    (shares,) = content([read_run(RunFolder(run))])["charts"]["layers"]["shares"]
    assert shares == [1.0]
    assert "cannot load the model" in str(invoke(run, "export").exception)


def first_checkpoint(run):
    return sorted((run / "checkpoints").glob("round-*"))[-1]


def replaced(path, write):
    """Put another file in the place of a checkpoint, with the digest of its new content."""
    changed = path.with_name("changed")
    write(changed)
    path.unlink()
    changed.rename(path.with_name(f"{path.stem.rpartition('-')[0]}-{_digest(changed)}.safetensors"))


@pytest.fixture
def trained(whole_run, tmp_path):
    """A copy of the run that really goes on."""
    return shutil.copytree(whole_run, tmp_path / "goes-on")


@pytest.mark.slow
def test_a_checkpoint_with_odd_metadata_ends_with_a_sentence(trained, whole_run):
    path = first_checkpoint(whole_run)
    with safe_open(path, framework="pt") as file:
        structure = json.loads(file.metadata()["state"])
    tensors = load_file(path)

    @settings(max_examples=25, derandomize=True, deadline=None)
    @given(changed(structure))
    def check(odd):
        shutil.rmtree(trained)
        shutil.copytree(whole_run, trained)
        metadata = {"state": json.dumps(odd)}
        for path in (trained / "checkpoints").glob("round-*"):
            replaced(path, lambda new: save_file(tensors, new, metadata=metadata))
        error = invoke(trained, "longer").exception
        assert isinstance(error, FedcanonError | None), error

    check()


def test_a_checkpoint_of_another_model_is_refused(trained):
    path = first_checkpoint(trained)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = {name: torch.cat([t, t]) for name, t in load_file(path).items()}
    replaced(path, lambda new: save_file(tensors, new, metadata=metadata))
    error = invoke(trained, "longer").exception
    assert isinstance(error, FedcanonError)
    assert str(trained) in str(error)
    assert "not one of this run" in str(error)


@pytest.mark.parametrize("damage", [b"{\n", b'{"round": 1}\n', b"\xff\x00\n", "twice"])
def test_a_damaged_history_does_not_stop_a_resume(trained, damage):
    history = trained / "history.jsonl"
    first, second, third = history.read_bytes().splitlines(keepends=True)
    garbled = first + (second + second if damage == "twice" else damage) + third
    history.write_bytes(garbled)
    result = invoke(trained, "longer")
    assert result.exit_code == 0, result
    shown = "".join(result.output.split())
    assert "1damagedlineof" in shown
    assert "history-damaged.jsonl" in shown
    assert (trained / "history-damaged.jsonl").read_bytes() == garbled
    rounds = [record.round for record in RunFolder(trained).records()]
    assert rounds == ([0, 1, 2, 3, 4] if damage == "twice" else [0, 2, 3, 4])
    assert "damaged line" in (trained / "log.txt").read_text()


def test_a_history_that_is_gone_does_not_stop_a_resume(trained):
    (trained / "history.jsonl").write_bytes(b"\x00" * 100 + b"\n")
    assert invoke(trained, "longer").exit_code == 0
    assert [record.round for record in RunFolder(trained).records()] == [2, 3, 4]


@pytest.mark.parametrize("name", [*FILES, MODEL])
def test_a_live_page_says_what_is_damaged(run, name):
    (run / name).write_bytes(b"\x00[1]\n")
    with _Server(run, 0) as server:
        assert name in json.loads(server.news())["problem"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [MODEL, "checkpoints"])
def test_files_that_are_no_safetensors(run, name):
    path = first_checkpoint(run) if name == "checkpoints" else run / name
    whole = path.read_bytes()

    @settings(max_examples=6, derandomize=True, deadline=None)
    @given(st.integers(0, len(whole)), st.binary(max_size=12))
    def check(place, noise):
        path.write_bytes(whole[:place] + noise + whole[place + len(noise) :])
        for command in COMMANDS:
            assert isinstance(invoke(run, command).exception, FedcanonError | None)

    check()
