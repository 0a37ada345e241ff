"""Which node of Flower's grid speaks for which client."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from fedcanon.files import read_json, write_whole

FILE = "nodes.json"
"""The file in the folder of a deployment that names the node of every client."""

_NODES: TypeAdapter[dict[int, int]] = TypeAdapter(dict[int, int])


def read_nodes(path: Path) -> dict[int, int]:
    """Return the node of every client in a file; none if there is no file.

    Raises:
        FedcanonError: The file is damaged.
    """
    return read_json(path, _NODES) or {}


def write_nodes(path: Path, nodes: dict[int, int]) -> None:
    """Write the node of every client to a file."""
    content = _NODES.dump_json(dict(sorted(nodes.items())), indent=1)
    write_whole(path, content.decode() + "\n")


class Nodes:
    """The node of every client: a client's number belongs to one node, that is, to one key.

    'fedcanon deploy start' registers the keys of clients and writes their nodes to a file. A number
    that is not in the file belongs to the first node that claims it, which is added. The file is
    read again whenever it has changed.

    Args:
        path: The file; None keeps nodes in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._seen = path, 0
        self._nodes: dict[int, int] = {}

    def refusal(self, client: int, node: int) -> str | None:
        """Return why a node may not speak for a client, or None; at first contact it may."""
        nodes = self._current()
        if client in nodes:
            return None if nodes[client] == node else f"client {client} belongs to another key"
        for other, its_node in nodes.items():
            if its_node == node:
                return f"its key belongs to client {other}"
        nodes[client] = node
        if self._path is not None:
            write_nodes(self._path, nodes)
        return None

    def _current(self) -> dict[int, int]:
        """Return the content of the file.

        Raises:
            FedcanonError: The file is damaged.
        """
        if self._path is not None and self._path.is_file():
            changed = self._path.stat().st_mtime_ns
            if changed != self._seen:
                self._nodes = read_nodes(self._path)
                self._seen = changed
        return self._nodes
