"""Train a sparse network in one call, and look at its course."""

import fedcanon

result = fedcanon.train(rounds=40, penalty={"name": "scad", "kappa": 2e-3}, evaluate={"every": 10})
print(result.history[["round", "objective", "accuracy", "sparsity"]].to_string(index=False))
model = result.model  # a PyTorch module, ready to use
