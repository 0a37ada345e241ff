"""The default run with another penalty, from Python."""

import fedcanon

result = fedcanon.train(rounds=40, penalty={"name": "scad", "kappa": 2e-3}, evaluate={"every": 10})
print(result.history[["round", "objective", "accuracy", "sparsity"]].to_string(index=False))
print(result.model)  # a PyTorch module, ready to use
