"""The parts of secure sums, each by itself: fixed point, masks, shares, identities."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.compression import Clip
from fedcanon.deployment.secure.identity import FILE, Identity, is_public_identity, is_signed
from fedcanon.deployment.secure.keys import PublicKeys
from fedcanon.deployment.secure.masks import agree, pair_mask, public_of, self_mask
from fedcanon.deployment.secure.ring import FixedPoint, entry_limit, scale_of, total_of
from fedcanon.deployment.secure.shares import join, seal, split, threshold, unseal
from fedcanon.deployment.secure.terms import Terms
from fedcanon.engines import Rules
from fedcanon.errors import DivergenceError
from fedcanon.penalties import Zero
from fedcanon.privacy import ClientPrivacy

TERMS = Terms("run", 1, 7, 4.0, "digest")
RNG = np.random.default_rng(0)
VECTORS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


def ring_of(encoded):
    return encoded.parts["values"].numpy().view(np.uint32)


class TestRing:
    @given(VECTORS, st.floats(1e-8, 1e3), st.integers(1, 500), st.floats(0.01, 1.0))
    def test_both_sides_move_by_the_same_numbers(self, values, scale, clients, weight):
        u = torch.tensor(values, dtype=torch.float64)
        point = FixedPoint(scale, clients, weight)
        encoded = point(u, RNG)
        assert encoded.kept is None
        received = total_of(ring_of(encoded), scale, clients)
        assert np.allclose(received, weight * encoded.vector.numpy(), rtol=1e-15, atol=0)
        assert np.abs(received).max() <= scale * (1 + 1e-12)
        shrunk = min(1.0, scale / max(float((weight * u).abs().max()), 1e-300))
        error = (encoded.vector - shrunk * u).abs().max() * weight
        assert float(error) <= point.step * (0.5 + 1e-6)

    @given(st.integers(1, 40), st.integers(0, 2**32 - 1))
    def test_no_sum_of_all_clients_wraps(self, clients, seed):
        rng = np.random.default_rng(seed)
        us = rng.choice([-4.0, 4.0, 3.99999, 0.1], (clients, 5))
        us[:, 0] = 4.0
        encoded = [FixedPoint(4.0, clients)(torch.from_numpy(u), RNG) for u in us]
        total = sum((ring_of(e) for e in encoded), np.zeros(5, np.uint32))
        exact = sum(e.vector.numpy() for e in encoded)
        assert np.allclose(total_of(total, 4.0, clients), exact, rtol=1e-12)

    def test_what_is_not_finite_is_never_sent(self):
        for bad in (float("nan"), float("inf")):
            with pytest.raises(DivergenceError, match="not finite"):
                FixedPoint(4.0, 3)(torch.tensor([1.0, bad]), RNG)

    def test_zero_stays_zero_and_single_precision_stays_single(self):
        encoded = FixedPoint(4.0, 3, dtype=torch.float32)(torch.zeros(3), RNG)
        assert encoded.vector.dtype == torch.float32
        assert not encoded.vector.any()

    def test_the_scale_follows_the_last_steps(self):
        rules = Rules(FedCanonPlus(), Zero())
        assert scale_of(rules, 10, 3, []) == 4.0
        assert scale_of(rules, 10, 3, [0.0]) == 4.0
        assert scale_of(rules, 10, 3, [9.0, 0.01, 0.02, 0.01, 0.01, 0.01]) == 16 * 0.02
        clipped = Rules(FedCanonPlus(), Zero(), compressor=Clip(0.3))
        assert scale_of(clipped, 10, 3, [9.0]) == 0.3

    @pytest.mark.parametrize("clients", [5, 12])
    def test_noise_travels_and_is_not_kept(self, clients):
        d, tau, s, minimum = 20_000, 0.5, 3.0, 5
        rules = Rules(FedCanonPlus(), Zero(), privacy=ClientPrivacy(tau, s, 1e-5))
        scale = scale_of(rules, clients, minimum, [1e-9])
        like = torch.zeros(d, dtype=torch.float64)
        point = FixedPoint.under(rules, scale, clients, 1.0, minimum, like)
        total, clean = np.zeros(d, np.uint32), np.zeros(d)
        for client in range(clients):
            u = torch.from_numpy(np.random.default_rng(client).standard_normal(d))
            encoded = point(u, RNG)
            again = point(u, RNG)
            assert torch.equal(encoded.kept, again.kept)
            assert not torch.equal(encoded.vector, again.vector)
            assert float(encoded.kept.norm()) <= tau + point.step * d**0.5 / 2
            assert float((encoded.kept - Clip(tau)(u, RNG).vector).abs().max()) <= point.step
            total, clean = total + ring_of(encoded), clean + encoded.kept.numpy()
        noise = total_of(total, scale, clients) - clean
        expected = s * (tau + point.step * d**0.5 / 2) * (clients / minimum) ** 0.5
        assert abs(noise.std() / expected - 1) < 6 / (2 * d) ** 0.5
        assert abs(noise.mean()) < 6 * expected / d**0.5
        assert np.abs(noise).max() < 6 * expected  # nothing has wrapped


class TestMasks:
    @given(
        st.integers(3, 7),
        st.integers(1, 30),
        st.integers(0, 2**32 - 1),
    )
    @settings(max_examples=30, deadline=None)
    def test_pair_masks_cancel_and_self_masks_can_be_made_again(self, n, d, seed):
        rng = np.random.default_rng(seed)
        keys = [rng.bytes(32) for _ in range(n)]
        seeds = [rng.bytes(32) for _ in range(n)]
        k = rng.integers(0, 2**32, (n, d), dtype=np.uint32)
        total = np.zeros(d, np.uint32)
        for i in range(n):
            masked = k[i] + self_mask(seeds[i], TERMS, i, d)
            for j in set(range(n)) - {i}:
                masked = masked + pair_mask(keys[i], public_of(keys[j]), TERMS, i, j, d)
            total = total + masked
        for i in range(n):
            total = total - self_mask(seeds[i], TERMS, i, d)
        assert np.array_equal(total, k.sum(0, dtype=np.uint32))

    def test_masks_differ_between_rounds_runs_generations_and_terms(self):
        seed, others = (
            bytes(range(32)),
            (
                Terms("other", 1, 7, 4.0, "digest"),
                Terms("run", 2, 7, 4.0, "digest"),
                Terms("run", 1, 8, 4.0, "digest"),
                Terms("run", 1, 7, 4.5, "digest"),
                Terms("run", 1, 7, 4.0, "another"),
            ),
        )
        masks = [self_mask(seed, terms, 0, 8).tobytes() for terms in (TERMS, *others)]
        masks.append(self_mask(seed, TERMS, 1, 8).tobytes())
        assert len(set(masks)) == len(masks)

    def test_a_mask_looks_uniform(self):
        mask = self_mask(bytes(32), TERMS, 0, 200_000).astype(np.float64) / 2**32
        assert abs(mask.mean() - 0.5) < 0.005
        assert abs(np.corrcoef(mask[1:], mask[:-1])[0, 1]) < 0.01

    def test_a_public_key_that_is_none_is_refused(self):
        for bad in (bytes(32), b"short"):
            with pytest.raises(FedcanonError, match="is none"):
                agree(bytes(range(32)), bad, b"")


class TestShares:
    @given(
        st.sets(st.integers(0, 400), min_size=3, max_size=12), st.binary(min_size=32, max_size=32)
    )
    @settings(max_examples=30, deadline=None)
    def test_the_threshold_puts_a_secret_together(self, holders, secret):
        shares = split(secret, holders)
        needed = threshold(len(holders))
        assert 3 * needed > 2 * len(holders)
        some = dict(sorted(shares.items(), reverse=True)[:needed])
        assert join(some, holders) == secret
        some.popitem()
        with pytest.raises(FedcanonError, match="shares have come"):
            join(some, holders)

    def test_a_box_opens_only_where_and_when_it_should(self):
        box = seal(bytes(32), b"content", TERMS, 1, 2)
        assert unseal(bytes(32), box, TERMS, 1, 2) == b"content"
        later = Terms("run", 1, 8, 4.0, "digest")
        assert unseal(bytes(32), box, later, 1, 2) is None
        assert unseal(bytes(32), box, TERMS, 2, 1) is None
        assert unseal(bytes(range(32)), box, TERMS, 1, 2) is None
        assert unseal(bytes(32), box[:-1], TERMS, 1, 2) is None
        assert unseal(bytes(32), b"", TERMS, 1, 2) is None


class TestIdentity:
    def test_it_is_made_once_and_for_its_owner_alone(self, tmp_path):
        file = tmp_path / FILE
        first = Identity.made_at(file)
        assert Identity.made_at(file).public == Identity.read(file).public == first.public
        assert file.stat().st_mode & 0o077 == 0
        assert is_public_identity(first.public)
        assert not is_public_identity(first.public[:-2])
        assert not is_public_identity("no hexadecimal digits")
        file.write_text("damaged")
        with pytest.raises(FedcanonError, match="is damaged"):
            Identity.made_at(file)
        with pytest.raises(FedcanonError, match="cannot read the identity"):
            Identity.read(tmp_path / "nowhere")
        with pytest.raises(FedcanonError, match="cannot write the identity"):
            Identity.made_at(tmp_path / "nowhere" / "identity")

    def test_a_signature_holds_for_one_text_of_one_owner(self):
        mine, other = Identity.new(), Identity.new()
        signature = mine.sign(b"text")
        assert is_signed(mine.public, signature, b"text")
        assert not is_signed(mine.public, signature, b"texts")
        assert not is_signed(other.public, signature, b"text")
        assert not is_signed(mine.public, b"", b"text")

    def test_keys_are_claimed_by_one_client_under_one_set_of_terms(self):
        keys, mine = PublicKeys.of(bytes(32), bytes(range(32)), bytes(32)), Identity.new()
        found, signature = PublicKeys.parsed(keys.signed(mine, TERMS, 3).hex())
        assert found == keys
        assert is_signed(mine.public, signature, found.claim(TERMS, 3))
        assert not is_signed(mine.public, signature, found.claim(TERMS, 4))
        other = Terms("run", 1, 7, 4.0, "another broadcast")
        assert not is_signed(mine.public, signature, found.claim(other, 3))
        with pytest.raises(FedcanonError, match="wrong length"):
            PublicKeys.parsed("ab")


def test_the_largest_entry_leaves_room_for_all():
    for clients in (1, 3, 10, 500):
        assert clients * entry_limit(clients) < 2**31
