"""What privacy and robustness cost: python benchmarks/trust.py PART.

- clients: the objective reached with privacy of clients, by the noise and the forgetting.
- accountant: ε by several accountants, the noise that a budget needs, and an audit of the claim.
- records: objective, accuracy and selection with privacy of records.
- rules: how far hostile clients carry the model away, for every rule.
- limits: a wrong clip, hostile clients below a clip, honest clients that a rule leaves out.
- generalisation: excess risk by the number of samples, with and without hostile clients.

Every finished run is written to a file in ``--work`` and is not repeated. Results go to
``--results`` as JSON, as a Markdown table and, where there are curves, as a picture. ``--smoke``
shows in seconds that it works. The noise of private runs has no seed: their numbers differ a little
from one measurement to the next.
"""

from __future__ import annotations

import sys
from pathlib import Path

from comparison.parts import options_of, working
from rich.console import Console
from rich.markdown import Markdown

sys.path.insert(0, str(Path(__file__).parent.parent))  # the audit is that of the tests

from trust_parts import accountant, clients, generalisation, limits, records, rules

PARTS = {
    "clients": clients,
    "accountant": accountant,
    "records": records,
    "rules": rules,
    "limits": limits,
    "generalisation": generalisation,
}


def main() -> None:
    options = options_of("trust", __doc__, PARTS).parse_args()
    part = PARTS[options.part]
    size = part.SMOKE if options.smoke else part.FULL
    with working(options) as (journal, progress):
        found = part.measure(journal, size, progress)
    Console().print(Markdown(part.report(found, size, options.results / f"trust-{options.part}")))


if __name__ == "__main__":
    main()
