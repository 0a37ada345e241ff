"""``fedcanon paper``: the tables and figures of the paper."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from fedcanon.cli.app import app, console
from fedcanon.paper import costs as table_three


class Item(StrEnum):
    """What can be reproduced."""

    costs = "costs"


@app.command()
def paper(item: Annotated[Item, typer.Argument(help="A table or figure.")]) -> None:
    """Reproduce a table or figure of the paper."""
    {Item.costs: _costs}[item]()


def _costs() -> None:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("", "prox per round"):
        table.add_column(column, no_wrap=True)
    for column in ("formula", "counted", "floats/d", "counted", ""):
        table.add_column(column, justify="right")
    agree = True
    with console.status("running every composite method …"):
        for cost in table_three.costs():
            method, agree = cost.method, agree and cost.agrees
            table.add_row(
                method.name if method.in_paper else f"{method.name} [dim]*[/]",
                method.prox_formula,
                f"{method.prox:.4g}",
                f"{cost.prox:.4g}",
                f"{method.floats:g}",
                f"{cost.floats:.4g}",
                "[green]✓[/]" if cost.agrees else "[red]✗[/]",
            )
    console.print(
        f"[bold]Table III, measured[/] · N = {table_three.CLIENTS}, K = {table_three.LOCAL_STEPS}, "
        f"|S| = {table_three.SAMPLED} where sampled, a round t ≥ 1 on digits with ℓ1\n",
        highlight=False,
    )
    console.print(table, highlight=False)
    console.print("\n[dim]* not in the paper's table[/]", highlight=False)
    if not agree:
        raise typer.Exit(1)
