"""Identities of sites: Ed25519 keys, by which sites know each other whatever the server says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcanon.errors import FedcanonError
from fedcanon.files import explained, private_file

FILE = "identity"
"""The name of the file with a site's private key."""

SIGNATURE = 64
"""The bytes of a signature."""


@dataclass(frozen=True)
class Identity:
    """The private key of a site, with which it signs."""

    key: Ed25519PrivateKey

    @classmethod
    def new(cls) -> Identity:
        """Return an identity that nobody has had before."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def made_at(cls, path: Path) -> Identity:
        """Return the identity in a file; make it and store it at the first call.

        Raises:
            FedcanonError: The file cannot be read or written, or is damaged.
        """
        with explained(f"cannot write the identity {path}"), suppress(FileExistsError):
            cls.new().write(path)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Identity:
        """Return the identity in a file.

        Raises:
            FedcanonError: The file cannot be read or is damaged.
        """
        with explained(f"cannot read the identity {path}"):
            text = path.read_bytes()
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text.decode())))
        except ValueError:
            raise FedcanonError(
                f"{path} is damaged: put back a copy, or remove it, and tell the others the new "
                "identity that 'fedcanon site identity' then prints."
            ) from None

    def write(self, path: Path) -> None:
        """Write the identity to a new file, for its owner alone."""
        with private_file(path) as file:
            file.write(self.key.private_bytes_raw().hex().encode())

    @property
    def public(self) -> str:
        """What others know of it: its public key in hexadecimal digits."""
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        return self.key.sign(text)


def is_public_identity(text: str) -> bool:
    """Tell whether a text is a public identity."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        return False
    return True


def is_signed(public: str, signature: bytes, text: bytes) -> bool:
    """Tell whether the owner of a public identity has signed a text."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
