"""``fedcanon data`` as a user types it."""

from functools import partial

import numpy as np
import pytest
import torch

from fedcanon.data import DATASETS
from fedcanon.data.partition.skew import label_counts, label_skew, size_skew
from fedcanon.report.partition import client_table, plot_partition


@pytest.fixture
def data(fedcanon):
    """Run ``fedcanon data`` in this process; the exit code, standard output and standard error."""
    return partial(fedcanon, "data")


def test_a_few_clients_are_listed(data):
    code, out, _ = data("digits")
    assert code == 0
    for expected in (
        "1,437 training and 360 test samples · 10 classes · inputs 64",
        "dirichlet:0.2",
        "7        257          6            36.6%",
        "9         23          5            52.2%",
        "label skew 0.528",
        "size skew  0.436",
    ):
        assert expected in out
    assert max(map(len, out.splitlines())) <= 80


def test_many_clients_are_summarised(data):
    code, out, _ = data("digits", "--partition", "quantity:0.5", "--clients", "300", "--seed", "3")
    assert code == 0
    assert "median" in out
    assert len(out.splitlines()) < 20
    assert max(map(len, out.splitlines())) <= 80
    assert data("digits", "--partition", "quantity:0.5", "--clients", "300")[1] != out


@pytest.mark.parametrize("clients", ["1", "10", "60", "700"])
def test_a_picture_is_written(data, tmp_path, clients):
    path = tmp_path / "partition.png"
    code, out, _ = data("digits", "--clients", clients, "--plot", str(path))
    assert code == 0
    assert "picture written to" in out
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_note_is_shown(data, monkeypatch):
    from dataclasses import replace

    digits = DATASETS["digits"]()
    monkeypatch.setitem(DATASETS, "digits", lambda: replace(digits, note="subset [of 7]"))
    assert "note subset [of 7]" in data("digits")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digit",), "did you mean 'digits'?"),
        (("digits", "--partition", "fair"), "no partition called 'fair'"),
        (("digits", "--partition", "users"), "does not know its users"),
        (("digits", "--clients", "800"), "too few for 800 clients"),
        (("digits", "--plot", "absent/partition.png"), "cannot write the picture"),
        (("digits", "--clients", "0"), "--clients"),
        ((), "NAME"),
    ],
)
def test_mistakes_end_with_a_message_and_code_two(data, arguments, message):
    code, _, err = data(*arguments)
    assert code == 2
    assert message.lower() in err.lower()
    assert "Traceback" not in err


def test_counts_and_skews_by_hand():
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    counts = label_counts(labels, [torch.tensor([0, 1, 2, 3]), torch.tensor([5, 4])], 4)
    assert counts.tolist() == [[2, 2, 0, 0], [0, 0, 2, 0]]
    assert label_skew(counts) == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert size_skew(counts) == pytest.approx(1 / 3)


def test_circles_have_areas_as_the_counts():
    axes = plot_partition(np.array([[4, 0], [1, 2]]), "two clients").axes[0]
    circles = axes.collections[0]
    assert circles.get_offsets().tolist() == [[0, 0], [1, 0], [1, 1]]
    sizes = circles.get_sizes()
    assert sizes / sizes.max() == pytest.approx([1, 0.25, 0.5])


def test_the_heat_map_shows_the_shares_of_all_clients():
    counts = np.eye(3, dtype=np.int64)[np.arange(900) % 3] * 5
    shares = np.asarray(plot_partition(counts, "many clients").axes[1].images[0].get_array())
    assert shares.shape == (3, 400)
    assert shares.sum(0) == pytest.approx(np.ones(400))
    assert client_table(counts).row_count == 5
