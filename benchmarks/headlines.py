"""The headlines of the README: python benchmarks/headlines.py.

Reads what the other benchmarks have measured and writes what a user gets, with the number and the
command behind it, and the rounds in one sentence. It measures nothing itself and takes a second:
run it after the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from comparison.findings import (
    RESULTS,
    accuracies,
    arrived,
    automatic,
    others,
    read,
    rounds_to,
    uploads,
)
from comparison.tables import table

CONVEX = "rounds.py convex --rounds 400"


def headlines() -> Iterator[tuple[str, str, str]]:
    """What a user gets, the number behind it, and the command that measures it."""
    convex, networks = read("rounds-convex"), read("rounds-networks")
    newton, ours = (rounds_to(convex, name, 2) for name in ("newton", "FedCanon+"))
    reached, rival, name = accuracies(networks)
    runs = [run for of in networks.values() for run in automatic(of)]
    default = read("methods-digits")["FedCanon+"]
    plain, compressed = uploads()
    records = read("trust-records")["κ = 0.005, C = 3"]
    private = records["FedCanon+, averaged, 3"]
    rules = read("trust-rules")["breast cancer"]
    mean, filtered = rules["mean"]["sign_flip"], rules["filter"]["sign_flip"]
    million = read("scale-clients")["rows"][-1]
    yield (
        "[Linear models](docs/methods/newton.md), exact in few rounds",
        f"‖G‖ ≤ 1e-9 in at most {max(arrived(newton))} rounds on {len(arrived(newton))} of "
        f"{len(newton)} problems",
        CONVEX,
    )
    yield (
        "[Exact and fast](docs/methods/fedcanon-plus.md), though clients differ, nothing tuned",
        f"‖G‖ ≤ 1e-9 on {len(arrived(ours))} of {len(ours)} problems with linear models; "
        f"{others(convex)}",
        CONVEX,
    )
    yield (
        "[Networks](docs/methods/rounds.md#networks), nothing tuned",
        f"accuracy {reached:.1%} on Fashion-MNIST, mean of {len(networks)} cells; level with "
        f"{name} after five trials, {rival:.1%}; {sum(run['diverged'] for run in runs)} of "
        f"{len(runs)} runs diverged",
        "rounds.py networks --size quick",
    )
    yield (
        "[Zeros that are zeros](docs/tutorial.md)",
        f"{default['zeros']:.1%} of 54,800 weights, with accuracy {default['accuracy']:.3f}",
        "methods.py digits",
    )
    yield (
        "[Small uploads](docs/how-to/compress-uploads.md)",
        f"{compressed[0] / 1e6:.1f} MB instead of {plain[0] / 1e6:.0f} MB to the same f + h; both "
        f"ways {sum(compressed) / 1e6:.0f} instead of {sum(plain) / 1e6:.0f} MB",
        "methods.py compression",
    )
    yield (
        "[Privacy](docs/how-to/privacy.md) of every record, ε = 3",
        f"accuracy {private['accuracy']:.3f} on A9A, without it "
        f"{records['optimum']['accuracy']:.3f}; which weights are zero agrees with F1 = "
        f"{private['f1']:.2f}. With the best of three steps, and of two clips",
        "trust.py records",
    )
    yield (
        "[Hostile clients](docs/how-to/hostile-clients.md), two of ten with flipped signs",
        "distance to the optimum of the honest, in lengths of that optimum: with a filter "
        f"{median(filtered):.2g} (median of {len(filtered)} partitions, the farthest "
        f"{max(filtered):.2g}), with a mean {median(mean):.0f}. "
        "[Not every attack](docs/how-to/hostile-clients.md#what-rules-cannot-do) is stopped",
        "trust.py rules",
    )
    yield (
        "[A million clients](docs/how-to/engines.md) on one machine",
        f"{million['round_ms_per_participant']:.2f} ms for each of the {million['participants']:,} "
        f"in a round, {million['peak_bytes'] / 2**30:.1f} GiB in all",
        "scale.py clients",
    )


def headline() -> str:
    """The rounds in a few sentences."""
    convex = read("rounds-convex")
    every = {name: rounds_to(convex, name, 2) for name in ("newton", "FedCanon+", "FISTA")}
    newton, ours, fista = (arrived(rounds) for rounds in every.values())
    return (
        f"In short: with automatic steps FedCanon+ comes to ‖G‖ ≤ 1e-9 on {len(ours)} of "
        f"{len(every['FedCanon+'])} problems with linear models, in {min(ours)} to {max(ours)} "
        f"rounds. Newton, which needs all clients, takes at most {max(newton)} on {len(newton)} of "
        f"{len(every['newton'])}. FISTA, with a gradient of all clients in every round, takes "
        f"{min(fista)} to {max(fista):,} on {len(fista)} of {len(every['FISTA'])}. And "
        f"{others(convex)}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(what, number, f"`{command}`") for what, number, command in headlines()]
    text = table(("what you get", "measured", "by"), rows)
    (folder / "headlines.md").write_text(text, encoding="utf-8")
    (folder / "headline-rounds.md").write_text(headline(), encoding="utf-8")
    print(text, headline(), sep="\n")


if __name__ == "__main__":
    main()
