"""Figures in the pages: from files of results, which today's code still reproduces."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from fedcanon import load_config, train
from fedcanon.runs.compare import variants
from tests.forked import run_script

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PARTS = (
    "stops",
    "digits",
    "compression",
    "local-steps",
    "estimators",
    "settings",
    "newton",
    "drawn",
)


def found(part):
    return json.loads((RESULTS / f"methods-{part}.json").read_text())


@pytest.fixture
def part_of(monkeypatch):
    """A module of benchmarks/method_parts by the name of its part."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return lambda part: importlib.import_module(f"method_parts.{part.replace('-', '_')}")


@pytest.mark.parametrize(
    ("program", "files"),
    [("which", ("which.md",)), ("headlines", ("headlines.md", "headline-rounds.md"))],
)
def test_tables_of_several_results_are_made_of_those_that_are_there(program, files, tmp_path):
    script = ROOT / "benchmarks" / f"{program}.py"
    code, out, err = run_script(script, "--results", tmp_path, folder=ROOT)
    assert code == 0, err
    for name in files:
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text()
        assert (tmp_path / name).read_text() in out
    assert all(picture.stat().st_size > 10_000 for picture in tmp_path.glob("*.png"))
    assert (tmp_path / "which.png").exists() == (program == "which")


@pytest.mark.parametrize("part", PARTS)
def test_tables_are_those_of_the_numbers_beside_them(part, part_of):
    for name, text in part_of(part).tables(found(part)):
        assert (RESULTS / f"methods-{name}.md").read_text() == text


@pytest.mark.parametrize("part", PARTS)
def test_pages_say_what_was_measured(part, part_of):
    sentences = list(part_of(part).sentences(found(part)))
    assert [list(said) for said in sentences] == found(part)["sentences"]
    for page, words in sentences:
        text = " ".join((ROOT / "docs" / "methods" / f"{page}.md").read_text().split())
        assert words in text, page


@pytest.mark.slow
def test_methods_come_as_near_in_as_many_rounds_as_their_pages_say(part_of):
    stops = part_of("stops")
    short = {"feddr", "scaffnew", "za1", "feddyn"}
    for (page, _, runs), (_, _, numbers) in zip(stops.SAID, found("stops")["said"], strict=True):
        for run, number in zip(runs, numbers, strict=True):
            if page in short and run.get("rounds", number) < 60:
                again = stops.number(run, stops.ended(run))
                assert again == pytest.approx(number, rel=0.05)


def test_settings_do_what_the_tables_of_their_pages_have(part_of):
    settings, told = part_of("settings"), found("settings")
    for label, place in (("topologies", 0), ("half way", 0), ("probabilities", 1)):
        again, said = settings.ended(settings.RUNS[label][place]), told[label][place]
        for name in ("rounds", "vectors", "prox"):
            assert again[name] == pytest.approx(said[name], rel=0.05), (label, name)
    fast = settings.ended(settings.RUNS["fast-fedda by rounds"][0])
    assert fast["distance"] == pytest.approx(told["fast-fedda by rounds"][0]["distance"], rel=1e-6)


@pytest.mark.parametrize("label", ["breast cancer, κ = 0.01", "float32"])
def test_newton_takes_the_steps_of_its_table(part_of, label):
    newton, said = part_of("newton"), found("newton")[label]
    again = newton.course((newton.PROBLEMS | newton.OTHERS)[label])
    assert again["norms"][:6] == pytest.approx(said["norms"][:6], rel=0.01)
    assert again["prox"][:4] == pytest.approx(said["prox"][:4], rel=0.2)
    assert len(again["norms"]) == pytest.approx(len(said["norms"]), abs=1)


# FedExP's step divides two small numbers, so that rounding soon decides.
@pytest.mark.parametrize(("method", "margin"), [("FedExP", 0.7), ("FedAvg", 1e-3)])
def test_a_common_solution_is_as_near_as_the_page_says(part_of, method, margin):
    (again,) = part_of("drawn").apart(method, [100])["distances"]
    assert again == pytest.approx(found("drawn")["apart"][method][0], rel=margin)


def test_strong_compression_and_long_local_ways_lag_as_the_page_says(part_of):
    drawn, told = part_of("drawn"), found("drawn")["ways"]
    compressor, farthest = "`top_k`, 2 of 20 entries", drawn.WAYS[-1]
    again = drawn.compressed(farthest, compressor, 500)["norm"]
    assert again == pytest.approx(told[compressor][-1], rel=0.5)


def test_the_default_run_begins_as_the_table_has_it():
    course = found("compression")["all"]["`top_k`"]["course"]
    spec = "fedcanon+:compression.name=top_k"
    last = train(variants(load_config(None, ["rounds=2"]), [spec])[spec]).last
    assert course["round"][1] == 2
    assert last.objective == pytest.approx(course["objective"][1], rel=0.02)
    assert last.cost.bytes_up == course["bytes_up"][1]
    assert last.cost.bytes_down == course["bytes_down"][1]


def test_the_default_run_is_the_same_in_both_tables():
    every, compressed = found("digits")["FedCanon+"], found("compression")["all"]["none"]
    for name in ("objective", "accuracy", "zeros", "up", "down"):
        assert every[name] == compressed[name]


def test_fits_take_as_many_rounds_as_the_tables_have(part_of):
    estimators, told = part_of("estimators"), found("estimators")["problems"]
    for method in ("fedcanon+", "newton"):
        fitted = estimators.fitted("diabetes", 1.0, algorithm=method)
        said = told["diabetes, `Lasso`"][method]
        assert fitted["rounds"] == pytest.approx(said["rounds"], abs=2)
        assert fitted["error"] == pytest.approx(said["error"], rel=0.5, abs=1e-10)
    (met,) = part_of("local-steps").rounds_of({"name": "newton"}).values()
    assert met == found("local-steps")["rounds"]["newton"]


def test_the_words_for_the_picture_of_rounds_have_its_numbers():
    convex = json.loads((RESULTS / "rounds-convex.json").read_text())
    spans = []
    for method in ("newton", "FedCanon+", "FISTA"):
        auto = [of[method]["auto"]["rounds"] for of in convex.values() if method in of]
        arrived = [rounds[1] for rounds in auto if rounds[1] is not None]
        spans.append(f"{method} {min(arrived)} to {max(arrived)}")
    for page in ("README.md", "docs/methods/which.md"):
        assert ", ".join(spans) in (ROOT / page).read_text(encoding="utf-8")


def test_pages_say_how_often_large_steps_diverge():
    networks = json.loads((RESULTS / "rounds-networks.json").read_text())

    def diverged(method, multiple):
        trials = [of[method]["trials"][f"{multiple} β, constant"] for of in networks.values()]
        return sum(accuracy == 0 for accuracy in trials)

    full, damped = "FedCanon+, undamped", "FedCanon+, not accelerated"
    said = {
        "fedcanon": f"diverges in {diverged(full, 2)} at twice the automatic β, where FedAvg "
        f"diverges in {diverged('FedAvg', 2)}",
        "fedcanon-plus": f"diverged in {diverged(full, 1)} of {len(networks)} cells with λ = 1 and "
        f"in {diverged(damped, 1)} with λ = 1/4, twice that β in {diverged(full, 2)} and "
        f"{diverged(damped, 2)}, four times in {diverged(full, 4)} and {diverged(damped, 4)}",
        "scaffold": f"diverges in {diverged('SCAFFOLD', 1)} at the automatic β and in "
        f"{diverged('SCAFFOLD', 2)} at twice that, where FedAvg diverges in "
        f"{diverged('FedAvg', 2)}; with the correction damped by a `gain` in "
        f"{diverged('SCAFFOLD, damped', 1)} and {diverged('SCAFFOLD, damped', 2)}",
    }
    for page, words in said.items():
        text = " ".join((ROOT / "docs" / "methods" / f"{page}.md").read_text("utf-8").split())
        assert words in text, page


def test_commands_of_the_table_of_cases_are_valid(monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"`(fedcanon run.*?)`", (RESULTS / "which.md").read_text())
    assert len(commands) == 8
    for command in commands:
        words = shlex.split(command)[2:]
        settings = [word for word in words if "=" in word]
        (path,) = [word for word in words if word.endswith(".toml")] or [None]
        assert len(words) == 2 * len(settings) + (path is not None)
        assert load_config(path, settings).rounds > 0
