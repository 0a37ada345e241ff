"""Items of the paper at the scale that shows that everything runs."""

import json

import pytest

from fedcanon.paper.items import ITEMS
from fedcanon.paper.outcome import Scale
from fedcanon.paper.trials import Trainer


@pytest.fixture
def outcome(tmp_path):
    """The last outcome of an item at the smallest scale, with its runs in a temporary folder."""

    def run(name):
        *_, last = ITEMS[name](Scale.smoke, Trainer(tmp_path / "runs"))
        return last

    return run


@pytest.fixture
def written(fedcanon, tmp_path):
    """An item as a user types it: what was printed, and its JSON."""

    def run(name):
        arguments = ["paper", name, "--scale", "smoke", "--folder", str(tmp_path)]
        code, out, err = fedcanon(*arguments)
        assert (code, err) == (0, "")
        folder = tmp_path / "smoke" / name
        return out, folder, json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))

    return run
