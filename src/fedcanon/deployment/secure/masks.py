"""Masks: uniform vectors in Z_2³² that two clients, or a client and its seed, can both make."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedcanon.deployment.secure.terms import Terms
from fedcanon.errors import FedcanonError

SECRET = 32
"""The bytes of a key or seed."""

Ring = NDArray[np.uint32]
"""A vector over Z_2³², whose arithmetic is that of unsigned 32-bit numbers."""


def public_of(private: bytes) -> bytes:
    """Return the public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Return a key for one purpose from a secret."""
    return HKDF(hashes.SHA256(), SECRET, None, purpose).derive(secret)


def agree(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose that the owners of two keys have in common.

    Raises:
        FedcanonError: The public key is none.
    """
    try:
        other = X25519PublicKey.from_public_bytes(public)
        shared = X25519PrivateKey.from_private_bytes(private).exchange(other)
    except ValueError:
        raise FedcanonError("a public key for secure sums is none.") from None
    return derive(shared, purpose)


def self_mask(seed: bytes, terms: Terms, client: int, size: int) -> Ring:
    """Return the mask that a client adds to its own update."""
    return _stream(derive(seed, terms.bind("self", client)), size)


def pair_mask(private: bytes, public: bytes, terms: Terms, own: int, other: int, size: int) -> Ring:
    """Return what client ``own`` adds because of client ``other``, who adds the opposite.

    Args:
        private: The pairing key of one of them.
        public: The public pairing key of the one that is not the owner of ``private``.
        terms: The terms of the sum.
        own: The client that adds this mask.
        other: The client that adds the opposite.
        size: The number of entries.
    """
    low, high = sorted((own, other))
    mask = _stream(agree(private, public, terms.bind("pair", low, high)), size)
    return mask if own == low else np.negative(mask)


def _stream(key: bytes, size: int) -> Ring:
    """Return the first numbers of the ChaCha20 stream of a key, which is used for nothing else."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    return np.frombuffer(stream.update(bytes(4 * size)), dtype="<u4")
