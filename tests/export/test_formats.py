"""What was exported can be loaded elsewhere and computes the same."""

from pathlib import Path

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedcanon import FedcanonError
from fedcanon.export import Format, formats, load_sparse, prune, save
from fedcanon.objectives.models import MLP
from fedcanon.objectives.models.resnet import BasicBlock
from tests.export.networks import inputs, spoilt


def small_resnet():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        BasicBlock(8, 8, 1, nn.BatchNorm2d),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


@pytest.fixture(scope="module", params=["mlp", "pruned resnet"])
def network(request):
    """A network and the shape of its inputs."""
    if request.param == "mlp":
        return spoilt(MLP().build((12,), 3).double(), ["both"]), (12,)
    return prune(spoilt(small_resnet(), ["rows"]), (1, 9, 9)), (1, 9, 9)


@pytest.mark.parametrize(
    ("kind", "reader"),
    [
        (Format.SAFETENSORS, load_file),
        (Format.PYTORCH, lambda path: torch.load(path, weights_only=True)),
        (Format.SPARSE, load_sparse),
    ],
)
def test_state_dicts_come_back(network, tmp_path, kind, reader):
    module, shape = network
    path = tmp_path / f"model{kind.suffix}"
    save(module, shape, path, kind)
    state = reader(path)
    expected = module.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_programs_come_back_and_take_batches_of_any_size(network, tmp_path):
    module, shape = network
    path = tmp_path / "model.pt2"
    save(module, shape, path, Format.PROGRAM)
    program = torch.export.load(path).module()
    for count in (1, 7):
        batch = inputs(module, shape, count)
        assert torch.allclose(program(batch), module(batch), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_onnx_files_run_in_single_precision_on_batches_of_any_size(network, tmp_path):
    module, shape = network
    path = tmp_path / "model.onnx"
    save(module, shape, path, Format.ONNX)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", *shape]
    for count in (1, 7):
        batch = inputs(module, shape, count)
        (found,) = session.run(["scores"], {"input": batch.float().numpy()})
        assert torch.allclose(torch.from_numpy(found), module(batch).float(), rtol=0, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_the_dense_size_is_that_of_the_file(network, tmp_path):
    module, shape = network
    save(module, shape, tmp_path / "model.safetensors", Format.SAFETENSORS)
    assert formats.dense_size(module) == (tmp_path / "model.safetensors").stat().st_size


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Format.PROGRAM, "torch.export cannot express"), (Format.ONNX, "ONNX cannot express")],
)
def test_a_network_that_a_format_cannot_express_is_refused(tmp_path, kind, message):
    path = tmp_path / "new" / f"model{kind.suffix}"
    with pytest.raises(FedcanonError, match=message) as caught:
        save(Branching(), (2,), path, kind)
    assert "\n" not in str(caught.value)
    assert not list(path.parent.iterdir())


def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(FedcanonError, match=r'onnxscript is not installed: .*"fedcanon\[export\]"'):
        save(nn.Linear(2, 2), (2,), tmp_path / "model.onnx", Format.ONNX)


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path, monkeypatch):
    def fail(module, shape, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(formats._WRITERS, Format.PYTORCH, fail)
    path = tmp_path / "model.pt"
    path.write_text("whole")
    with pytest.raises(FedcanonError, match=r"cannot write .*: No space left on device\."):
        save(nn.Linear(2, 2), (2,), path, Format.PYTORCH)
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.parametrize("kind", Format)
def test_a_path_may_be_text_and_everybody_may_read_the_file(tmp_path, kind):
    path = f"{tmp_path}/new/model{kind.suffix}"
    save(nn.Linear(2, 2), (2,), path, kind)
    assert Path(path).stat().st_mode & 0o777 == 0o644
