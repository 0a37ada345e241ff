"""Shares of secrets among the clients of a sum, sealed so that the server can only pass them on."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedcanon.deployment.secure.masks import SECRET
from fedcanon.deployment.secure.terms import Terms
from fedcanon.errors import FedcanonError

_BLOCK = 16
"""The bytes of a secret that are shared at once, in the field of 2¹²⁸ elements."""


def threshold(holders: int) -> int:
    """Return how many of so many holders are needed to put a secret together."""
    return 2 * holders // 3 + 1


def split(secret: bytes, holders: Collection[int]) -> dict[int, bytes]:
    """Divide a secret into a share for each holder; fewer than the threshold tell nothing."""
    n = len(holders)
    blocks = [
        Shamir.split(threshold(n), n, secret[k : k + _BLOCK], False)
        for k in range(0, SECRET, _BLOCK)
    ]
    shares = (b"".join(share for _, share in parts) for parts in zip(*blocks, strict=True))
    return dict(zip(sorted(holders), shares, strict=True))


def join(shares: Mapping[int, bytes], holders: Collection[int]) -> bytes:
    """Put a secret together again; wrong shares give a wrong one.

    Args:
        shares: The shares that were revealed, by their holders.
        holders: All to whom a share was dealt.

    Raises:
        FedcanonError: There are too few shares.
    """
    needed, place = threshold(len(holders)), {c: k for k, c in enumerate(sorted(holders), start=1)}
    chosen = sorted(shares)[:needed]
    if len(chosen) < needed:
        raise FedcanonError(f"only {len(chosen)} of {needed} shares have come")
    return b"".join(
        Shamir.combine([(place[c], shares[c][k : k + _BLOCK]) for c in chosen], False)
        for k in range(0, SECRET, _BLOCK)
    )


def seal(key: bytes, content: bytes, terms: Terms, sender: int, receiver: int) -> bytes:
    """Encrypt what a client sends to another one; ``key`` must be for this direction only."""
    return ChaCha20Poly1305(key).encrypt(*_envelope(content, terms, sender, receiver))


def unseal(key: bytes, box: bytes, terms: Terms, sender: int, receiver: int) -> bytes | None:
    """Decrypt what ``seal`` has encrypted; None if that client has not sealed it for this sum."""
    try:
        return ChaCha20Poly1305(key).decrypt(*_envelope(box, terms, sender, receiver))
    except InvalidTag:
        return None


def _envelope(
    content: bytes, terms: Terms, sender: int, receiver: int
) -> tuple[bytes, bytes, bytes]:
    nonce = sender.to_bytes(6, "big") + receiver.to_bytes(6, "big")
    return nonce, content, terms.bind("box", sender, receiver)
