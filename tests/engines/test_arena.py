"""Messages whose tensors lie in shared memory."""

import multiprocessing
from dataclasses import dataclass

import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.engines.arena import Arena

FORK = multiprocessing.get_context("fork")


@dataclass
class Message:
    numbers: dict[str, float]
    vectors: dict[str, torch.Tensor]


def require_equal(found, expected):
    assert found.numbers == expected.numbers
    for name, vector in expected.vectors.items():
        assert found.vectors[name].dtype == vector.dtype
        assert torch.equal(found.vectors[name], vector)


def message():
    vectors = {
        "u": torch.randn(1000),
        "v": torch.arange(7),
        "empty": torch.empty(0),
        "matrix": torch.randn(3, 4, dtype=torch.float64).T,
        "number": torch.tensor(2.5),
    }
    return Message({"beta": 0.1}, vectors)


def test_a_message_arrives_as_it_was_and_takes_few_bytes():
    arena, sent = Arena(2, 2**20), message()
    arena.begin(1)
    packed = arena.dump(sent)
    require_equal(arena.load(packed), sent)
    assert len(packed) < 600


def reply(arena, sent, connection):
    arena.begin(1)
    received = arena.load(sent)
    connection.send_bytes(arena.dump({name: 2 * v for name, v in received.vectors.items()}))


def test_another_process_sees_the_same_memory():
    arena, sent = Arena(2, 2**20), message()
    arena.begin(0)
    ours, its = FORK.Pipe()
    process = FORK.Process(target=reply, args=(arena, arena.dump(sent), its))
    process.start()
    doubled = arena.load(ours.recv_bytes())
    process.join()
    for name, vector in sent.vectors.items():
        assert torch.equal(doubled[name], 2 * vector)


def test_a_message_that_does_not_fit_is_refused():
    arena = Arena(1, 1000)
    arena.begin(0)
    with pytest.raises(FedcanonError, match="a message is larger"):
        arena.dump(torch.zeros(1000))
