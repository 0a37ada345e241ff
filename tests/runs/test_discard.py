"""Tidying up removes what a run has written, and nothing else."""

import pytest

from fedcanon import FedcanonError, load_config, train
from fedcanon.files import locked
from fedcanon.runs.folder import RunFolder
from fedcanon.search.goal import Goal
from fedcanon.search.workers import run_once


@pytest.fixture
def begun(tmp_path):
    """A run that was killed before there was anything to resume."""
    run = RunFolder.create(tmp_path / "run", load_config())
    (run.path / "unfinished-17-data.json").touch()
    return run


def test_a_run_that_has_just_begun_is_removed(begun):
    begun.discard()
    assert not begun.path.exists()
    begun.discard()  # there is nothing to do


@pytest.mark.parametrize("name", ["thesis.tex", "history.jsonl", "model.safetensors", "a/b"])
def test_a_folder_with_anything_else_stays_as_it_is(begun, name):
    (begun.path / name).parent.mkdir(exist_ok=True)
    (begun.path / name).write_text("mine")
    before = sorted(begun.path.rglob("*"))
    with pytest.raises(FedcanonError, match=rf"holds {name[0]}"):
        begun.discard()
    assert sorted(begun.path.rglob("*")) == before


def test_a_configuration_of_the_users_own_stays(tmp_path):
    (tmp_path / "config.toml").write_text("rounds = 3\n")
    with pytest.raises(FedcanonError, match=r"holds config\.toml"):
        RunFolder(tmp_path).discard()
    assert (tmp_path / "config.toml").read_text() == "rounds = 3\n"


def test_links_and_what_they_point_at_stay(begun, tmp_path):
    (tmp_path / "elsewhere.txt").write_text("mine")
    (begun.path / "log.txt").symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(FedcanonError, match=r"holds log\.txt"):
        begun.discard()
    assert (begun.path / "log.txt").read_text() == "mine"


def test_a_run_that_goes_on_elsewhere_stays(begun):
    with locked(begun.path, "busy"), pytest.raises(FedcanonError, match="going on"):
        begun.discard()
    assert (begun.path / "config.toml").is_file()


def test_a_sweep_leaves_the_files_of_others_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    with pytest.raises(FedcanonError, match=r"holds thesis\.tex"):
        run_once(tmp_path / "run", load_config(), Goal("objective", maximise=False))
    assert (tmp_path / "run" / "thesis.tex").read_text() == "mine"


def test_checkpoints_are_removed_without_their_neighbours(tmp_path):
    train(rounds=1, model="linear", clients={"count": 3}, folder=tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    (run.path / "checkpoints" / "notes.txt").write_text("mine")
    run.checkpoints.remove()
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["notes.txt"]
    (run.path / "checkpoints" / "notes.txt").unlink()
    run.checkpoints.remove()
    assert not (run.path / "checkpoints").exists()
    run.checkpoints.remove()
