"""An algorithm of your own: federated averaging followed by one prox on the server."""

from dataclasses import dataclass

import numpy as np

from fedcanon import Algorithm, train
from fedcanon.algorithms import (
    Facts,
    Prox,
    State,
    Step,
    StepRules,
    Work,
    largest,
    local_prox_rules,
    step_at,
)


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

    alterable = frozenset({"move"})

    def broadcast(self, server: State, t: int, rng: np.random.Generator) -> State:
        return {"z": server["z"], "beta": step_at(self.beta, t)}

    def local(self, client: State, received: State, work: Work) -> tuple[State, State]:
        x = work.descend(received["z"], received["beta"], self.local_steps)
        return {"move": x - received["z"]}, {}

    def aggregate(self, server: State, sent: State, mean: State, share: float, prox: Prox) -> State:
        return {"z": prox(server["z"] + mean["move"], sent["beta"] * self.local_steps)}

    def prox_step(self, rounds: int) -> float:
        return self.local_steps * largest(self.beta, rounds)

    def theory(self, facts: Facts) -> StepRules:
        return local_prox_rules(facts, self.local_steps)


if __name__ == "__main__":
    for name in ("examples.add_an_algorithm:ServerProx", "fedcanon+"):
        last = train(
            algorithm={"name": name, "beta": 0.1, "local_steps": 10},
            model="linear",
            penalty={"name": "l1", "kappa": 1e-3},
            batch_size="full",  # no noise, so that only the methods differ
            rounds=60,
            evaluate={"every": 60},
        ).last
        print(f"{name:37} φ = {last.objective:.4f}, ‖G‖ = {last.gradient_norm:.1e}", end=", ")
        print(f"accuracy {last.test['accuracy']:.3f}, floats {last.cost.floats_down:,} down")
