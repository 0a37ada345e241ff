"""Networks for decentralised methods, in which nodes average with their neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedcanon.algorithms.capabilities import Links
from fedcanon.errors import FedcanonError

if TYPE_CHECKING:
    import networkx as nx  # imported only where needed: the import takes a fifth of a second

TOPOLOGIES = ("star", "ring", "grid", "complete", "erdos-renyi:P")


def links(
    topology: str | tuple[tuple[float, ...], ...], nodes: int, weight: float, seed: int
) -> Links:
    """Return the links of a network with the mixing matrix (1 − weight)·I + weight·W.

    W has Metropolis weights: 1/(1 + max(deg i, deg j)) on the edge ij. In a star W = 11ᵀ/N: the
    server averages, and it is the only neighbour of every node.

    Args:
        topology: One of ``TOPOLOGIES``, or the rows of W.
        nodes: The number of nodes N.
        weight: How much of W is used; 1 for all of it.
        seed: The seed of random graphs.

    Raises:
        FedcanonError: There is no such topology, or the matrix is not a mixing matrix.
    """
    if not isinstance(topology, str):
        W = _checked_matrix(topology, nodes)
        degrees = np.count_nonzero(W - np.diag(np.diag(W)), axis=1)
    elif topology == "star":
        W, degrees = np.full((nodes, nodes), 1 / nodes), np.ones(nodes, dtype=int)
    else:
        graph = _graph(topology, nodes, seed)
        W = _metropolis(graph)
        degrees = np.array([graph.degree(i) for i in range(nodes)])
    mixing = (1 - weight) * np.eye(nodes) + weight * W
    return Links(torch.from_numpy(mixing), tuple(map(int, degrees)))


def _graph(topology: str, nodes: int, seed: int) -> nx.Graph[int]:
    import networkx as nx

    kind, _, option = topology.partition(":")
    if kind == "ring" and not option:
        graph = nx.cycle_graph(nodes) if nodes > 2 else nx.path_graph(nodes)
    elif kind == "complete" and not option:
        graph = nx.complete_graph(nodes)
    elif kind == "grid" and not option:
        rows = max(r for r in range(1, math.isqrt(nodes) + 1) if nodes % r == 0)
        graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, nodes // rows))
    elif kind == "erdos-renyi" and (p := _probability(option)):
        # Information reaches all nodes only in a connected graph: draw until there is one.
        draws = (nx.erdos_renyi_graph(nodes, p, seed=seed + 1000003 * k) for k in range(1000))
        graph = next((g for g in draws if nx.is_connected(g)), None)
        if graph is None:
            raise FedcanonError(f"no connected {topology} of {nodes} nodes was found: increase P.")
    else:
        raise FedcanonError(
            f"there is no topology '{topology}': use {', '.join(TOPOLOGIES)} (0 < P ≤ 1), "
            "or a mixing matrix."
        )
    return graph


def _probability(text: str) -> float | None:
    try:
        p = float(text)
    except ValueError:
        return None
    return p if 0 < p <= 1 else None


def _metropolis(graph: nx.Graph[int]) -> np.ndarray:
    W = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 1 / (1 + max(graph.degree(i), graph.degree(j)))
    return W + np.diag(1 - W.sum(1))


def _checked_matrix(rows: tuple[tuple[float, ...], ...], nodes: int) -> np.ndarray:
    if len(rows) != nodes or any(len(row) != nodes for row in rows):
        raise FedcanonError(f"a mixing matrix for {nodes} clients needs {nodes} rows and columns.")
    W = np.array(rows)
    if not (np.allclose(W, W.T) and np.allclose(W.sum(1), 1) and (W >= 0).all()):
        raise FedcanonError(
            "a mixing matrix must be symmetric, without negative entries, and rows must sum to 1."
        )
    import networkx as nx

    if not nx.is_connected(nx.from_numpy_array(W)):
        raise FedcanonError("a mixing matrix must connect all clients, directly or indirectly.")
    return W
