"""A client's part in secure sums: five answers, and its secrets between them on its own disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field, TypeAdapter

from fedcanon.compression import Encoded
from fedcanon.deployment.protocol import Message, Number, Peers
from fedcanon.deployment.secure.agreement import Agreement, company
from fedcanon.deployment.secure.identity import Identity, is_signed
from fedcanon.deployment.secure.keys import PublicKeys
from fedcanon.deployment.secure.masks import SECRET, agree, pair_mask, self_mask
from fedcanon.deployment.secure.ring import VALUES, encoded
from fedcanon.deployment.secure.shares import seal, split, threshold, unseal
from fedcanon.deployment.secure.terms import Terms
from fedcanon.errors import FedcanonError
from fedcanon.files import explained, private_file, private_folder, read_json, write_whole

Secret = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class RoundSecrets:
    """All that a client must remember of one secure sum.

    Args:
        terms: What the client has signed.
        sealing: The private key of the boxes that it sends and receives.
        pairing: The private key of its pair masks.
        seed: The seed of its self mask.
        peers: The keys of all clients among whom it has shared pairing key and seed.
        boxes: The sealed shares that it has sent to them.
        received: The boxes of those with whom it has pair masks.
        survivors: The only clients for whose sum it signs and reveals shares.
    """

    terms: Terms
    sealing: Secret
    pairing: Secret
    seed: Secret
    peers: Peers = field(default_factory=dict)
    boxes: Peers = field(default_factory=dict)
    received: Peers = field(default_factory=dict)
    survivors: list[Number] = field(default_factory=list)

    @classmethod
    def new(cls, terms: Terms) -> RoundSecrets:
        """Draw the secrets of a sum."""
        sealing, pairing, seed = (secrets.token_bytes(SECRET).hex() for _ in range(3))
        return cls(terms, sealing, pairing, seed)

    @property
    def public(self) -> PublicKeys:
        """What others may know of them."""
        return PublicKeys.of(*map(bytes.fromhex, (self.sealing, self.pairing, self.seed)))


_SECRETS = TypeAdapter(RoundSecrets)


class Safe(Protocol):
    """Where a client keeps the secrets of its last sum."""

    def load(self) -> RoundSecrets | None:
        """Return what was saved last."""
        ...

    def save(self, secrets: RoundSecrets) -> None:
        """Save secrets durably; those that were there before are gone."""
        ...


@dataclass(frozen=True)
class SecretFile:
    """A file with the secrets of one sum, for its owner alone."""

    path: Path

    @classmethod
    def on_disk(cls, folder: Path, client: int, run: str) -> SecretFile:
        """Return the file of a client for a run, in a folder on the client's machine."""
        return cls(folder / run / f"secrets-{client}.json")

    def load(self) -> RoundSecrets | None:
        return read_json(self.path, _SECRETS)

    def save(self, secrets: RoundSecrets) -> None:
        def write(path: Path) -> None:
            path.unlink(missing_ok=True)  # of a process that was killed
            with private_file(path) as file:
                file.write(_SECRETS.dump_json(secrets))

        with explained(f"cannot write {self.path}"):
            private_folder(self.path.parent)
            write_whole(self.path, write)


@dataclass(frozen=True)
class Member:
    """A client among those that take part in secure sums.

    It answers a question that is repeated as it did before. In one sum it signs one set of keys,
    shares its secrets once, masks one update, and signs and reveals for one set of survivors.

    Args:
        client: The client's number.
        identity: With what it signs.
        identities: The public identities of all clients, in their order.
        minimum: The smallest number of clients whose sum it lets the server learn.
        open_safe: Returns where the secrets of a run are kept.
        weight: The client's weight in sums, in (0, 1].
    """

    client: int
    identity: Identity
    identities: Sequence[str]
    minimum: int
    open_safe: Callable[[str], Safe]
    weight: float = 1.0

    def has_begun(self, message: Message) -> bool:
        """Tell whether the client has keys for the sum of a message."""
        known = self.open_safe(message.run).load()
        return known is not None and _when(known.terms) == _when(Terms.of(message))

    def advertise(self, message: Message) -> dict[int, str]:
        """Return the client's keys for a new sum, with its signature."""
        safe, terms = self.open_safe(message.run), Terms.of(message)
        known = safe.load()
        if known is None or _when(known.terms) < _when(terms):
            known = RoundSecrets.new(terms)
            safe.save(known)
        if known.terms != terms:
            raise FedcanonError(
                f"client {self.client} has other terms for round {terms.round}, or knows a newer "
                "round: the server must ask with a new number."
            )
        return {self.client: known.public.signed(self.identity, terms, self.client).hex()}

    def share(self, message: Message) -> dict[int, str]:
        """Check the keys of all peers, and return a box for each with shares of two secrets."""
        known = self._secrets(message)
        if known.boxes:
            self._require(known.peers == message.peers, "was told of other peers before")
            return known.boxes
        keys = self._checked(known, message.peers)
        known = replace(known, peers=message.peers)
        pairing = split(bytes.fromhex(known.pairing), keys)
        seed = split(bytes.fromhex(known.seed), keys)
        boxes = {
            peer: seal(
                self._box_key(known, self.client, peer, keys[peer].sealing),
                pairing[peer] + seed[peer],
                known.terms,
                self.client,
                peer,
            ).hex()
            for peer in keys
        }
        self.open_safe(message.run).save(replace(known, boxes=boxes))
        return boxes

    def _checked(self, known: RoundSecrets, peers: Mapping[int, str]) -> dict[int, PublicKeys]:
        """Return the keys of all peers, each signed by its owner under the same terms."""
        self._require(len(peers) >= max(3, self.minimum), "would be in a sum of too few clients")
        keys: dict[int, PublicKeys] = {}
        for peer, text in sorted(peers.items()):
            found, signature = PublicKeys.parsed(text)
            is_known = peer < len(self.identities) and is_signed(
                self.identities[peer], signature, found.claim(known.terms, peer)
            )
            self._require(is_known, f"does not accept the keys of client {peer}")
            keys[peer] = found
        self._require(keys.get(self.client) == known.public, "does not find its own keys")
        return keys

    def terms(self, message: Message) -> Terms:
        """Return what the client has signed for the sum of a message.

        Raises:
            FedcanonError: It has not shared its secrets for this sum.
        """
        known = self._secrets(message)
        self._require(bool(known.boxes), "has not shared its secrets yet")
        return known.terms

    def mask(self, message: Message, update: Encoded) -> Encoded:
        """Return an update in fixed point under the masks of this sum."""
        known, boxes = self._secrets(message), message.peers
        self._require(known.received in ({}, boxes), "was given other boxes before")
        among = boxes.keys() <= known.peers.keys() and self.client in boxes
        enough = len(boxes) >= max(self.minimum, threshold(len(known.peers)))
        self._require(among and enough, "would be in a sum of too few clients")
        self.open_safe(message.run).save(replace(known, received=boxes))
        ring = update.parts[VALUES].numpy().view("uint32")
        seed, pairing = bytes.fromhex(known.seed), bytes.fromhex(known.pairing)
        ring = ring + self_mask(seed, known.terms, self.client, len(ring))
        for peer in sorted(boxes.keys() - {self.client}):
            public = PublicKeys.parsed(known.peers[peer])[0].pairing
            ring += pair_mask(pairing, public, known.terms, self.client, peer, len(ring))
        return encoded(ring)

    def confirm(self, message: Message) -> dict[int, str]:
        """Return the client's signature of what it was told about the others of this sum.

        A box opens only if its sender was given the same keys: all honest survivors were.
        """
        known = self._settled(message)
        for peer in known.survivors:
            opens = self._opened(known, peer) is not None
            self._require(opens, f"cannot open the box of client {peer}, which is in the sum")
        self.open_safe(message.run).save(known)
        return {self.client: self.identity.sign(_agreement(known).text).hex()}

    def reveal(self, message: Message) -> dict[int, str]:
        """Return a share of the seed of each survivor, and of the pairing key of each other peer.

        Enough survivors must have signed exactly what this client was told: then no peer that was
        given the same keys reveals for anything else. A box that cannot be opened is left out.
        """
        known = self._settled(message)
        signers = _agreement(known).signers(self.identities, message.peers)
        enough = len(signers) >= threshold(len(known.peers))
        self._require(enough, "reveals nothing: too few have signed what it was told")
        self.open_safe(message.run).save(known)
        revealed: dict[int, str] = {}
        for peer in known.received:
            content = self._opened(known, peer)
            if content is not None:
                share = content[SECRET:] if peer in known.survivors else content[:SECRET]
                revealed[peer] = share.hex()
        return revealed

    def _settled(self, message: Message) -> RoundSecrets:
        """Return the secrets with the survivors of a message, if the client can accept them."""
        known, survivors = self._secrets(message), sorted(message.peers)
        self._require(known.survivors in ([], survivors), "was told of other survivors before")
        among = set(survivors) <= known.received.keys() and self.client in survivors
        enough = len(survivors) >= max(self.minimum, threshold(len(known.peers)))
        self._require(among and enough, "does not accept these survivors")
        return replace(known, survivors=survivors)

    def _opened(self, known: RoundSecrets, sender: int) -> bytes | None:
        """Return the two shares in a box that the client has received, if it can be opened."""
        public = PublicKeys.parsed(known.peers[sender])[0].sealing
        key, box = self._box_key(known, sender, self.client, public), known.received[sender]
        content = unseal(key, bytes.fromhex(box), known.terms, sender, self.client)
        return content if content is not None and len(content) == 2 * SECRET else None

    def _box_key(self, known: RoundSecrets, sender: int, receiver: int, public: bytes) -> bytes:
        """Return the key of the boxes from one client to another, one of whom is this client.

        Clients that were given different keys of others do not have it in common.
        """
        together = company(known.terms, known.peers)
        purpose = known.terms.bind("seal", sender, receiver, together)
        return agree(bytes.fromhex(known.sealing), public, purpose)

    def _secrets(self, message: Message) -> RoundSecrets:
        known, terms = self.open_safe(message.run).load(), Terms.of(message)
        if known is None or _when(known.terms) != _when(terms):
            raise FedcanonError(f"client {self.client} has no keys for round {terms.round}.")
        return known

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise FedcanonError(f"client {self.client} {otherwise}.")


def _when(terms: Terms) -> tuple[int, int]:
    return terms.generation, terms.round


def _agreement(known: RoundSecrets) -> Agreement:
    return Agreement(known.terms, known.peers, known.received.keys(), known.survivors)
