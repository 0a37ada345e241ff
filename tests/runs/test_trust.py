"""A run folder from a stranger runs no code; one's own runs go on without questions."""

import json
import shutil
import stat
import sys

import pytest
import tomli_w
from typer.testing import CliRunner

from fedcanon import FedcanonError, load, load_config, resume, train
from fedcanon.cli.app import app
from fedcanon.runs.config import Config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.trust import code_named

SOURCE = """
from torch import nn


def net(shape, classes, hidden=3):
    open("imported", "w").close()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, classes))
"""
COMMANDS = {
    "evaluate": ["evaluate", "run"],
    "export": ["export", "run", "--format", "pt"],
    "resume": ["resume", "run", "--rounds", "3"],
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A user with a module of her own in the current folder."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "strange.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    monkeypatch.setattr(sys, "argv", ["fedcanon"])
    return tmp_path


@pytest.fixture
def run(place):
    """A run of her own, with a model of her own."""
    train(rounds=2, model="strange:net", clients={"count": 3}, folder=place / "run")
    (place / "imported").unlink()
    return place / "run"


def strange(place):
    """Another user gets the run: her key is not there."""
    shutil.rmtree(place / "home" / ".fedcanon")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_strangers_code_is_imported_only_with_trust(run, place, command):
    strange(place)
    refused = CliRunner().invoke(app, COMMANDS[command])
    assert isinstance(refused.exception, FedcanonError)
    assert "strange:net" in str(refused.exception)
    assert "--trust" in str(refused.exception)
    assert not (place / "imported").exists()
    assert CliRunner().invoke(app, [*COMMANDS[command], "--trust"]).exit_code == 0
    assert (place / "imported").exists()


def test_the_same_in_python(run, place):
    strange(place)
    for function in (load, lambda name, **options: resume(name, rounds=3, **options)):
        with pytest.raises(FedcanonError, match="trust=True"):
            function(run)
        assert not (place / "imported").exists()
    assert load(run, trust=True).last.round == 2
    assert resume(run, rounds=3, trust=True).last.round == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_ones_own_run_needs_no_trust_wherever_it_is_moved(run, place, command):
    shutil.move(run, place / "elsewhere")
    (place / "elsewhere").rename(run)
    assert CliRunner().invoke(app, COMMANDS[command]).exit_code == 0


def test_changed_settings_break_the_seal(run):
    config = (run / "config.toml").read_text()
    changed = config.replace('name = "strange:net"', 'name = "strange:net"\nhidden = 4')
    assert changed != config
    (run / "config.toml").write_text(changed)
    with pytest.raises(FedcanonError, match="--trust"):
        load(run)


def test_the_key_is_for_its_owner_alone(run, place):
    key = place / "home" / ".fedcanon" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["missing", "empty"])
def test_without_a_key_nothing_is_sealed(place, monkeypatch, key):
    if key == "missing":
        monkeypatch.setenv("HOME", str(place / "nowhere" / "home"))
    else:
        (place / "home" / ".fedcanon").mkdir()
        (place / "home" / ".fedcanon" / "key").touch()
    train(rounds=1, model="strange:net", clients={"count": 3}, folder=place / "run")
    with pytest.raises(FedcanonError, match="--trust"):
        load(place / "run")
    assert load(place / "run", trust=True).last.round == 1


CODE = "subprocess:call"
PLACES = {
    "data": {"data": {"name": CODE}},
    "partition": {"data": {"partition": f"{CODE}:2"}},
    "model": {"model": {"name": CODE}},
    "loss": {"loss": {"name": CODE}},
    "penalty": {"penalty": {"name": CODE}},
    "terms": {"penalty": {"name": "sum", "terms": [{"name": CODE}]}},
    "layers": {"penalty": {"layers": [{"match": "*", "name": CODE}]}},
    "algorithm": {"algorithm": {"name": CODE}},
    "schedule": {"algorithm": {"name": "fedavg", "beta": {"schedule": CODE}}},
    "compression": {"compression": {"name": CODE}},
    "chain": {"compression": {"name": "chain", "steps": [{"name": CODE}]}},
}


@pytest.mark.parametrize("where", PLACES)
def test_wherever_the_code_is_named(place, where):
    Config.model_validate(PLACES[where])
    (place / "config.toml").write_text(tomli_w.dumps(PLACES[where]))
    assert [name.removesuffix(":2") for name in code_named(load_config(place / "config.toml"))] == [
        CODE
    ]
    for function in (load, resume):
        with pytest.raises(FedcanonError, match=CODE):
            function(place)


@pytest.mark.parametrize("partition", ["flower:LinearPartitioner", "dirichlet:0.2", "iid"])
def test_our_own_partitions_are_no_code(partition):
    assert code_named(Config(data={"partition": partition})) == []


def test_the_shell_is_not_reached_from_a_strangers_folder(place):
    """The attack that was found: a factory of processes as a model, and words as a shape."""
    folder = place / "gift"
    folder.mkdir()
    (folder / "config.toml").write_text(tomli_w.dumps({"model": {"name": "subprocess:call"}}))
    (folder / "result.json").write_text(json.dumps({"stopped": "end", "round": 1}))
    summary = {"name": "x", "classes": 2, "label_counts": []}
    for shape in (["touch", "harm"], [4]):
        (folder / "data.json").write_text(json.dumps({**summary, "shape": shape}))
        for command in ("evaluate", "export"):
            error = CliRunner().invoke(app, [command, "gift"]).exception
            assert isinstance(error, FedcanonError)
    (folder / "data.json").write_text(json.dumps({**summary, "shape": ["touch", "harm"]}))
    with pytest.raises(FedcanonError, match=r"data\.json is damaged"):
        load(folder, trust=True)
    assert not (place / "harm").exists()


@pytest.mark.parametrize("shape", [[-1], [2**41], [2**30, 2**30], [1.5], ["4"], [True], None])
def test_a_shape_is_a_list_of_positive_numbers(place, shape):
    summary = {"name": "x", "classes": 2, "label_counts": [], "shape": shape}
    (place / "data.json").write_text(json.dumps(summary))
    with pytest.raises(FedcanonError, match=r"data\.json is damaged"):
        _ = RunFolder(place).data
