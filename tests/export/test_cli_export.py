"""``fedcanon export`` as a user types it."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedcanon.export import formats, prune
from fedcanon.runs.training import load, train
from tests.export.networks import difference, parameters

ALL = {"safetensors", "pt", "pt2", "onnx", "sparse.safetensors"}


def files(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_every_format_is_written_and_the_table_fits_a_terminal(fedcanon, sparse_run):
    code, out, err = fedcanon("export", str(sparse_run))
    assert (code, err) == (0, "")
    assert files(sparse_run / "export") == {f"model.{suffix}" for suffix in ALL}
    assert "100.0%" in out
    assert max(map(len, out.partition("files written")[0].splitlines())) <= 80
    dense = load_file(sparse_run / "model.safetensors")
    found = load_file(sparse_run / "export" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in dense.items())


@pytest.mark.slow
def test_a_trained_network_is_pruned(fedcanon, sparse_run, tmp_path):
    trained = load(sparse_run).model
    pruned = prune(trained, (64,))
    assert parameters(pruned) < 0.5 * parameters(trained)
    assert difference(trained, pruned, (64,)) < 1e-5
    code, out, _ = fedcanon(
        "export", str(sparse_run), "--prune", "--folder", str(tmp_path), "--format", "safetensors"
    )
    assert code == 0
    assert files(tmp_path) == {"model.safetensors"}
    for expected in ("neurons and channels", f"{parameters(pruned):,}", "latency", "ratio"):
        assert expected in out
    written = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in written.values()) == parameters(pruned)
    size, dense = (p / "model.safetensors" for p in (tmp_path, sparse_run))
    assert size.stat().st_size < 0.5 * dense.stat().st_size


@pytest.mark.slow
def test_pruned_files_do_not_replace_others(fedcanon, sparse_run):
    fedcanon("export", str(sparse_run), "--prune", "--format", "pt", "--format", "sparse")
    assert files(sparse_run / "pruned") == {"model.pt", "model.sparse.safetensors"}


def test_pruning_finds_nothing_in_a_linear_model_but_unused_inputs(fedcanon, tmp_path):
    run = tmp_path / "linear"
    train(rounds=8, model="linear", penalty={"name": "l1", "kappa": 0.02}, folder=run)
    _, out, _ = fedcanon("export", str(run), "--prune", "--format", "pt")
    weight = load(run).model.state_dict()["1.weight"]
    unused = int((weight == 0).all(0).sum())
    assert 0 < unused < 64
    assert "nothing to prune" in out
    assert f"{unused} inputs are never used" in out


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x if x.sum() > 0 else -x)


def branching(shape, classes):
    return Branching()


@pytest.mark.slow
def test_what_cannot_be_followed_is_exported_as_it_is_where_possible(fedcanon, tmp_path):
    run = tmp_path / "branching"
    train(rounds=1, model=f"{__name__}:branching", folder=run)
    code, out, _ = fedcanon("export", str(run), "--prune")
    assert code == 0
    text = " ".join(out.split())
    assert "note not pruned: torch.fx cannot follow the network" in text
    assert "note model.onnx was not written: ONNX cannot express the network" in text
    assert files(run / "pruned") == {f"model.{s}" for s in ALL - {"onnx", "pt2"}}
    code, _, err = fedcanon("export", str(run), "--format", "pt2")
    assert code == 2
    assert "torch.export cannot express the network" in err


def test_logistic_regression_is_exported(fedcanon, tmp_path):
    run = tmp_path / "logistic"
    train(rounds=1, model="logistic", data="breast_cancer", folder=run)
    assert fedcanon("export", str(run), "--format", "pt2", "--format", "sparse")[0] == 0
    program = torch.export.load(run / "export" / "model.pt2").module()
    assert program(torch.zeros(3, 30)).shape == (3, 1)


def test_a_missing_library_leaves_a_note(fedcanon, sparse_run, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    code, out, _ = fedcanon("export", str(sparse_run), "--folder", str(tmp_path))
    assert code == 0
    assert "model.onnx was not written: onnx is not installed" in " ".join(out.split())
    assert files(tmp_path) == {f"model.{suffix}" for suffix in ALL - {"onnx"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent",), "there is no run 'absent'"),
        (("RUN", "--format", "pickle"), "pickle"),
        (("RUN", "--folder", "FILE", "--format", "pt"), "cannot write"),
        ((), "RUN"),
    ],
)
def test_mistakes_end_with_a_message_and_code_two(
    fedcanon, sparse_run, tmp_path, arguments, message
):
    (tmp_path / "file").touch()
    names = {"RUN": str(sparse_run), "FILE": str(tmp_path / "file")}
    code, _, err = fedcanon("export", *(names.get(word, word) for word in arguments))
    assert code == 2
    assert message in err
    assert "Traceback" not in err
