"""The server's part in one secure sum: what clients have sent so far, and the sum in the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fedcanon.algorithms import State
from fedcanon.compression import Encoded
from fedcanon.deployment.secure.agreement import Agreement
from fedcanon.deployment.secure.identity import is_signed
from fedcanon.deployment.secure.keys import PublicKeys, committed
from fedcanon.deployment.secure.masks import (
    SECRET,
    Ring,
    agree,
    pair_mask,
    public_of,
    self_mask,
)
from fedcanon.deployment.secure.ring import UPLOAD, VALUES
from fedcanon.deployment.secure.shares import join, threshold
from fedcanon.deployment.secure.terms import Terms
from fedcanon.deployment.validity import Fault
from fedcanon.errors import FedcanonError

_BOX = 2 * SECRET + 16
"""The bytes of two sealed shares."""

_ANY_KEY = bytes(range(SECRET))
"""A private key that hides nothing, to try public keys with."""


@dataclass
class SecureSum:
    """The state of one secure sum on the server.

    Each of its phases takes the answers of clients that have come through the one before. What is
    wrong with an answer is raised as a ``FedcanonError``, and nothing of the answer is used.

    Args:
        terms: What all clients of this sum agree on.
        identities: The public identities of all clients, in their order.
        minimum: The smallest number of clients whose sum counts.
        size: The number of entries of an update.
        keys: The keys that clients have advertised, with their signatures.
        boxes: The sealed shares from each client, by receiver.
        survivors: The clients whose updates are in the sum, with the names of these updates.
        signatures: What survivors have signed, so that others reveal their shares.
        revealed: The shares that clients have revealed: of which client, and by whom.
    """

    terms: Terms
    identities: Sequence[str]
    minimum: int
    size: int
    keys: dict[int, str] = field(default_factory=dict)
    boxes: dict[int, dict[int, str]] = field(default_factory=dict)
    survivors: dict[int, str] = field(default_factory=dict)
    signatures: dict[int, str] = field(default_factory=dict)
    revealed: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._masked: Ring = np.zeros(self.size, dtype=np.uint32)

    def is_enough(self, clients: Collection[int]) -> bool:
        """Tell whether the sum can go on with so many clients."""
        return len(clients) >= max(self.minimum, threshold(len(self.keys)))

    def advertise(self, client: int, sent: Mapping[int, str]) -> None:
        """Take the signed keys of a client."""
        _require(sent.keys() == {client}, "keys that are not its own")
        keys, signature = PublicKeys.parsed(sent[client])
        signed = is_signed(self.identities[client], signature, keys.claim(self.terms, client))
        _require(signed, "keys that its identity has not signed")
        for public in (keys.sealing, keys.pairing):
            agree(_ANY_KEY, public, b"")  # raises an error if it is no key
        self.keys[client] = sent[client]

    def share(self, client: int, sent: Mapping[int, str]) -> None:
        """Take the boxes of a client for all others and itself."""
        fits = sent.keys() == self.keys.keys() and all(
            len(box) == 2 * _BOX for box in sent.values()
        )
        _require(fits, "boxes that are malformed")
        self.boxes[client] = dict(sent)

    def boxes_for(self, client: int) -> dict[int, str]:
        """Return the boxes that others have sent to a client."""
        return {sender: boxes[client] for sender, boxes in self.boxes.items()}

    def add(self, client: int, update: str, content: State) -> None:
        """Take the masked update of a client, of which only the form can be checked."""
        entry = content.get(UPLOAD)
        if not (content.keys() == {UPLOAD} and isinstance(entry, Encoded)):
            raise FedcanonError(Fault.MALFORMED)
        masked = entry.parts.get(VALUES, torch.empty(0))
        fits = masked.dtype == torch.int32 and masked.shape == (self.size,)
        _require(fits and bool(update) and client not in self.survivors, Fault.MALFORMED)
        self._masked += masked.numpy().view(np.uint32)
        self.survivors[client] = update

    def confirm(self, client: int, sent: Mapping[int, str]) -> None:
        """Take a client's signature of what all were told."""
        agreement = Agreement(self.terms, self.keys, self.boxes, self.survivors)
        signed = sent.keys() == {client} == agreement.signers(self.identities, sent)
        _require(signed, "no signature of what it was told")
        self.signatures[client] = sent[client]

    @property
    def is_confirmed(self) -> bool:
        """Whether so many have signed that clients will reveal their shares."""
        return len(self.signatures) >= threshold(len(self.keys))

    def reveal(self, client: int, sent: Mapping[int, str]) -> None:
        """Take the shares that a client reveals."""
        fits = sent.keys() <= self.boxes.keys() and all(
            len(share) == 2 * SECRET for share in sent.values()
        )
        _require(fits, "shares that are malformed")
        for peer, share in sent.items():
            self.revealed.setdefault(peer, {})[client] = bytes.fromhex(share)

    @property
    def is_open(self) -> bool:
        """Whether enough shares of every secret have been revealed."""
        needed = threshold(len(self.keys))
        return all(len(self.revealed.get(peer, ())) >= needed for peer in self.boxes)

    def total(self) -> Ring:
        """Return the sum of the survivors' updates, without masks.

        Raises:
            FedcanonError: Shares are missing or wrong.
        """
        total = self._masked.copy()
        for client in sorted(self.survivors):
            seed = self._secret(client)
            self._require_right(committed(seed) == self._public(client).commitment, client)
            total -= self_mask(seed, self.terms, client, self.size)
        for gone in sorted(self.boxes.keys() - self.survivors.keys()):
            key = self._secret(gone)
            self._require_right(public_of(key) == self._public(gone).pairing, gone)
            for client in sorted(self.survivors):
                public = self._public(client).pairing
                total -= pair_mask(key, public, self.terms, client, gone, self.size)
        return total

    def _public(self, client: int) -> PublicKeys:
        return PublicKeys.parsed(self.keys[client])[0]

    def _secret(self, client: int) -> bytes:
        return join(self.revealed.get(client, {}), self.keys)

    def _require_right(self, holds: bool, client: int) -> None:
        if not holds:
            raise FedcanonError(
                f"the shares of client {client}'s secret do not fit together: it, or one who "
                "has revealed a share, is wrong"
            )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise FedcanonError(otherwise)
