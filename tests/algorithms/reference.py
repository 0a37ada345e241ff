"""Methods as plain loops that follow the published pseudocode, to compare with."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedcanon import Objective, Problem, Quadratic
from fedcanon.penalties import Penalty


def gd(problem: Problem, step: float, rounds: int) -> list[Tensor]:
    z, path = problem.start, []
    for _ in range(rounds):
        z = z - step * problem.value_and_gradient(z)[1]
        path.append(z)
    return path


def pgd(problem: Problem, penalty: Penalty, alpha: float, rounds: int) -> list[Tensor]:
    z, path = problem.start, []
    for _ in range(rounds):
        z = penalty.prox(z - alpha * problem.value_and_gradient(z)[1], alpha)
        path.append(z)
    return path


def averaged_momentum(problem: Problem, step: float, fresh: float, rounds: int) -> list[Tensor]:
    """Gradient descent along g ← fresh·∇f + (1 − fresh)·g."""
    z, path = problem.start, []
    g = torch.zeros_like(z)
    for _ in range(rounds):
        g = fresh * problem.value_and_gradient(z)[1] + (1 - fresh) * g
        z = z - step * g
        path.append(z)
    return path


def dual_averaging(problem: Problem, penalty: Penalty, step: float, rounds: int) -> list[Tensor]:
    """y ← y − a ∇f(z), z = prox_{tah}(y), on one machine."""
    y = z = problem.start
    path = []
    for t in range(1, rounds + 1):
        y = y - step * problem.value_and_gradient(z)[1]
        z = penalty.prox(y, t * step)
        path.append(z)
    return path


def fedcanon(
    problem: Problem,
    penalty: Penalty,
    alpha: float,
    beta: float,
    K: int,
    rounds: int,
    controls: list[Tensor] | None = None,
) -> list[Tensor]:
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


def sampled_fedcanon(
    problem: Problem,
    penalty: Penalty,
    alpha: float,
    beta: float,
    K: int,
    sets: Sequence[Sequence[int]],
) -> list[Tensor]:
    """The extension to any participants, by the rule of SCAFFOLD: c_i = e − e_i."""
    z, path = problem.start, []
    e = torch.zeros_like(z)
    e_i = [torch.zeros_like(z) for _ in problem.clients]
    for chosen in sets:
        deltas = []
        for i in chosen:
            x = z.clone()
            for _ in range(K):
                x = x - beta * (problem.clients[i].full_gradient(x) + e - e_i[i])
            deltas.append((z - x) / (beta * K))
            e_i[i] = e_i[i] - e + deltas[-1]
        z = penalty.prox(z - alpha * sum(deltas) / len(deltas), alpha)
        e = e + sum(delta - e for delta in deltas) / len(problem.clients)
        path.append(z)
    return path


def scaffold(
    problem: Problem, beta: float, K: int, server_step: float, rounds: int
) -> list[Tensor]:
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


def proxskip(
    gradient: Callable[[Tensor], Tensor],
    start: Tensor,
    prox: Callable[[Tensor, float], Tensor],
    step: float,
    p: float,
    coins: Sequence[bool],
) -> list[Tensor]:
    """ProxSkip on one machine, with these coins."""
    x, u, path = start, torch.zeros_like(start), []
    for coin in coins:
        half = x - step * (gradient(x) - u)
        x = prox(half - step / p * u, step / p) if coin else half
        u = u + p / step * (x - half)
        path.append(x)
    return path


def exact_diffusion(problem: Problem, W: Tensor, step: float, rounds: int) -> list[Tensor]:
    """Exact diffusion (D²) with the mixing (I + W)/2; each point of the path is N×d."""
    x = torch.stack([problem.start] * len(problem.clients))
    mixing = (torch.eye(len(x), dtype=x.dtype) + W) / 2
    psi, path = x, []
    for _ in range(rounds):
        gradients = [f.full_gradient(row) for f, row in zip(problem.clients, x, strict=True)]
        new_psi = x - step * torch.stack(gradients)
        x, psi = mixing @ (new_psi + x - psi), new_psi
        path.append(x)
    return path


def resolvent(f: Objective, y: Tensor, eta: float) -> Tensor:
    """prox_{ηf}(y): a linear system for a quadratic, Newton's method for a logistic loss."""
    identity = torch.eye(len(y), dtype=y.dtype)
    if isinstance(f, Quadratic):
        A = f.A if f.A.ndim == 2 else torch.diag(f.A)
        return torch.linalg.solve(identity + eta * A, y + eta * A @ f.b)
    x = y
    for _ in range(20):
        sigma = 1 / (1 + np.exp(-f._x @ x.numpy()))
        weights = sigma * (1 - sigma) / len(sigma)
        hessian = torch.from_numpy(f._x.T @ (weights[:, None] * f._x))
        residual = x - y + eta * f.full_gradient(x)
        x = x - torch.linalg.solve(identity + eta * hessian, residual)
    return x


def douglas_rachford(
    f: Objective, penalty: Penalty, start: Tensor, eta: float, relaxation: float, rounds: int
) -> list[Tensor]:
    """Relaxed Douglas–Rachford splitting of f + h; the path is of the points prox_{ηh}."""
    y, path = start, []
    for _ in range(rounds):
        x = resolvent(f, y, eta)
        z = penalty.prox(2 * x - y, eta)
        y = y + relaxation * (z - x)
        path.append(z)
    return path


def fedsplit(problem: Problem, eta: float, rounds: int) -> list[Tensor]:
    """FedSplit (Pathak, Wainwright 2020): Peaceman–Rachford splitting of Σ f_i, without h."""
    x, path = problem.start, []
    z = [x for _ in problem.clients]
    for _ in range(rounds):
        halves = [resolvent(f, 2 * x - z[i], eta) for i, f in enumerate(problem.clients)]
        z = [z[i] + 2 * (half - x) for i, half in enumerate(halves)]
        x = sum(z) / len(z)
        path.append(x)
    return path


def fedprox(problem: Problem, beta: float, K: int, mu: float, rounds: int) -> list[Tensor]:
    z, path = problem.start, []
    for _ in range(rounds):
        ends = []
        for f in problem.clients:
            x = z.clone()
            for _ in range(K):
                x = x - beta * (f.full_gradient(x) + mu * (x - z))
            ends.append(x)
        z = sum(ends) / len(ends)
        path.append(z)
    return path


def fedmid(
    problem: Problem,
    penalty: Penalty,
    beta: float,
    K: int,
    server_step: float,
    server_prox: float,
    rounds: int,
) -> list[Tensor]:
    """FedMiD with any step of the server's prox."""
    z, path = problem.start, []
    for _ in range(rounds):
        moves = []
        for f in problem.clients:
            x = z.clone()
            for _ in range(K):
                x = penalty.prox(x - beta * f.full_gradient(x), beta)
            moves.append(x - z)
        z = penalty.prox(z + server_step * sum(moves) / len(moves), server_prox)
        path.append(z)
    return path


def fast_fedda(
    problem: Problem,
    penalty: Penalty,
    gamma: float,
    mu: float,
    weights: Callable[[int], float],
    K: int,
    rounds: int,
) -> list[Tensor]:
    """Fast-FedDA with the weights a_t and γ_t = γ a_t."""
    w0 = problem.start

    def solution(G: Tensor, V: Tensor, A: float, t: int) -> Tensor:
        D = mu / 2 * A + gamma * weights(t)
        return penalty.prox((gamma * weights(t) * w0 + mu / 2 * V - G) / D, A / D)

    G, V, A, w, path = torch.zeros_like(w0), weights(0) * w0, 0.0, w0, []
    for t in range(0, rounds * K, K):
        ends = []
        for f in problem.clients:
            G_i, V_i, A_i, w_i = G, V, A, w
            for k in range(K):
                G_i = G_i + weights(t + k) * f.full_gradient(w_i)
                A_i = A_i + weights(t + k)
                if k < K - 1:
                    w_i = solution(G_i, V_i, A_i, t + k + 1)
                    V_i = V_i + weights(t + k + 1) * w_i
            ends.append((G_i, V_i))
        A = A_i
        G, V = (sum(each) / len(each) for each in zip(*ends, strict=True))
        w = solution(G, V, A, t + K)
        V = V + weights(t + K) * w
        path.append(w)
    return path


def fedpd(
    problem: Problem, eta: float, step: float, steps: int, communicates: Sequence[bool]
) -> list[Tensor]:
    """FedPD by gradient steps from the last x_i; the path is of the communications."""
    x = [problem.start for _ in problem.clients]
    anchors, duals, path = list(x), [torch.zeros_like(problem.start) for _ in x], []
    for communicate in communicates:
        for i, f in enumerate(problem.clients):
            for _ in range(steps):
                pull = (x[i] - anchors[i]) / eta
                x[i] = x[i] - step * (f.full_gradient(x[i]) + duals[i] + pull)
            duals[i] = duals[i] + (x[i] - anchors[i]) / eta
            anchors[i] = x[i] + eta * duals[i]
        if communicate:
            mean = sum(anchors) / len(anchors)
            anchors = [mean for _ in anchors]
            path.append(mean)
    return path


def moves(problem: Problem, z: Tensor, beta: float, K: int) -> list[Tensor]:
    """x_i − z of every client after K gradient steps from z."""
    found = []
    for f in problem.clients:
        x = z.clone()
        for _ in range(K):
            x = x - beta * f.full_gradient(x)
        found.append(x - z)
    return found


def fedopt(
    problem: Problem,
    beta: float,
    K: int,
    make: Callable[[Tensor], torch.optim.Optimizer],
    rounds: int,
) -> list[Tensor]:
    """A server that gives minus the mean move to an optimiser of PyTorch as if a gradient."""
    z, path = problem.start.clone(), []
    optimiser = make(z)
    for _ in range(rounds):
        each = moves(problem, z, beta, K)
        z.grad = -sum(each) / len(each)
        optimiser.step()
        path.append(z.clone())
    return path


def fedyogi(
    problem: Problem,
    beta: float,
    K: int,
    eta: float,
    betas: tuple[float, float],
    tau: float,
    rounds: int,
) -> list[Tensor]:
    """FedYogi entry by entry."""
    z, path = problem.start.clone(), []
    m, v = [0.0] * len(z), [tau**2] * len(z)
    for _ in range(rounds):
        each = moves(problem, z, beta, K)
        for j in range(len(z)):
            delta = float(sum(move[j] for move in each)) / len(each)
            m[j] = betas[0] * m[j] + (1 - betas[0]) * delta
            change = (1 - betas[1]) * delta**2
            v[j] += change if v[j] < delta**2 else -change
            z[j] += eta * m[j] / (v[j] ** 0.5 + tau)
        path.append(z.clone())
    return path


def fedexp(
    problem: Problem, beta: float, K: int, epsilon: float, rounds: int
) -> tuple[list[Tensor], list[float]]:
    """FedExP: the means of the last two iterates, and the server steps."""
    z, path, steps = problem.start, [], []
    for _ in range(rounds):
        each = moves(problem, z, beta, K)
        M, mean = len(each), sum(each) / len(each)
        lengths = sum(float(move @ move) for move in each)
        steps.append(max(1.0, lengths / (2 * M * (float(mean @ mean) + epsilon))))
        path.append((z + z + steps[-1] * mean) / 2)
        z = z + steps[-1] * mean
    return path, steps
