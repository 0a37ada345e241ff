"""What alters an upload can be drawn from a secret of the client's own."""

import stat

import pytest
import torch

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.checkpoint import Checkpoints
from fedcanon.compression import RandomK
from fedcanon.deployment import Message, Participant
from fedcanon.deployment.ledger import Ledger, own_secret
from fedcanon.deployment.protocol import packed
from fedcanon.engines import Rules
from fedcanon.penalties import L1
from tests.problems import quadratics


def upload(secret):
    problem = quadratics(clients=1, d=50)
    rules = Rules(FedCanonPlus(0.5, 0.1, 2), L1(0.1), compressor=RandomK(0.1))
    start = problem.start
    content = {"z": start, "c": 0 * start, "v": 0 * start, "beta": 0.1, "damping": 1.0}
    content["buffers"] = torch.empty(0)
    message = Message("id", 0, "train", "run", 1, 0, packed(content))
    reply = Participant(0, rules, problem.clients[0], secret=secret).answer(message)
    assert reply.kind == "update", reply.reason
    return reply.content["u"].vector


def test_a_secret_changes_what_is_drawn_and_nothing_else():
    by_seed, one, other = upload(None), upload(7), upload(8)
    assert torch.equal(upload(7), one)
    assert torch.equal(upload(None), by_seed)
    chosen = [set(u.nonzero().view(-1).tolist()) for u in (by_seed, one, other)]
    assert all(len(places) == 5 for places in chosen)
    assert chosen[0] != chosen[1] != chosen[2] != chosen[0]


def test_a_client_draws_its_secret_once_and_nobody_else_may_read_it(tmp_path):
    folder = tmp_path / "states"
    first = own_secret(folder)
    assert own_secret(folder) == first != own_secret(tmp_path / "others")
    assert first.bit_length() > 64
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "no number"])
def test_a_damaged_secret_is_named(tmp_path, text):
    (tmp_path / "secret").write_text(text)
    with pytest.raises(FedcanonError, match="secret"):
        own_secret(tmp_path)


@pytest.mark.parametrize(
    "stored",
    [{}, {"pending": 3}, {"pending": {"upload": 3}}, {"pending": None, "odd": 1}],
)
def test_a_ledger_with_odd_content_is_reported(stored, tmp_path):
    Checkpoints(tmp_path).save(1, stored)
    with pytest.raises(FedcanonError, match="has stored of the run is damaged"):
        Ledger(Checkpoints(tmp_path)).load()


def test_the_folder_of_a_secret_is_for_its_owner_alone(tmp_path):
    own_secret(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
