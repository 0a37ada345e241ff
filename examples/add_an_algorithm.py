"""An algorithm of your own: federated averaging followed by one prox on the server."""

from dataclasses import dataclass

import numpy as np

from fedcanon import build, fit, load_config
from fedcanon.algorithms import ALGORITHMS, Algorithm, Prox, State, Step, Work, largest, step_at


@dataclass(frozen=True)
class ServerProx(Algorithm):
    """Averaging and one prox on the server, without control variables.

        client:  K steps x ← x − β g_i(x) from z
        server:  z ← prox_{αh}(x̄) with α = βK

    2d floats per client and round, 1 prox. Under heterogeneous data clients drift towards their
    own minimisers, and the method stops at a distance from a stationary point.
    """

    beta: Step = 0.1
    local_steps: int = 10

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "beta": step_at(self.beta, t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        return {"x": work.descend(received["z"], received["beta"], self.local_steps)}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": prox(mean["x"], sent["beta"] * self.local_steps)}

    def prox_step(self, rounds: int) -> float:
        return self.local_steps * largest(self.beta, rounds)


# With a name in the registry the algorithm can be used in every configuration.
ALGORITHMS["server_prox"] = ServerProx

# Full gradients leave no noise, so that only the methods differ.
task = ["model.name=linear", "batch_size=full", "penalty.name=l1", "penalty.kappa=1e-3"]
steps = ["algorithm.beta=0.1", "algorithm.local_steps=10"]
for name in ("server_prox", "fedcanon+"):
    config = load_config(settings=[*task, *steps, f"algorithm.name={name}"])
    last = fit(build(config), rounds=60, evaluate_every=60).last
    print(f"{name:12} φ = {last.objective:.4f}, ‖G‖ = {last.gradient_norm:.1e}", end=", ")
    print(f"accuracy {last.test['accuracy']:.3f}, floats {last.cost.floats_down:,} down")
