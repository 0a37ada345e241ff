"""How runs are described in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from fedcanon.algorithms import ALGORITHMS
from fedcanon.compression import Identity
from fedcanon.penalties import PerLayer
from fedcanon.report.page.wording import byte_count
from fedcanon.runs import Federation, Record
from fedcanon.runs.config import Config


def headline(config: Config, federation: Federation) -> str:
    """Method, compression if there is any, penalty and problem, a line each."""
    lines = [described(federation.algorithm), problem_headline(config, federation)]
    if not isinstance(federation.rules.compressor, Identity):
        lines.insert(1, f"uploads through {described(federation.rules.compressor)}")
    return "\n".join(lines)


def problem_headline(config: Config, federation: Federation) -> str:
    """Penalty and problem, a line each."""
    clients = f"{config.clients.count} clients"
    if federation.participants not in (None, config.clients.count):
        clients = f"{federation.participants} of {clients} per round"
    penalty = federation.penalty
    terms = [term for _, term in penalty.placed] if isinstance(penalty, PerLayer) else [penalty]
    data = federation.problem.data or config.data
    return (
        f"{', '.join(dict.fromkeys(map(described, terms)))}\n"
        f"{data.name} · {clients} · {config.data.partition} · "
        f"{config.model.name} with {len(federation.model):,} parameters"
    )


def described(entry: Any) -> str:
    """Name and parameters, without those left unset."""
    settings = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    shown = ", ".join(
        f"{name} = {f'{len(value)} values' if isinstance(value, tuple) else value}"
        for name, value in settings.items()
        if value is not None
    )
    return f"{type(entry).__name__}: {shown}" if shown else type(entry).__name__


def summary(records: list[Record], stopped: str, config: Config) -> Table:
    """What a run reached and what it cost."""
    last, cost = records[-1], records[-1].cost
    rows = {
        "rounds": f"{last.round} ({stopped})",
        "loss f": f"{last.loss:.6g}",
        "objective f + h": f"{last.objective:.6g}",
        "stationarity ‖G‖": "" if last.gradient_norm is None else f"{last.gradient_norm:.3g}",
        **{f"test {k.removeprefix('test_')}": f"{v:.4f}" for k, v in last.test.items()},
        **{k.replace("_", " "): f"{v:.3g}" for k, v in last.diagnostics.items()},
        "exact zeros": f"{last.zeros:,} ({last.sparsity:.1%} of the penalised weights)",
        "prox calls": f"{cost.server_prox:,} server, {cost.client_prox:,} clients",
        "floats": f"{cost.floats_down:,} down, {cost.floats_up:,} up",
        "bytes": f"{byte_count(cost.bytes_down)} down, {byte_count(cost.bytes_up)} up",
        "seconds": f"{cost.seconds:.1f} training, "
        f"{sum(record.evaluation_seconds for record in records):.1f} measuring",
    }
    table = two_columns(rows)
    algorithm = ALGORITHMS.get(config.algorithm["name"])  # None for one registered elsewhere
    if algorithm is not None and algorithm.solves == "f":
        note = f"{algorithm.__name__} minimises f alone; the penalty is only measured"
        table.add_row("[yellow]note[/]", note)
    return table


def two_columns(rows: Mapping[str, str]) -> Table:
    """Names and what they stand for, without empty ones."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, shown in rows.items():
        if shown:
            table.add_row(f"[dim]{name}[/]", shown)
    return table
