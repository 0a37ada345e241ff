"""Flower as the carrier: records, its simulation runtime, the app that is written for users."""

import json
import shutil
import subprocess
import sys
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedcanon import FedcanonError, FedCanonPlus, Federation, train
from fedcanon.compression import Identity, Quantise, TopK
from fedcanon.deployment.flower import apps
from fedcanon.deployment.flower.wire import (
    presence_to_records,
    to_message,
    to_presence,
    to_records,
    to_reply,
)
from fedcanon.deployment.protocol import LosslessVector, Message, Presence, Reply, packed
from fedcanon.penalties import L1
from fedcanon.runs.config import load_config
from tests.deployment.network import World
from tests.problems import quadratics

pytestmark = [
    pytest.mark.flower,
    # Ray leaves the files and processes of its services to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


def sparse_vector(size=1000):
    vector = torch.zeros(size)
    vector[::50] = torch.randn(size // 50)
    return vector


@pytest.mark.parametrize("compressor", [Identity(), TopK(0.1), Quantise(4)])
def test_what_is_sent_arrives(compressor, tmp_path):
    z, u = sparse_vector(), torch.randn(1000)
    content = packed({"z": z, "e": torch.randn(1000), "beta": 0.1, "cycles": 3, "last": False})
    message = Message("id", 3, "train", "run", 2, 7, content, keeps=True, ack="before")
    arrived = to_message(to_records(message))
    assert arrived.ack == "before"
    assert torch.equal(arrived.content["z"].vector, z)
    assert {k: arrived.content[k] for k in ("beta", "cycles", "last")} == {
        "beta": 0.1,
        "cycles": 3,
        "last": False,
    }
    encoded = compressor(u, np.random.default_rng(0))
    reply = Reply("id", 3, "update", 2, 7, {**packed({"buffers": torch.empty(0)}), "u": encoded})
    back = to_reply(to_records(reply), compressor, {1000, 0})
    assert torch.equal(back.content["u"].vector, encoded.vector)
    assert not isinstance(back.content["u"], LosslessVector)


def test_a_sparse_vector_travels_by_its_entries():
    records = to_records(Message("id", 0, "train", "run", 1, 0, packed({"z": sparse_vector()})))
    assert sum(len(array.data) for array in records.array_records["arrays"].values()) < 600


GOOD = to_records(Reply("id", 0, "update", 1, 0, packed({"u": torch.ones(10)})))


def header(**changes):
    return {**json.loads(GOOD.config_records["header"]["json"]), **changes}


@pytest.mark.parametrize(
    "records",
    [
        RecordDict(),
        RecordDict({"header": ConfigRecord({"json": "{]"})}),
        RecordDict({"header": ConfigRecord({"json": "[]"}), "arrays": ArrayRecord({})}),
        RecordDict({"header": ConfigRecord({"json": json.dumps(header())})}),
        RecordDict(
            {"header": ConfigRecord({"json": json.dumps(header())}), "arrays": ArrayRecord({})}
        ),
        *(
            RecordDict(
                {
                    "header": ConfigRecord({"json": json.dumps(header(**changes))}),
                    "arrays": GOOD.array_records["arrays"],
                }
            )
            for changes in (
                {"content": {"u": {"lossless": 10**12}}},
                {"content": {"u": {"lossless": 9}}},
                {"content": {"u": {"compressed": 10, "lossless": 10}}},
                {"content": {"v": {"lossless": 10}}},
                {"content": 3},
                {"seconds": "long"},
                {"generation": "x"},
                {"generation": 1e300},
                {"generation": 2**62},
                {"update": 7},
                {"base": "b" * 10_000},
            )
        ),
    ],
)
def test_what_a_stranger_sends_is_refused_in_words(records):
    with pytest.raises(FedcanonError, match="malformed"):
        to_reply(records, Identity(), {10})


def test_columns_of_a_table_are_taken_without_a_warning():
    config = load_config(settings=["deployment.shape=[2]", "deployment.classes=2"])
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0], "label": [0, 1]})
    inputs, labels = table[["a", "b"]].to_numpy("float32"), table["label"].to_numpy()
    assert not labels.flags.writeable
    split = apps._split(config, (inputs, labels), "training")
    assert split.targets.tolist() == [0, 1]
    assert torch.equal(split.inputs, torch.tensor([[1.0, 0.0], [2.0, 1.0]]))


def test_who_is_there_is_told_and_checked():
    assert to_presence(presence_to_records(4, Presence(10, 2))) == (4, Presence(10, 2))
    told = {"client": 1, "samples": 5, "held_out": 0}
    changes = ({"client": -1}, {"samples": 0}, {"samples": 10**15}, {"held_out": -2})
    bads = [RecordDict({"presence": ConfigRecord({**told, **change})}) for change in changes]
    for bad in (RecordDict(), RecordDict({"presence": ConfigRecord({"client": "x"})}), *bads):
        with pytest.raises(FedcanonError, match="malformed"):
            to_presence(bad)


@pytest.fixture(scope="module")
def eager_ray(patient_ray):
    """Let Ray's workers take turns with others, on which they would wait as long as these work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="module")
def one_ray(eager_ray):
    """One Ray for all simulations, with one processor; each simulation has an actor of its own."""
    import ray

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces what it will change
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        patch.setattr(ray, "shutdown", lambda: None)  # with which Flower ends a simulation
        yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("state", "started"), [("server", "eager_ray"), ("client", "one_ray")])
def test_the_simulation_runtime_gives_the_bits_of_the_local_engine(
    state, started, tmp_path, request
):
    import ray

    request.getfixturevalue(started)
    settings = {"rounds": 3, "clients": {"count": 4, "participants": 3}, "model": "linear"}
    local = train(settings, engine={"name": "serial", "vectorised": False})
    flower = train(
        settings, engine={"name": "flower"}, deployment={"state": state}, folder=tmp_path / "run"
    )
    assert torch.equal(flower.vector, local.vector)
    for ours, theirs in zip(flower.records, local.records, strict=True):
        assert (ours.loss, ours.gradient_norm, ours.test) == (
            theirs.loss,
            theirs.gradient_norm,
            theirs.test,
        )
    assert (tmp_path / "run" / "clients").exists() == (state == "client")
    assert ray.is_initialized() == (started == "one_ray")


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("attack", ["sign_flip", "label_flip"])
def test_attacks_and_robust_rules_have_the_bits_of_the_local_engine(attack):
    settings = {
        "rounds": 3,
        "clients": {"count": 5},
        "model": "linear",
        "robust": {"byzantine": 1},
        "adversary": {"attack": attack, "clients": [2]},
    }
    local = train(settings, engine={"name": "serial", "vectorised": False})
    flower = train(settings, engine={"name": "flower"})
    assert torch.equal(flower.vector, local.vector)
    assert [r.distances for r in flower.records] == [r.distances for r in local.records]
    assert [r.drops for r in flower.records] == [r.drops for r in local.records]


def test_real_clients_are_not_told_to_attack():
    settings = ["model.name=linear", "adversary.attack=ipm", "adversary.clients=1"]
    with pytest.raises(FedcanonError, match="adversary is for simulations"):
        apps.serve(load_config(settings=settings), None, None)


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("state", ["server", "client"])
def test_uploads_that_are_longer_than_the_model_arrive(state):
    settings = {"rounds": 3, "clients": {"count": 2}, "model": "linear", "algorithm": "newton"}
    local = train(settings, engine={"name": "serial"})
    flower = train(settings, engine={"name": "flower"}, deployment={"state": state})
    assert torch.equal(flower.vector, local.vector)


def test_data_of_ones_own_cannot_be_sent_to_flower():
    from fedcanon.data import from_arrays

    dataset = from_arrays((torch.randn(40, 3), torch.arange(40) % 2))
    with pytest.raises(FedcanonError, match="name them in the configuration"):
        train(dataset=dataset, engine={"name": "flower"})


class TestInit:
    def test_an_app_is_written_with_all_that_it_needs(self, fedcanon, tmp_path):
        code, out, _ = fedcanon(
            *("deploy", "init", str(tmp_path / "three"), "--clients", "3"),
            *("--set", "model.name=linear"),
        )
        assert code == 0
        assert "ready for 3 clients" in out
        app = tmp_path / "three"
        project = tomllib.loads((app / "pyproject.toml").read_text())
        assert project["tool"]["flwr"]["app"]["components"]["serverapp"] == "app.server:app"
        assert project["tool"]["flwr"]["app"]["config"]["folder"] == str(app / "run")
        config = load_config(app / "app" / "run.toml")
        assert (config.deployment.shape, config.deployment.classes) == ([64], 10)
        for secret in (app, app / "server" / "server.key", app / "sites" / "2" / "key"):
            assert secret.stat().st_mode & 0o077 == 0
        readme = (app / "README.md").read_text()
        assert readme.count("fedcanon site start ") == 3
        assert "{{" not in readme

    def test_what_is_configured_stays_and_needs_no_data(self, fedcanon, tmp_path):
        code, out, _ = fedcanon(
            *("deploy", "init", str(tmp_path / "app"), "--set", "model.name=linear"),
            *("--set", "clients.count=4", "--set", "deployment.shape=[7]"),
            *("--set", "deployment.classes=3"),
            *("--set", "data.name=table", "--set", "data.path=nowhere.csv"),
            *("--set", "data.label=disease"),
        )
        assert code == 0
        assert "ready for 4 clients" in out
        config = load_config(tmp_path / "app" / "app" / "run.toml")
        assert (config.deployment.shape, config.deployment.classes) == ([7], 3)
        assert config.clients.count == 4

    def test_the_certificate_is_valid_for_its_hosts_only(self, fedcanon, tmp_path):
        folder = tmp_path / "app"
        code, _, _ = fedcanon(
            *("deploy", "init", str(folder), "--host", "fl.example.org", "--host", "10.0.0.7"),
            *("--set", "model.name=linear"),
        )
        assert code == 0
        if shutil.which("openssl") is None:
            pytest.fail("openssl is needed to check certificates")
        verify = ["openssl", "verify", "-CAfile", folder / "server" / "ca.pem"]
        server = folder / "server" / "server.pem"
        for option, host, valid in (
            ("-verify_hostname", "fl.example.org", True),
            ("-verify_ip", "10.0.0.7", True),
            ("-verify_hostname", "other.example.org", False),
        ):
            done = subprocess.run([*verify, option, host, server], capture_output=True)
            assert (done.returncode == 0) == valid

    def test_an_existing_folder_is_left_alone(self, fedcanon, tmp_path):
        (tmp_path / "note").write_text("mine")
        code, _, err = fedcanon("deploy", "init", str(tmp_path))
        assert code == 2
        assert "exists already" in err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["note"]

    def test_status_of_what_is_no_deployment_or_has_not_begun(self, fedcanon, tmp_path):
        code, _, err = fedcanon("deploy", "status", str(tmp_path))
        assert code == 2
        assert "fedcanon deploy init" in err
        fedcanon("deploy", "init", str(tmp_path / "app"), "--set", "model.name=linear")
        code, _, err = fedcanon("deploy", "status", str(tmp_path / "app"))
        assert code == 2
        assert "no round has been done yet" in err

    def test_without_flower_the_extra_is_named(self, fedcanon, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "cryptography", None)
        monkeypatch.delitem(sys.modules, "fedcanon.deployment.app", raising=False)
        monkeypatch.delitem(sys.modules, "fedcanon.deployment.app.project", raising=False)
        monkeypatch.delitem(sys.modules, "fedcanon.deployment.app.credentials", raising=False)
        monkeypatch.delitem(sys.modules, "fedcanon.deployment.app.sites", raising=False)
        code, _, err = fedcanon("deploy", "init", str(tmp_path / "app"))
        assert code == 2
        assert 'pip install "fedcanon[flower]"' in err


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("deployed", "local"), ("local", "deployed")])
def test_a_run_does_not_change_between_flower_and_other_engines(first, then):
    world = World(quadratics(clients=2, d=3), FedCanonPlus(0.5, 0.1, 3), L1(0.1), "server")
    local = Federation(world.problem, world.algorithm, world.penalty)
    federations = {"deployed": world.federation, "local": local}
    with pytest.raises(FedcanonError, match="on Flower"):
        federations[then].load(federations[first].state())
