"""``fedcanon check``: whether the conditions on the step sizes hold."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of


@app.command()
def check(
    config: ConfigFile = None,
    set_: Settings = None,
    mu: Annotated[float | None, typer.Option(help="PL constant μ, to check Theorem 2.")] = None,
) -> None:
    """Check the conditions on step sizes, and say which guarantees a run gives."""
    from fedcanon.cli.progress import stage
    from fedcanon.runs.build import build
    from fedcanon.runs.check import PROX_STEP, check_config
    from fedcanon.runs.config import load_config
    from fedcanon.runs.guarantee import guarantees
    from fedcanon.runs.steps import chooses_steps, open_steps

    settings = load_config(config, set_ or [])
    for promise in guarantees(settings):
        console.print(plain(promise))
    if settings.privacy is not None:
        for warning in build(settings).warnings(settings.rounds):
            console.print(f"[yellow]{plain(warning)}[/]")
        console.print("Step sizes are not checked: the smoothness L would tell of the data.")
        return
    with stage("estimating the smoothness L …"):
        report = check_config(settings, mu)
    how = "power iteration at the start" + (report.sample and f", with {report.sample}")
    console.print(f"L ≈ {report.L:.4g} ({how}), ρ = {report.rho:.4g}")
    table = table_of("", "condition", "setting", "limit")
    for condition in report.conditions:
        broken = "[red]✗[/]" if condition.required else "[yellow]–[/]"
        mark = "[green]✓[/]" if condition.holds else broken
        setting = f"{condition.setting} = {condition.value:.4g}"
        table.add_row(mark, condition.reason, setting, f"{condition.limit:.4g}")
    console.print(table)
    if not report.in_theory:
        console.print("No theorem covers this penalty, because it is not weakly convex.")
    for setting, value in report.remedy.items():
        made = "; the page of the method gives its formula" if setting == PROX_STEP else ""
        console.print(f"{setting} = {value:.3g} or less would meet all conditions on it{made}.")
    automatic = chooses_steps(settings.algorithm, open_steps(settings.algorithm))
    if automatic:
        console.print("Steps are automatic: a run that diverges goes back and halves them.")
    elif report.remedy:
        console.print("Steps that are given are obeyed, also by a run that diverges.")
    if report.remedy:
        console.print("[dim]✗ must hold; – is sufficient, but runs often converge without it.[/]")
    if any(condition.required and not condition.holds for condition in report.conditions):
        raise typer.Exit(1)
