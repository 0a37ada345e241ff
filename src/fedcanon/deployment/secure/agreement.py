"""What clients sign before they reveal anything, so that all who do were told the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from fedcanon.deployment.secure.identity import is_signed
from fedcanon.deployment.secure.terms import Terms


def company(terms: Terms, keys: Mapping[int, str]) -> str:
    """Return the digest of all keys that a client was given: the same only for the same keys."""
    listed = (f"{client}:{keys[client]}" for client in sorted(keys))
    return sha256(terms.bind("company", *listed)).hexdigest()


@dataclass(frozen=True)
class Agreement:
    """All that the server has told a client about the others of a sum.

    Args:
        terms: The terms of the sum.
        keys: The signed keys of the clients among whom secrets were shared.
        senders: The clients whose boxes were passed on.
        survivors: The clients that have sent an update.
    """

    terms: Terms
    keys: Mapping[int, str]
    senders: Collection[int]
    survivors: Collection[int]

    @property
    def text(self) -> bytes:
        """What clients sign: different for any two agreements."""
        sets = (",".join(map(str, sorted(who))) for who in (self.senders, self.survivors))
        return self.terms.bind("confirm", company(self.terms, self.keys), *sets)

    def signers(self, identities: Sequence[str], signatures: Mapping[int, str]) -> set[int]:
        """Return the survivors that have signed exactly this.

        Args:
            identities: The public identities of all clients, in their order.
            signatures: What is said to be the signature of each client.
        """
        text = self.text
        return {
            client
            for client, signature in signatures.items()
            if client in self.survivors
            and is_signed(identities[client], bytes.fromhex(signature), text)
        }
