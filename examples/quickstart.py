"""The default run with another penalty, from Python."""

from fedcanon import build, load_config, train

config = load_config(settings=["penalty.name=scad", "penalty.kappa=2e-3", "rounds=40"])
result = train(build(config), config.rounds, evaluate_every=10)
for record in result.history:
    accuracy = record.test["accuracy"]
    print(f"round {record.round:2}: accuracy {accuracy:.3f}, zeros {record.sparsity:.1%}")
