"""Generated clients whose models and data differ as much as asked."""

from __future__ import annotations

import math

import numpy as np

from fedcanon.data.dataset import Dataset, held_out
from fedcanon.errors import FedcanonError


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    clients: int = 30,
    d: int = 60,
    classes: int = 10,
    seed: int = 0,
) -> Dataset:
    """Synthetic(α, β) after Li et al. (2020): α sets how far models differ, β how far inputs do.

    Client k labels its own inputs with its own model:

    - y = argmax (W_kᵀx + b_k), (W_k, b_k) = √(1 − α²) (W, b) + α (U_k, c_k), 0 ≤ α ≤ 1, where
      (W, b) is common to all clients and all entries of W, b, U_k and c_k are N(0, 1);
    - x ~ N(v_k, Σ), Σ_jj = j^−1.2, v_k = β (B_k + z_k), B_k and all entries of z_k are N(0, 1);
    - 50 samples and ⌊exp(N(4, 2²))⌋ more, a tenth of them test data.

    (1, 1) and (0, 0) are the published Synthetic(1, 1) and Synthetic IID. The published α is the
    deviation of one u_k added to all entries of W_k and b_k; it adds the same to every class and so
    never changes a label, which is why α mixes models here. The users of the dataset are the
    clients, so that the partition "users" gives each client its own samples.

    Args:
        alpha: α, from 0 (one model for all clients) to 1 (independent models).
        beta: β ≥ 0; with 0 the inputs of all clients have the same distribution.
        clients: How many clients there are.
        d: How many features an input has.
        classes: How many classes there are, at least two.
        seed: What everything is drawn from.

    Raises:
        FedcanonError: An argument is outside its range.
    """
    bounds = {"beta": (beta, 0), "clients": (clients, 1), "d": (d, 1), "classes": (classes, 2)}
    for name, (value, least) in bounds.items():
        if value < least:
            raise FedcanonError(f"synthetic: {name} = {value} must be at least {least}.")
    if not 0 <= alpha <= 1:
        raise FedcanonError(
            f"synthetic: alpha = {alpha} must lie between 0 (one model for all clients) and 1 "
            "(independent models)."
        )
    common = np.random.default_rng(seed)
    model = common.standard_normal((d + 1, classes))
    deviation = np.arange(1, d + 1) ** -0.6
    parts = []
    for user, rng in enumerate(common.spawn(clients)):
        size = 50 + int(rng.lognormal(4, 2))
        own = math.sqrt(1 - alpha**2) * model + alpha * rng.standard_normal((d + 1, classes))
        v = beta * (rng.standard_normal() + rng.standard_normal(d))
        x = v + deviation * rng.standard_normal((size, d))
        parts.append((x, (x @ own[:d] + own[d]).argmax(1), np.full(size, user)))
    inputs, labels, users = (np.concatenate(part) for part in zip(*parts, strict=True))
    arrays = (inputs.astype(np.float32), labels, users)
    train, test = held_out(*arrays, strata=users, share=0.1, seed=seed)
    return Dataset("synthetic", train, test, classes)
