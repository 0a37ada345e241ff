"""Methods as plain loops that follow the published pseudocode, to compare with."""

import torch

from fedcanon import Problem
from fedcanon.penalties import Penalty


def pgd(problem: Problem, penalty: Penalty, alpha: float, rounds: int) -> list[torch.Tensor]:
    z, path = problem.start, []
    for _ in range(rounds):
        z = penalty.prox(z - alpha * problem.value_and_gradient(z)[1], alpha)
        path.append(z)
    return path


def fedcanon(
    problem: Problem,
    penalty: Penalty,
    alpha: float,
    beta: float,
    K: int,
    rounds: int,
    controls: list[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """Algorithm 1 of the paper, with control variables c_i on the clients."""
    z, path = problem.start, []
    c = controls or [torch.zeros_like(z) for _ in problem.clients]
    for _ in range(rounds):
        deltas = []
        for i, f in enumerate(problem.clients):
            x = z.clone()
            for _ in range(K):
                x = x - beta * (f.full_gradient(x) + c[i])
            deltas.append((z - x) / (beta * K))
        mean = sum(deltas) / len(deltas)
        z = penalty.prox(z - alpha * mean, alpha)
        c = [c[i] + mean - deltas[i] for i in range(len(c))]
        path.append(z)
    return path


def scaffold(
    problem: Problem, beta: float, K: int, server_step: float, rounds: int
) -> list[torch.Tensor]:
    """SCAFFOLD, option II, all clients."""
    z, path = problem.start, []
    e = torch.zeros_like(z)
    e_i = [torch.zeros_like(z) for _ in problem.clients]
    for _ in range(rounds):
        moves, changes = [], []
        for i, f in enumerate(problem.clients):
            x = z.clone()
            for _ in range(K):
                x = x - beta * (f.full_gradient(x) - e_i[i] + e)
            new = e_i[i] - e + (z - x) / (beta * K)
            moves.append(x - z)
            changes.append(new - e_i[i])
            e_i[i] = new
        z = z + server_step * sum(moves) / len(moves)
        e = e + sum(changes) / len(changes)
        path.append(z)
    return path
