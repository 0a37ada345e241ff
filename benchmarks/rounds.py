"""How many rounds and bytes methods need: python benchmarks/rounds.py convex | networks.

- convex: to ‖G‖ ≤ 1e-3, 1e-6 and 1e-9 on linear models with ℓ1, MCP, SCAD and the group lasso, for
  every composite method with automatic steps and with the best of nine others, beside FISTA with
  one gradient per round.
- networks: to a test accuracy on Fashion-MNIST, for methods tuned with the same number of trials.

Every finished run is written to a file in ``--work`` and is not repeated. Results go to
``--results`` as JSON, as a Markdown table and as a picture. ``--smoke`` shows in seconds that it
works.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from comparison import convex, convex_report, networks, networks_report
from comparison.journal import Journal
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedcanon.threads import one_thread

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("convex", "networks"))
    parser.add_argument("--first", type=int, help="only so many of the problems")
    parser.add_argument(
        "--rounds", type=int, default=convex.CAP, help="convex: at most so many of other methods"
    )
    parser.add_argument(
        "--size", choices=networks.SIZES, default="medium", help="networks: how much"
    )
    parser.add_argument("--work", type=Path, default=FOLDER.parent / "runs" / "rounds")
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--smoke", action="store_true", help="the least of it")
    options = parser.parse_args()
    if options.smoke:
        options.first, options.rounds = 1, 20
    journal = Journal(options.work / f"{options.part}.jsonl")
    path = options.results / f"rounds-{options.part}"
    size = networks.SMOKE if options.smoke else networks.SIZES[options.size]
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with one_thread(), Progress(*columns) as progress:
        if options.part == "convex":
            found = convex.compare(journal, options.rounds, options.first, progress)
            summary = convex_report.report(found, options.rounds, path)
        else:
            found = networks.compare(journal, size, options.first, progress)
            summary = networks_report.report(found, size, path)
    Console().print(Markdown(summary))


if __name__ == "__main__":
    main()
