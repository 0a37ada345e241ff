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

from comparison import convex, convex_report, networks, networks_report
from comparison.parts import options_of, working
from rich.console import Console
from rich.markdown import Markdown


def main() -> None:
    parser = options_of("rounds", __doc__, ("convex", "networks"))
    parser.add_argument("--first", type=int, help="only so many of the problems")
    parser.add_argument(
        "--rounds", type=int, default=convex.CAP, help="convex: at most so many of other methods"
    )
    parser.add_argument(
        "--size", choices=networks.SIZES, default="medium", help="networks: how much"
    )
    options = parser.parse_args()
    if options.smoke:
        options.first, options.rounds = 1, 20
    path = options.results / f"rounds-{options.part}"
    size = networks.SMOKE if options.smoke else networks.SIZES[options.size]
    with working(options) as (journal, progress):
        if options.part == "convex":
            found = convex.compare(journal, options.rounds, options.first, progress)
            summary = convex_report.report(found, options.rounds, path)
        else:
            found = networks.compare(journal, size, options.first, progress)
            summary = networks_report.report(found, size, path)
    Console().print(Markdown(summary))


if __name__ == "__main__":
    main()
