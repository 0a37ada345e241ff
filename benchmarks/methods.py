"""The tables on the pages of methods: python benchmarks/methods.py PART.

- stops: how far each method ends from the minimiser of five quadratics, also with compressors.
- digits: what each method reaches in the default run, and what it costs.
- compression: the default run with each compressor.
- local-steps: rounds to a tolerance on breast cancer, by the number of local steps.
- estimators: rounds and errors of the estimators for scikit-learn.
- settings: what single settings of methods do on the quadratics.
- newton: the rounds of Newton on breast cancer and on A9A.
- drawn: FedExP on least squares, and FedCanon+, also compressed, on logistic losses of drawn data.

Every finished run is kept in ``--work`` and is not repeated. Results go to ``--results`` as JSON,
with the sentences of the pages that have numbers from there, and as Markdown tables. ``--smoke``
shows in seconds that it works.
"""

from __future__ import annotations

import json

from comparison.parts import options_of, working
from method_parts import (
    compression,
    digits,
    drawn,
    estimators,
    local_steps,
    newton,
    settings,
    stops,
)
from rich.console import Console
from rich.markdown import Markdown

PARTS = {
    "stops": stops,
    "digits": digits,
    "compression": compression,
    "local-steps": local_steps,
    "estimators": estimators,
    "settings": settings,
    "newton": newton,
    "drawn": drawn,
}


def main() -> None:
    options = options_of("methods", __doc__, PARTS).parse_args()
    part = PARTS[options.part]
    with working(options) as (journal, progress):
        found = part.measure(journal, progress, smoke=options.smoke)
    options.results.mkdir(parents=True, exist_ok=True)
    written = {**found, "sentences": [] if options.smoke else list(part.sentences(found))}
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":")) + "\n"
    (options.results / f"methods-{options.part}.json").write_text(text)
    for name, lines in part.tables(found):
        (options.results / f"methods-{name}.md").write_text(lines)
        Console().print(Markdown(lines))


if __name__ == "__main__":
    main()
