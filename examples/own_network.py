"""A network of your own, for a configuration to name."""

from math import prod

from torch import nn

from fedcanon import train


def network(shape: tuple[int, ...], classes: int, width: int = 50) -> nn.Module:
    """One hidden layer, sized for inputs of this shape."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )


if __name__ == "__main__":
    name = "examples.own_network:network"
    last = train(model={"name": name, "width": 30}, rounds=40).last
    print(f"accuracy {last.test['accuracy']:.3f}, zeros {last.sparsity:.1%}")
