"""What the terminal says of a run: a headline at its start, a summary at its end."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from fedcanon.algorithms import ALGORITHMS
from fedcanon.cli.app import plain
from fedcanon.report.page.head import clients_of, method_of, model_of, spread_of
from fedcanon.report.wording import byte_count, described, number
from fedcanon.runs import Federation, Record
from fedcanon.runs.build import resolved
from fedcanon.runs.config import Config
from fedcanon.runs.guarantee import in_short


def headline(config: Config, federation: Federation) -> str:
    """What a run does: lines on its method, its compression if any, its penalty and its problem."""
    method = method_of(resolved(config, federation))
    return "\n".join([*method, problem_headline(config, federation)])


def problem_headline(config: Config, federation: Federation) -> str:
    """A line on the penalty, and one on data, clients and model."""
    data = federation.problem.data or config.data
    return (
        f"{described(resolved(config, federation).penalty)}\n"
        f"{data.name} · {clients_of(config)} · {spread_of(config)} · "
        f"{model_of(config)} with {len(federation.model):,} parameters"
    )


def summary(records: list[Record], stopped: str, config: Config) -> Table:
    """A table of what a run reached and what it cost.

    Args:
        records: Its measures.
        stopped: Why it ended.
        config: Its configuration.
    """
    last, cost = records[-1], records[-1].cost
    tested = "validation" if config.data.validation else "test"
    rows = {
        "rounds": f"{last.round} ({stopped})",
        "loss f": number(last.loss, ".6g"),
        "objective f + h": number(last.objective, ".6g"),
        "stationarity ‖G‖": "" if last.gradient_norm is None else f"{last.gradient_norm:.3g}",
        **{f"{tested} {k.removeprefix('test_')}": f"{v:.4f}" for k, v in last.test.items()},
        **{k.replace("_", " "): f"{v:.3g}" for k, v in last.diagnostics.items()},
        "privacy": in_short(config),
        "exact zeros": f"{last.zeros:,} ({last.sparsity:.1%} of the penalised weights)",
        "prox calls": f"{cost.server_prox:,} server, {cost.client_prox:,} clients",
        "floats": f"{cost.floats_down:,} down, {cost.floats_up:,} up",
        "bytes": f"{byte_count(cost.bytes_down)} down, {byte_count(cost.bytes_up)} up",
        "seconds": f"{cost.seconds:.1f} training, "
        f"{sum(record.evaluation_seconds for record in records):.1f} measuring",
    }
    table = two_columns(rows)
    # One of the user's own is not looked at: to show a run must not import code that it names.
    algorithm = ALGORITHMS.get(str(config.algorithm["name"]))
    if algorithm is not None and algorithm.solves == "f":
        note = f"{algorithm.__name__} minimises f alone; the penalty is only measured"
        table.add_row("[yellow]note[/]", plain(note))
    return table


def two_columns(rows: Mapping[str, str | Text]) -> Table:
    """Names and what they stand for; rows with an empty text are left out."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, text in rows.items():
        if text:
            table.add_row(f"[dim]{plain(name)}[/]", plain(text) if isinstance(text, str) else text)
    return table
