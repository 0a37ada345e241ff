"""The table of a comparison: what each method reached over seeds, as text, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcanon.report.wording import byte_count, different, mean_and_deviation
from fedcanon.runs.measures import Record

Finals = Mapping[str, Mapping[int, Record]]
"""The last measures of every run, by method and seed."""


@dataclass(frozen=True)
class Column:
    """A measure of a table: its name in LaTeX and in CSV, and how it is found and written.

    ``absent`` says why it may be blank.
    """

    latex: str
    csv: str
    measure: Callable[[Record], float | None]
    mean: Callable[[float], str]
    deviation: Callable[[float], str]
    absent: str = ""


_PRIVATE = "a private run measures nothing on the clients' data"
_COUNT = "{:,.0f}".format

COLUMNS = {
    "f + h": Column(
        "$f + h$", "objective", lambda r: r.objective, "{:.5g}".format, "{:.1g}".format, _PRIVATE
    ),
    "‖G‖": Column(
        r"$\|G\|$",
        "gradient_norm",
        lambda r: r.gradient_norm,
        "{:.1e}".format,
        "{:.0e}".format,
        "it is measured only in small problems; --set evaluate.gradient=true measures it",
    ),
    "accuracy": Column(
        "accuracy",
        "accuracy",
        lambda r: r.test.get("accuracy"),
        "{:.4f}".format,
        "{:.4f}".format,
        "there are no test data with classes",
    ),
    "zeros": Column("zeros", "sparsity", lambda r: r.sparsity, "{:.1%}".format, "{:.1%}".format),
    "prox": Column(
        "prox", "prox", lambda r: r.cost.server_prox + r.cost.client_prox, _COUNT, _COUNT
    ),
    "sent": Column(
        "sent", "bytes", lambda r: r.cost.bytes_down + r.cost.bytes_up, byte_count, byte_count
    ),
    "seconds": Column(
        "seconds", "seconds", lambda r: r.cost.seconds, "{:,.1f}".format, "{:.1f}".format
    ),
}
"""The columns by their names in the terminal."""


@dataclass(frozen=True)
class Row:
    """What a method reached: by column the mean and the standard deviation over seeds.

    A column that was not measured is not there; the deviation of one seed is None.
    """

    method: str
    seeds: tuple[int, ...]
    values: dict[str, tuple[float, float | None]]

    def means(self) -> list[str]:
        """The means as text, "" where nothing was measured."""
        return [
            column.mean(self.values[name][0]) if name in self.values else ""
            for name, column in COLUMNS.items()
        ]

    def deviations(self) -> list[str]:
        """The deviations as text, "" where there are none."""
        found = {name: spread for name, (_, spread) in self.values.items() if spread is not None}
        return [
            f"± {column.deviation(found[name])}" if name in found else ""
            for name, column in COLUMNS.items()
        ]


def rows(finals: Finals) -> list[Row]:
    """A row for each method."""
    return [Row(method, tuple(runs), dict(_values(runs))) for method, runs in finals.items()]


def _values(runs: Mapping[int, Record]) -> Iterator[tuple[str, tuple[float, float | None]]]:
    for name, column in COLUMNS.items():
        found = [column.measure(record) for record in runs.values()]
        values = [value for value in found if value is not None and not math.isnan(value)]
        if values:
            mean, deviation = mean_and_deviation(values)
            yield name, (mean, deviation if len(values) > 1 else None)


def reasons(table: Sequence[Row]) -> list[str]:
    """A sentence for every column with a blank cell that says why it is blank."""
    return [
        f"{name} is blank{_for(blank, table)}: {column.absent}."
        for name, column in COLUMNS.items()
        if (blank := [row.method for row in table if row.values and name not in row.values])
    ]


def _for(methods: Sequence[str], table: Sequence[Row]) -> str:
    return "" if len(methods) == len(table) else f" for {', '.join(different(methods))}"


def csv_rows(table: Sequence[Row]) -> list[dict[str, Any]]:
    """The table for CSV: all digits, deviations in columns of their own."""
    return [
        {
            "method": row.method,
            "seeds": len(row.seeds),
            **{
                f"{column.csv}{ending}": row.values.get(name, (None, None))[place]
                for name, column in COLUMNS.items()
                for place, ending in enumerate(("", "_deviation"))
            },
        }
        for row in table
    ]


def latex(table: Sequence[Row]) -> str:
    """The table for LaTeX, with the rules of the package booktabs."""
    used = [name for name in COLUMNS if any(name in row.values for row in table)]
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * len(used)}}}",
        r"\toprule",
        " & ".join(["", *(COLUMNS[name].latex for name in used)]).lstrip() + r" \\",
        r"\midrule",
        *(
            " & ".join([_escaped(row.method), *(_cell(row, name) for name in used)]) + r" \\"
            for row in table
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _cell(row: Row, name: str) -> str:
    if name not in row.values:
        return "--"
    column, (mean, deviation) = COLUMNS[name], row.values[name]
    if not deviation:
        return _escaped(column.mean(mean))
    return rf"{_escaped(column.mean(mean))} $\pm$ {_escaped(column.deviation(deviation))}"


def _escaped(text: str) -> str:
    """Text for LaTeX."""
    return "".join(rf"\{sign}" if sign in r"&%$#_{}" else sign for sign in text)
