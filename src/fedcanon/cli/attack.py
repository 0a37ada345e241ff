"""``fedcanon attack``: how well rules withstand hostile clients, on one's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of
from fedcanon.errors import DivergenceError

if TYPE_CHECKING:
    from fedcanon.runs.config import Config

NOBODY = "nobody"
RULES = ["mean", "filter", "geometric-median", "trimmed-mean", "nnm+trimmed-mean"]
"""The rules that are tried by default; their names fit side by side."""


@app.command()
def attack(
    config: ConfigFile = None,
    set_: Settings = None,
    clients: Annotated[int, typer.Option(min=1, help="How many clients are hostile.")] = 2,
    rule: Annotated[
        list[str] | None, typer.Option(help="A rule to try; several by default.", metavar="NAME")
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="An attack; all by default.", metavar="NAME")
    ] = None,
) -> None:
    """Train with hostile clients, for every rule and every attack, and compare the models."""
    from fedcanon.cli.progress import meter
    from fedcanon.robustness import ATTACKS
    from fedcanon.runs.build import check_names
    from fedcanon.runs.config import load_config

    settings = load_config(config, set_ or [])
    attacks, rules = [NOBODY, *(attack or ATTACKS)], rule or RULES
    runs = {(r, a): _attacked(settings, r, a, clients) for a in attacks for r in rules}
    for each in runs.values():
        check_names(each)
    found: dict[tuple[str, str], str] = {}
    what = ""
    with meter("run", len(runs)) as tell:
        for number, ((r, a), each) in enumerate(runs.items()):
            tell(number, f"{r} against {a}")
            name, found[r, a] = _reached(each)
            what = name or what
    console.print(f"{what} with {clients} hostile of {settings.clients.count} clients:")
    table = table_of("attack", numbers=rules)
    for a in attacks:
        table.add_row(plain(a), *(found[r, a] for r in rules))
    console.print(table)


def _attacked(config: Config, rule: str, attack: str, clients: int) -> Config:
    """A configuration with a rule, and with hostile clients unless nobody attacks."""
    from fedcanon.runs.config import changed

    hostile = None if attack == NOBODY else {"attack": attack, "clients": clients}
    robust = {"rule": rule, "byzantine": clients}
    return changed(
        config, {"robust": robust, "adversary": hostile, "evaluate.every": config.rounds}
    )


def _reached(config: Config) -> tuple[str, str]:
    """What is compared, the accuracy where there is one, and its value at the end of a run."""
    from fedcanon.runs.build import build
    from fedcanon.runs.training import fit_as

    try:
        last = fit_as(config, build(config)).last
    except DivergenceError:
        return "", "diverged"
    accuracy = last.test.get("accuracy")
    if accuracy is None:
        return "Objective f + h", f"{last.objective:.4g}"
    return "Test accuracy", f"{accuracy:.3f}"
