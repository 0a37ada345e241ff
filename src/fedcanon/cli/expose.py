"""``fedcanon expose``: what a run reveals of its clients' data, with its privacy and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcanon.cli.app import ConfigFile, Settings, app, console, plain, table_of

if TYPE_CHECKING:
    from fedcanon.exposure.exposing import Exposure


@app.command()
def expose(config: ConfigFile = None, set_: Settings = None) -> None:
    """Attack a run as a curious server and a curious user would, with and without its privacy."""
    from fedcanon.cli.progress import progress_bar
    from fedcanon.exposure.exposing import exposed
    from fedcanon.runs.config import changed, load_config
    from fedcanon.runs.guarantee import guarantees

    settings = load_config(config, set_ or [])
    runs = {"without privacy": changed(settings, {"privacy": None})}
    if settings.privacy is not None:
        runs["with privacy"] = settings
    found: dict[str, Exposure] = {}
    for label, each in runs.items():
        with progress_bar(label) as bar:
            found[label] = exposed(each, [bar])
    table = table_of("what an attacker sees and finds", numbers=list(runs))
    for what, cells in _rows(found).items():
        table.add_row(plain(what), *cells)
    console.print(table)
    for promise in guarantees(settings):
        console.print(plain(promise))


def _rows(found: dict[str, Exposure]) -> dict[str, list[str]]:
    """What was measured, a row each: the words and a number for every run."""
    all_of = list(found.values())
    return {
        "one client's update: likeness to one of its records": [
            f"{each.update:.2f}" for each in all_of
        ],
        "mean of a round: likeness to a record of that client": [
            f"{each.released:.2f}" for each in all_of
        ],
        "mean of a round: likeness to a record of nobody": [
            f"{each.strangers:.2f}" for each in all_of
        ],
        "model: AUC of members against strangers (chance 0.50)": [
            f"{each.members.auc:.3f}" for each in all_of
        ],
        "model: members found with 1 % false alarms (chance 1 %)": [
            f"{each.members.hits:.1%}" for each in all_of
        ],
    }
