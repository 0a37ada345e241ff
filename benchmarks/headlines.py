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

from comparison.findings import RESULTS, accuracies, automatic, others, read, rounds_of, uploads
from comparison.tables import table


def headlines() -> Iterator[tuple[str, str, str]]:
    """What a user gets, the number behind it, and the command that measures it."""
    convex, networks = read("rounds-convex"), read("rounds-networks")
    newton, ours = rounds_of(convex, "newton"), rounds_of(convex, "FedCanon+")
    reached, rival, name = accuracies(networks)
    runs = [run for of in networks.values() for run in automatic(of)]
    default = read("methods-digits")["FedCanon+"]
    (plain, _), (compressed, _) = uploads()
    records = read("trust-records")["κ = 0.001, C = 3"]
    rules = {
        rule: median(read("trust-rules")["breast cancer"][rule]["sign_flip"])
        for rule in ("mean", "filter")
    }
    million = read("scale-clients")["rows"][-1]
    yield (
        "[Linear models](docs/methods/newton.md), exact in few rounds",
        f"‖G‖ ≤ 1e-9 in at most {max(found[2] for found in newton.values())} rounds on "
        f"{len(newton)} of {len(newton)} problems",
        "rounds.py convex",
    )
    yield (
        "[Exact](docs/methods/fedcanon-plus.md), though clients differ and steps are automatic",
        f"‖G‖ ≤ 1e-9 on {len(ours)} of {len(convex)} problems; {others(convex)}",
        "rounds.py convex",
    )
    yield (
        "[Networks](docs/methods/rounds.md#networks) without a trial",
        f"accuracy {reached:.1%}, {name} with five trials {rival:.1%}; "
        f"{sum(run['diverged'] for run in runs)} of {len(runs)} runs diverged",
        "rounds.py networks --size quick",
    )
    yield (
        "[Zeros that are zeros](docs/tutorial.md)",
        f"{default['zeros']:.1%} of 54,800 weights, with accuracy {default['accuracy']:.3f}",
        "methods.py digits",
    )
    yield (
        "[Small uploads](docs/how-to/compress-uploads.md)",
        f"{compressed / 1e6:.1f} MB instead of {plain / 1e6:.0f} MB to the same f + h",
        "methods.py compression",
    )
    yield (
        "[Privacy](docs/how-to/privacy.md) of every record, ε = 3",
        f"accuracy {records['FedCanon+, averaged, 3']['accuracy']:.3f} on A9A, without it "
        f"{records['optimum']['accuracy']:.3f} (best of three steps)",
        "trust.py records",
    )
    yield (
        "[Hostile clients](docs/how-to/hostile-clients.md), two of ten with flipped signs",
        f"{rules['filter']:.2g} from the honest optimum; a mean is {rules['mean']:.0f} away. "
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
    """The rounds in one sentence."""
    convex = read("rounds-convex")
    newton, ours, fista = (rounds_of(convex, name) for name in ("newton", "FedCanon+", "FISTA"))
    return (
        f"In short: with automatic steps FedCanon+ comes to ‖G‖ ≤ 1e-9 on {len(ours)} of "
        f"{len(convex)} problems, in {min(found[2] for found in ours.values())} to "
        f"{max(found[2] for found in ours.values())} rounds. Newton, which needs all clients and a "
        f"linear model, takes at most {max(found[2] for found in newton.values())} on "
        f"{len(newton)} of {len(newton)}. "
        f"FISTA, with a gradient of all clients in every round, takes "
        f"{min(found[2] for found in fista.values())} to "
        f"{max(found[2] for found in fista.values()):,}. With their "
        f"automatic steps, {others(convex)}.\n"
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
