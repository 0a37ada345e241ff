"""Clients on Ray: the same bits as in this process, also where actors and nodes die."""

import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from functools import cache

import pytest
import torch
from torch import nn

pytest.importorskip("ray")

import ray
from ray.cluster_utils import Cluster

from fedcanon import (
    FedcanonError,
    FedCanonII,
    FedCanonPlus,
    Federation,
    FlatModule,
    Problem,
    Quadratic,
)
from fedcanon.algorithms import FedADMM, Newton, Scaffnew
from fedcanon.compression import Identity, TopK
from fedcanon.engines import Local, Robust
from fedcanon.engines.ray_actors import RayCluster
from fedcanon.engines.ray_messages import pack, unpack
from fedcanon.objectives import ModuleClients
from fedcanon.objectives.module import ModuleTest
from fedcanon.penalties import L1
from fedcanon.robustness import Adversary
from fedcanon.runs.build import build
from fedcanon.runs.config import make_config
from fedcanon.runs.engine_choice import engine_for
from tests.problems import logistics, quadratics
from tests.waiting import until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("patient_ray"),
    pytest.mark.slow,  # an actor imports PyTorch when it starts
    # Ray leaves the files and processes of its services to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def short_lived_files():
    """A folder for what Ray keeps of its sessions; sockets need a short path."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        # Ray's workers would wait as long as others work.
        patch.setenv("RAY_worker_niceness", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def cluster(short_lived_files, patient_ray):
    """Two nodes of one processor each, which share nothing but this machine."""
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    found.add_node(num_cpus=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces what it will change
        found.connect()
    yield found
    ray.shutdown()
    found.shutdown()


def networks():
    """Six clients of a small network with batch normalisation, and a test."""
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    inputs, targets, loss = torch.randn(90, 4), torch.arange(90) % 3, nn.CrossEntropyLoss()
    clients = ModuleClients(flat, loss, inputs, targets, [20, 10, 15, 15, 20, 10])
    return Problem(clients, flat.vector, test=ModuleTest(clients[0]))


def large_quadratics():
    """Vectors that Ray lends from its object store; small ones it copies."""
    rng = torch.Generator().manual_seed(0)
    numbers = torch.rand(11, 20_000, generator=rng, dtype=torch.float64)
    return Problem([Quadratic(0.1 + a, b) for a, b in numbers[1:].split(2)], numbers[0])


def nodes_with_actors():
    """The node of each actor that lives; the public list needs Ray's dashboard."""
    actors = ray._private.state.actors().values()
    return [actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE"]


def wait_for_all(federation):
    """Until then those that are ready do the work of all."""
    actors = federation.engine._workers._actors.values()
    ray.get([actor.__ray_ready__.remote() for actor in actors])


def assert_no_actor_lives():
    until(lambda: not nodes_with_actors())


def assert_same(one, other):
    assert torch.equal(one.model, other.model)
    assert torch.equal(one.engine.buffers, other.engine.buffers)
    states, others = one.engine.clients, other.engine.clients
    assert states.keys() == others.keys()
    for client, state in states.items():
        assert pack(state).content == pack(others[client]).content
        assert all(map(torch.equal, _tensors(state), _tensors(others[client])))
    costs = [f.cost for f in (one, other)]
    for name in ("floats_up", "floats_down", "bytes_up", "bytes_down", "client_prox"):
        assert getattr(costs[0], name) == getattr(costs[1], name)
    evaluations = [f.engine.evaluate(f.model, gradient=True) for f in (one, other)]
    assert evaluations[0].losses == evaluations[1].losses
    assert evaluations[0].test == evaluations[1].test
    assert torch.equal(evaluations[0].gradient, evaluations[1].gradient)


def _tensors(state):
    return [value for value in state.values() if isinstance(value, torch.Tensor)]


def test_parameters_that_layers_share_stay_one_and_only_what_is_lent_is_not_copied():
    layer, data = nn.Linear(2, 2), torch.ones(64)
    tied = nn.Sequential(layer, nn.ReLU(), layer)
    packed = pack((tied, data, data[0]), read_only=[data])
    module, shared, copied = unpack(packed)
    assert module[0].weight is module[2].weight
    assert isinstance(module[0].weight, nn.Parameter)
    assert torch.equal(module[0].weight, layer.weight)
    assert len(packed.arrays) == 4
    assert shared.data_ptr() == data.data_ptr()
    assert copied.data_ptr() != data.data_ptr()


def test_a_problem_that_cannot_be_sent_is_refused():
    with pytest.raises(FedcanonError, match=r"cannot be sent to other machines.*lock"):
        pack({"lock": threading.Lock()})


@pytest.mark.parametrize("address", ["auto", "nowhere"])
def test_an_address_without_a_cluster_is_named(address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    # Else "auto" finds the cluster of tests that run at the same time.
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", cache(set))
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: None)
    with pytest.raises(FedcanonError, match=f"Ray cannot be used at {address}: "):
        Federation(quadratics(), FedCanonPlus(), L1(0.1), engine=RayCluster())


def test_a_missing_package_is_named(monkeypatch):
    config = make_config(None, {"engine": {"name": "ray"}})
    problem = quadratics()
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in ("ray_messages", "ray_actors"):
        monkeypatch.delitem(sys.modules, f"fedcanon.engines.{module}")
    with pytest.raises(FedcanonError, match=r'pip install "fedcanon\[ray\]"'):
        engine_for(config, problem, FedCanonPlus())


def test_only_processors_are_used():
    config = make_config(None, {"engine": {"name": "ray"}, "device": "cuda"})
    with pytest.raises(FedcanonError, match='device = "cpu"'):
        engine_for(config, quadratics(), FedCanonPlus())


def test_without_a_cluster_ray_is_started_on_this_machine_and_ended_with_the_last_run():
    data = {"name": "digits", "partition": "iid"}
    engine = {"name": "ray", "workers": 1}
    config = make_config(None, {"data": data, "engine": engine, "clients": {"count": 3}})
    federation, other = build(config), build(config)
    local = build(make_config(config, {"engine": {"name": "serial"}}))
    assert ray.cluster_resources()["CPU"] == 1
    for one in (federation, local):
        one.step()
    assert_same(federation, local)
    federation.engine.close()
    assert ray.is_initialized()
    other.engine.close()
    assert not ray.is_initialized()


def test_robust_rules_and_attacks_have_the_same_bits(cluster):
    settings = {
        "aggregation": Robust("filter", byzantine=1),
        "adversary": Adversary("sign_flip", (2,)),
        "participants": 5,
        "batch_size": 8,
    }
    one, other = (
        Federation(networks(), FedCanonPlus(0.1, 0.05, 2), L1(1e-3), engine=engine, **settings)
        for engine in (RayCluster(2), Local())
    )
    for _ in range(3):
        one.step()
        other.step()
    assert_same(one, other)
    assert (one.distances, one.drops) == (other.distances, other.drops)
    one.close()


@pytest.mark.parametrize(
    ("make_problem", "algorithm", "participants", "compressor"),
    [
        (logistics, FedCanonPlus(0.5, 0.1, 3), 4, TopK(0.3)),
        (large_quadratics, FedCanonII(0.2, 0.1, 2), None, Identity()),
        (large_quadratics, FedADMM(), 3, Identity()),
        (networks, Scaffnew(0.1, 3), None, Identity()),
        (quadratics, Newton(), None, Identity()),
    ],
    ids=["compressed", "everyone", "splitting", "network", "second order"],
)
def test_same_bits_as_in_this_process(cluster, make_problem, algorithm, participants, compressor):
    parts = (make_problem(), algorithm, L1(0.01))
    settings = {"participants": participants, "batch_size": 4, "compressor": compressor}
    local = Federation(*parts, **settings)
    remote = Federation(*parts, **settings, engine=RayCluster())
    assert remote.engine._workers.count == 2
    for federation in (local, remote):
        federation.step()
    wait_for_all(remote)
    for federation in (local, remote):
        for _ in range(3):
            federation.step()
    assert_same(local, remote)
    assert sorted(nodes_with_actors()) == sorted(node["NodeID"] for node in ray.nodes())
    remote.engine.close()
    assert ray.is_initialized()
    assert_no_actor_lives()


class Moody(Quadratic):
    """Does in an actor what the words in a file say, one word for each gradient."""

    def __init__(self, plain, orders):
        super().__init__(plain.A, plain.b)
        self._orders, self._home = orders, os.getpid()

    def gradient(self, x, batch=None):
        word, _, rest = self._orders.read_text().partition(" ")
        if os.getpid() != self._home:
            self._orders.write_text(rest)
            if word == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if word == "fail":
                raise ValueError("enough")
        return super().gradient(x, batch)


def test_an_actor_that_dies_is_replaced_until_there_is_no_hope(cluster, tmp_path):
    orders = tmp_path / "orders"
    orders.write_text("")
    plain = quadratics(clients=5)
    clients = [*plain.clients[:3], Moody(plain.clients[3], orders), plain.clients[4]]
    settings = (Problem(clients, plain.start), FedCanonPlus(0.2, 0.1, 2), L1(0.1))
    local = Federation(*settings)
    remote = Federation(*settings, engine=RayCluster(1))
    for federation in (local, remote):
        federation.step()
        orders.write_text("peace die")
        federation.step()
    assert orders.read_text() == ""
    assert_same(local, remote)
    orders.write_text("die die die")
    with pytest.raises(FedcanonError, match="ended 3 times"):
        remote.step()
    orders.write_text("fail")
    with pytest.raises(FedcanonError, match="client 3 failed in round 2: ValueError: enough"):
        remote.step()
    assert_no_actor_lives()
    assert torch.equal(local.model, remote.model)


def slow_product(setup, factor, number):
    time.sleep(0.3)
    return factor * number


def test_work_goes_on_elsewhere_when_a_node_dies(cluster, monkeypatch):
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    parts = (logistics(), FedCanonPlus(0.5, 0.1, 3), L1(0.01))
    settings = {"participants": 4, "batch_size": 4}
    local = Federation(*parts, **settings)
    remote = Federation(*parts, **settings, engine=RayCluster())
    for federation in (local, remote):
        federation.step()
    wait_for_all(remote)
    results = remote.engine._workers.map(slow_product, torch.ones(2), range(12))
    found = dict([next(results)])
    (node,) = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)
    found.update(results)
    assert {number: float(result.sum()) / 2 for number, result in found.items()} == {
        number: number for number in range(12)
    }
    for federation in (local, remote):
        federation.step()
    assert_same(local, remote)
    remote.engine.close()
    assert not ray.is_initialized()
