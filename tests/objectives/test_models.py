"""Models by name and of one's own, sized from the data."""

import sys
import textwrap

import pytest
import torch
from torch import nn

from fedcanon import (
    FedcanonError,
    FedCanonPlus,
    Federation,
    FlatModule,
    ModuleObjective,
    Problem,
    build,
    load_config,
)
from fedcanon.data import DATASETS, Dataset, Split
from fedcanon.objectives.models import MODELS, BinaryLogistic, ResNet18
from fedcanon.objectives.models.resnet import Convolution, group_norm
from fedcanon.penalties import L1, on_weights
from fedcanon.runs.named import make_model

IMAGES = [(1, 28, 28), (3, 32, 32), (3, 64, 64)]
NETWORKS = [name for name, model in MODELS.items() if model is not BinaryLogistic]


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def on_meta(name, shape, classes, **options):
    """A network without memory or arithmetic: names, counts and shapes only."""
    with torch.device("meta"):
        return make_model({"name": name, **options}).build(shape, classes)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
    ],
)
def test_resnets_have_the_published_number_of_parameters(name, published):
    assert parameters(on_meta(name, (3, 224, 224), 1000)) == published


def test_the_cnn_has_as_many_parameters_as_that_of_mcmahan():
    assert parameters(on_meta("cnn", (1, 28, 28), 10)) == 1_663_370


@pytest.mark.slow
@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_scores_every_class_of_every_image_size(name, shape):
    every = [{}]
    if name.startswith("resnet"):
        every = [{"stem": s, "norm": n} for s in ("imagenet", "small") for n in ("batch", "group")]
    for options in every:
        module = on_meta(name, shape, 7, **options)
        assert module(torch.empty(2, *shape, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_dense_networks_take_plain_features(name):
    assert on_meta(name, (30,), 2)(torch.empty(5, 30, device="meta")).shape == (5, 2)


def test_resnets_have_the_names_of_torchvision():
    names = set(on_meta("resnet18", (3, 32, 32), 10).state_dict())
    block = {f"{layer}.weight" for layer in ("conv1", "bn1", "conv2", "bn2")}
    assert {"conv1.weight", "bn1.weight", "bn1.running_mean", "fc.weight", "fc.bias"} <= names
    assert {f"layer{k}.{j}.{n}" for k in (1, 2, 3, 4) for j in (0, 1) for n in block} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias"} <= names
    assert not any(name.startswith("layer1.0.downsample") for name in names)
    deep = set(on_meta("resnet50", (3, 32, 32), 10).state_dict())
    assert {"layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.bias"} <= deep


def test_the_stems_differ_in_their_first_convolution_and_in_resolution():
    sizes = {}
    for stem in ("imagenet", "small"):
        module = on_meta("resnet18", (3, 32, 32), 10, stem=stem)
        hook = module.layer1.register_forward_hook(
            lambda _, inputs, output, stem=stem: sizes.update({stem: tuple(output.shape)})
        )
        module(torch.empty(2, 3, 32, 32, device="meta"))
        hook.remove()
        sizes[f"{stem} kernel"] = tuple(module.conv1.weight.shape)
    assert sizes == {
        "imagenet": (2, 64, 8, 8),
        "imagenet kernel": (64, 3, 7, 7),
        "small": (2, 64, 32, 32),
        "small kernel": (64, 3, 3, 3),
    }


def test_convolutions_start_after_kaiming():
    torch.manual_seed(0)
    module = ResNet18().build((3, 32, 32), 10)
    weight = module.layer3[1].conv2.weight.detach()
    assert float(weight.std()) == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert abs(float(weight.mean())) < 1e-3


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (7, 2)])
def test_a_convolution_of_images_of_one_pixel_is_that_of_pytorch(size, stride):
    torch.manual_seed(0)
    ours = Convolution(4, 5, size, stride, padding=size // 2, bias=False).double()
    image = torch.randn(6, 4, 1, 1, dtype=torch.float64, requires_grad=True)
    sent = torch.randn(6, 5, 1, 1, dtype=torch.float64)
    found = [
        (output, *torch.autograd.grad(output, [image, ours.weight], sent))
        for output in (ours(image), nn.Conv2d.forward(ours, image))
    ]
    for mine, its in zip(*found, strict=True):
        assert mine.shape == its.shape
        assert torch.allclose(mine, its, rtol=0, atol=1e-13)


def test_group_norm_has_no_buffers_and_as_many_parameters():
    with_groups = on_meta("resnet18", (3, 32, 32), 10, norm="group")
    assert not list(with_groups.buffers())
    assert parameters(with_groups) == parameters(on_meta("resnet18", (3, 32, 32), 10))
    assert {m.num_groups for m in with_groups.modules() if isinstance(m, nn.GroupNorm)} == {32}
    assert group_norm(8).num_groups == 8


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_round_of_fedcanon_plus_on_a_resnet(norm):
    torch.manual_seed(0)
    flat = FlatModule(ResNet18("small", norm).build((3, 32, 32), 10))
    inputs, targets = torch.randn(8, 3, 32, 32), torch.arange(8)
    loss, halves = nn.CrossEntropyLoss(), torch.arange(8).split(4)
    clients = [ModuleObjective(flat, loss, inputs, targets, rows) for rows in halves]
    start, at_start = flat.vector.clone(), flat.buffers.clone()
    penalty = on_weights(L1(1e-4), flat.layout)

    def after_one_round(*participants):
        flat.buffers.copy_(at_start)
        federation = Federation(
            Problem(clients, start),
            FedCanonPlus(0.1, 0.01, 1),
            penalty,
            participants=1,
            batch_size=2,
        )
        federation.step(list(participants))
        return federation

    both = after_one_round(0, 1)
    assert both.model.isfinite().all()
    assert not torch.equal(both.model, start)
    alone = [after_one_round(client).engine.buffers for client in (0, 1)]
    assert len(at_start) == (2 * 4800 if norm == "batch" else 0)
    assert torch.equal(alone[0], alone[1]) == (norm == "group")
    torch.testing.assert_close(both.engine.buffers, (alone[0] + alone[1]) / 2)
    if norm == "batch":
        assert (both.engine.buffers != at_start).any()


@pytest.fixture
def images(monkeypatch):
    """A dataset of 40 small colour images in 4 classes, by the name "images"."""
    train, test = (Split(torch.randn(n, 3, 8, 8), torch.arange(n) % 4) for n in (40, 8))
    monkeypatch.setitem(DATASETS, "images", lambda: Dataset("images", train, test, 4))
    return ["data.name=images", "data.partition=iid", "clients.count=2", "batch_size=4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["model.name=cnn"],
        ["model.name=resnet18", "model.stem=small", "model.norm=group"],
        ["model.name=resnet18", 'data.augment=["crop", "flip"]'],
    ],
)
def test_configurations_reach_the_model(images, settings):
    federation = build(load_config(settings=[*images, *settings, "algorithm.beta=0.1"]))
    federation.step()
    assert federation.model.isfinite().all()
    assert len(federation.problem.buffers) == (9600 if "crop" in settings[-1] else 0)


def test_the_clients_hold_the_samples_of_their_parts(images):
    problem = build(load_config(settings=[*images, "model.name=linear"])).problem
    rows = torch.cat([client._at(slice(None))[0] for client in problem.clients])
    everything = DATASETS["images"]().train.inputs
    assert [client.samples for client in problem.clients] == [20, 20]
    assert torch.equal(rows.flatten(1).sum(1).sort()[0], everything.flatten(1).sum(1).sort()[0])


MISTAKES = {
    "model.stem=small": "unknown key 'model.stem': the model 'mlp' has no options.",
    "model={name='logistic', norm='group'}": "the model 'logistic' has no options.",
    "model.name=logstic": "there is no model called 'logstic': did you mean 'logistic'?",
    "model.name=resnet19": "there is no model called 'resnet19': did you mean 'resnet18'?",
    "model={name='resnet18', stm='small'}": "unknown key 'model.stm': did you mean 'stem'?",
    "model={name='resnet18', stem='tiny'}": "model.stem = 'tiny': input should be 'imagenet' or",
    "model.name=cnn": "the model 'cnn' needs images of shape (channels, height, width), but",
    "model.name=resnet18": "but the inputs have shape (64,).",
    "data.augment=['crop']": "the augmentation 'crop' needs images",
    "data.augment=['crp']": "data.augment = 'crp': input should be 'crop' or 'flip'.",
    "data.augment=flip": "data.augment = 'flip': input should be a valid list.",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_a_mistake_gets_one_sentence(setting):
    with pytest.raises(FedcanonError) as caught:
        build(load_config(settings=[setting]))
    assert MISTAKES[setting] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_augmentation_needs_a_network(images):
    with pytest.raises(FedcanonError, match="not for logistic"):
        build(load_config(settings=[*images, "model.name=logistic", 'data.augment=["flip"]']))


@pytest.mark.slow
def test_batch_normalisation_needs_more_than_one_sample(images):
    with pytest.raises(FedcanonError, match=r"batch of shape \(1, 3, 8, 8\): Expected more than 1"):
        build(load_config(settings=[*images, "batch_size=1", "model.name=resnet18"]))
    build(load_config(settings=[*images, "batch_size=1", "model.name=cnn"]))


def test_the_trial_leaves_the_model_as_it_was(images):
    federation = build(load_config(settings=[*images, "model.name=resnet18", "algorithm.beta=0.1"]))
    assert set(federation.problem.buffers.tolist()) == {0.0, 1.0}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of one's own in the current directory."""
    (tmp_path / "my_nets").mkdir()
    (tmp_path / "my_nets" / "nets.py").write_text(
        textwrap.dedent(
            """
            from math import prod

            from torch import nn


            def make(shape, classes, width=16):
                return nn.Sequential(
                    nn.Flatten(), nn.Linear(prod(shape), width), nn.Linear(width, classes)
                )


            def narrow(shape, classes):
                return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 3))


            def pair(shape, classes):
                return nn.LSTM(prod(shape), classes)


            def misfit(shape, classes):
                return nn.Linear(5, classes)


            def text(shape, classes):
                return "a network"


            number = 3
            """
        )
    )
    (tmp_path / "my_nets" / "broken.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda *settings: build(load_config(settings=settings))
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_nets"]:
        del sys.modules[name]


def test_a_factory_in_the_current_directory(own):
    assert own("model.name=my_nets.nets:make").problem.layout.size == 65 * 16 + 17 * 10
    wide = own("model.name=my_nets.nets:make", "model.width=20")
    assert wide.problem.layout.size == 65 * 20 + 21 * 10
    wide.step()


OWN_MISTAKES = {
    "my_nets.nets:": "is written package.module:Name, not 'my_nets.nets:'.",
    ":make": "is written package.module:Name, not ':make'.",
    "absent_nets:make": "cannot be imported: No module named 'absent_nets'.",
    "my_nets.absent:make": "cannot be imported: No module named 'my_nets.absent'.",
    "my_nets.broken:make": "cannot be imported: No module named 'a_package_that_is_not_there'.",
    "my_nets.nets:mke": "the module my_nets.nets has no function or class 'mke'.",
    "my_nets.nets:number": "the module my_nets.nets has no function or class 'number'.",
    "my_nets.nets:text": "must be an nn.Module, but its factory returned str.",
    "my_nets.nets:narrow": "must return scores of shape (2, 10) for 2 inputs and 10 classes, not "
    "(2, 3).",
    "my_nets.nets:pair": "must return scores of shape (2, 10) for 2 inputs and 10 classes, not "
    "tuple.",
    "my_nets.nets:misfit": "fails on a batch of shape (2, 64): mat1 and mat2 shapes cannot be "
    "multiplied (2x64 and 5x10).",
}


@pytest.mark.parametrize("name", OWN_MISTAKES)
def test_a_mistake_in_a_model_of_ones_own_gets_one_sentence(own, name):
    with pytest.raises(FedcanonError) as caught:
        own(f"model.name={name}")
    assert OWN_MISTAKES[name] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_that_a_factory_does_not_take(own):
    with pytest.raises(FedcanonError, match=r"made by make\(shape, classes, wdth=…\): .*'wdth'\.$"):
        own("model.name=my_nets.nets:make", "model.wdth=20")
