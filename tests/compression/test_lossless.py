"""A vector by its entries other than 0: the same bits, never more bytes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcanon.compression import Lossless

entries = st.one_of(
    st.just(0.0), st.just(0.0), st.just(-0.0), st.floats(width=32), st.just(float("nan"))
)


def bits(vector):
    return vector.view(torch.int32)


@given(st.lists(entries, max_size=300))
def test_the_bits_come_back_and_never_take_more_room(numbers):
    u = torch.tensor(numbers, dtype=torch.float32)
    parts = Lossless().encode(u)
    assert torch.equal(bits(Lossless().decode(parts, len(u))), bits(u))
    assert sum(part.numel() * part.element_size() for part in parts.values()) <= 4 * len(u)


def test_the_shortest_form_is_taken():
    d = 70_000
    for kept, expected in (
        (d, {"values"}),
        (d // 2, {"values", "bits"}),
        (9, {"values", "indices"}),
    ):
        u = torch.zeros(d)
        u[:kept] = 1.0
        parts = Lossless().encode(u)
        assert parts.keys() == expected
        sizes = {name: part.numel() * part.element_size() for name, part in parts.items()}
        assert sizes["values"] == 4 * kept
        assert sizes.get("bits", d // 8) == d // 8
        assert sizes.get("indices", 36) == 36
