"""The public keys of a client for one secure sum."""

from __future__ import annotations

from dataclasses import dataclass

from fedcanon.deployment.secure.identity import SIGNATURE, Identity
from fedcanon.deployment.secure.masks import SECRET, derive, public_of
from fedcanon.deployment.secure.terms import Terms
from fedcanon.errors import FedcanonError

_LENGTH = 3 * SECRET + SIGNATURE


@dataclass(frozen=True)
class PublicKeys:
    """Two public keys, and a commitment to the seed of the self mask.

    Whoever puts a secret together from shares sees by them whether it is the right one.
    """

    sealing: bytes
    pairing: bytes
    commitment: bytes

    @classmethod
    def of(cls, sealing: bytes, pairing: bytes, seed: bytes) -> PublicKeys:
        """Return what others may know of two private keys and a seed."""
        return cls(public_of(sealing), public_of(pairing), committed(seed))

    @classmethod
    def parsed(cls, text: str) -> tuple[PublicKeys, bytes]:
        """Return the keys and the signature in hexadecimal digits.

        Raises:
            FedcanonError: The text has another length.
        """
        found = bytes.fromhex(text)
        if len(found) != _LENGTH:
            raise FedcanonError("the keys of a client for a secure sum have a wrong length.")
        parts = (found[k : k + SECRET] for k in range(0, 3 * SECRET, SECRET))
        return cls(*parts), found[3 * SECRET :]

    def claim(self, terms: Terms, client: int) -> bytes:
        """Return what the client signs: that these are its keys, under these terms."""
        keys = self.sealing + self.pairing + self.commitment
        return terms.bind("keys", client, keys.hex())

    def signed(self, identity: Identity, terms: Terms, client: int) -> bytes:
        """Return the keys, followed by the signature of their owner."""
        signature = identity.sign(self.claim(terms, client))
        return self.sealing + self.pairing + self.commitment + signature


def committed(seed: bytes) -> bytes:
    """Return a commitment to a seed, which does not tell the seed."""
    return derive(seed, b"fedcanon secure sum 1|commitment")
