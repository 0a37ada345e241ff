"""The pages on runs and comparisons: their commands print what the pages say.

Networks are trained for many rounds in single precision, so that another processor gives other
digits: words and counts must be the same, measures near.
"""

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine

from fedcanon.compression import Clip, Quantise, RandomK, Sign, TopK
from tests.shown import numbers, printed_as_shown, words

PROJECT = Path(__file__).parents[1]
TUTORIAL = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMPARE = (PROJECT / "docs" / "how-to" / "compare.md").read_text(encoding="utf-8")
SWEEPS = (PROJECT / "docs" / "how-to" / "sweeps.md").read_text(encoding="utf-8")
EXPORT = (PROJECT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
COMPRESS = (PROJECT / "docs" / "how-to" / "compress-uploads.md").read_text(encoding="utf-8")
COUNTED = ("rounds", "prox calls", "floats", "bytes")
"""Rows of a summary that are counted, and so the same on every machine."""


def block_with(page, words):
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if words in block]
    return found


def untimed(table):
    """A table of a comparison without its last column, the seconds."""
    settings, rows = table.split("seconds\n", 1)
    return settings + re.sub(r" [\d.]+$", "", rows, flags=re.MULTILINE)


def measured(out):
    """Objective, accuracy, percentage of zeros, prox calls and floats of a run as printed."""
    rows = dict(re.findall(r"^  (\S.*?)  +(.*?) *$", out, re.MULTILINE))
    zeros = float(re.search(r"\((.*)%", rows["exact zeros"])[1])
    down, up = numbers(rows["floats"])
    prox = sum(numbers(rows["prox calls"]))
    return float(rows["objective f + h"]), float(rows["test accuracy"]), zeros, prox, down, up


@pytest.mark.slow
def test_the_default_run_prints_what_the_tutorial_shows(fedcanon, tmp_path):
    code, out, err = fedcanon("run", "--folder", str(tmp_path / "run"))
    assert code == 0, err
    head, shown = block_with(TUTORIAL, "stationarity").split("\n\n")
    lines = [line.rstrip() for line in out.splitlines()]
    assert head.splitlines() == lines[: len(head.splitlines())]
    printed = lines[len(head.splitlines()) :]
    for line, own in zip(shown.splitlines(), printed, strict=False):
        name = line.strip().split("  ")[0]
        assert words(line) == words(own)
        if name in COUNTED:
            assert line.strip() == own.strip()
        elif name != "seconds":
            margin = 0.5 if name.startswith("stationarity") else 0.2
            assert numbers(own) == pytest.approx(numbers(line), rel=margin)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "told", "margin"),
    [
        # The last model depends on who took part, and so on rounding.
        (
            "clients.participants=3",
            r"first of these has (?P<zeros>\d+) % zeros, for (?P<up>\S+) floats up .* "
            r"accuracy was (?P<low>\S+) to (?P<high>[\d.]+),",
            0.1,
        ),
        (
            "data.partition=iid",
            r"second has about (?P<low>(?P<high>\S+)) with (?P<zeros>\d+) % zeros",
            0.02,
        ),
    ],
)
def test_other_settings_reach_what_the_tutorial_says(fedcanon, tmp_path, setting, told, margin):
    assert f"fedcanon run --set {setting}" in TUTORIAL
    code, out, err = fedcanon("run", "--set", setting, "--folder", str(tmp_path / "run"))
    assert code == 0, err
    _, accuracy, zeros, _, _, up = measured(out)
    said = re.search(told, " ".join(TUTORIAL.split())).groupdict()
    assert float(said["low"]) - margin <= accuracy <= float(said["high"]) + margin
    assert zeros == pytest.approx(float(said["zeros"]), abs=1)
    assert "up" not in said or up == float(said["up"].replace(",", ""))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share", "points"),
    [
        ("fedcanon+", 0.5, 0.05),  # momentum makes its course jump, and so the last model
        ("fedcanon", 0.1, 0.02),
        ("fedcanon2", 0.1, 0.02),
        ("fedavg", 0.1, 0.02),
    ],
)
def test_methods_reach_what_the_table_of_the_tutorial_says(fedcanon, tmp_path, name, share, points):
    row = re.search(rf"^\| `{re.escape(name)}` \|(.*)\|$", TUTORIAL, re.MULTILINE)[1]
    options = ("--set", f"algorithm.name={name}", "--folder", str(tmp_path / "run"))
    code, out, err = fedcanon("run", *options)
    assert code == 0, err
    objective, accuracy, zeros, *counts = measured(out)
    said_objective, said_accuracy, said_zeros, *said_counts = numbers(row)
    assert objective == pytest.approx(said_objective, rel=share)
    assert accuracy == pytest.approx(said_accuracy, abs=points)
    assert zeros == pytest.approx(said_zeros, abs=1)
    assert counts == said_counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words_of_block"), [((), "L ≈"), (("algorithm.name=fedcanon",), "Theorem 1")]
)
def test_check_prints_what_the_tutorial_shows(fedcanon, settings, words_of_block):
    code, out, err = fedcanon("check", *(word for each in settings for word in ("--set", each)))
    assert code == 0, err
    lines = [line.rstrip() for line in out.splitlines()]
    for line in block_with(TUTORIAL, words_of_block).splitlines():
        (own,) = [each for each in lines if words(each) == words(line)]
        assert numbers(own) == pytest.approx(numbers(line), rel=0.05)


@pytest.mark.slow
def test_a_comparison_prints_the_table_of_its_page(fedcanon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^fedcanon compare .*top_k \\\n.*\\\n.*$", COMPARE, re.MULTILINE)
    code, out, err = fedcanon(*shlex.split(command.replace("\\\n", " "))[1:])
    assert code == 0, err
    shown = block_with(COMPARE, "top_k")
    printed = "\n".join(line.rstrip() for line in out.splitlines())
    assert words(shown) in words(printed)
    said, found = numbers(untimed(shown)), numbers(untimed(printed))
    assert np.isclose(said, found[: len(said)], rtol=0.3).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "words_of_block"),
    [
        ("fedcanon sweep --over algorithm.beta=0.03", "grid"),
        ("fedcanon path --kappas", "non-zeros"),
    ],
)
def test_sweeps_and_paths_print_the_tables_of_their_page(
    fedcanon, tmp_path, monkeypatch, begin, words_of_block
):
    monkeypatch.chdir(tmp_path)
    command = re.search(rf"^{begin}(?:.*\\\n)*.*$", SWEEPS, re.MULTILINE)[0]
    code, out, err = fedcanon(*shlex.split(command.replace("\\\n", " "))[1:])
    assert code == 0, err
    shown = block_with(SWEEPS, words_of_block)
    assert words(shown) in words(out)
    said, found = numbers(shown), numbers(out)[: len(numbers(shown))]
    assert np.isclose(said, found, rtol=0.1, atol=0.02).mean() > 0.9  # others where trials tie


@pytest.mark.parametrize(
    ("name", "compressor"),
    [
        ("`top_k`", TopK()),
        ("`random_k`", RandomK()),
        ("`quantise`, 8 bits", Quantise(8)),
        ("`quantise`", Quantise()),
        ("`quantise`, 2 bits", Quantise(2)),
        ("`sign`", Sign()),
        ("`clip`", Clip()),
    ],
)
def test_compressors_send_and_keep_what_their_table_says(name, compressor):
    table = COMPRESS.partition("bytes of 220,840")[2]
    row = re.search(rf"^\| {name} \|.*\| (\S+) \| (.*)\|$", table, re.MULTILINE)
    size = 55_210
    rng = np.random.default_rng(0)
    u = torch.from_numpy(rng.standard_normal(size, dtype=np.float32))
    sent = compressor(u, rng)
    assert [sent.bytes] == numbers(row[1])
    if name != "`clip`":
        lost = float((sent.vector - u).square().sum() / u.square().sum())
        kept = [compressor.contraction(size), 1 - lost]
        assert kept == pytest.approx(numbers(row[2]), rel=0.05)


@pytest.mark.slow
def test_the_model_built_by_hand_prints_what_its_page_shows(capsys):
    page = (PROJECT / "docs" / "how-to" / "use-your-own-model.md").read_text(encoding="utf-8")
    runpy.run_path(str(PROJECT / "examples" / "own_model.py"), run_name="__main__")
    printed, shown = capsys.readouterr().out, block_with(page, "neurons have no input left")
    assert words(printed) == words(shown)
    accuracy, removed, all_of = numbers(printed)
    assert (accuracy, all_of) == (pytest.approx(numbers(shown)[0], abs=0.02), 100)
    assert removed == pytest.approx(numbers(shown)[1], abs=5)


@pytest.mark.slow
def test_a_network_of_ones_own_runs_as_its_page_shows(fedcanon, tmp_path, monkeypatch):
    monkeypatch.chdir(PROJECT)
    page = (PROJECT / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    shown = block_with(page, "examples.own_network:network")
    code, out, err = fedcanon("run", "examples/own_network.toml", "--folder", str(tmp_path / "run"))
    assert code == 0, err
    assert words(shown) in words(out)
    said, found = numbers(shown), numbers(out)[: len(numbers(shown))]
    assert np.isclose(said, found, rtol=0.1).mean() > 0.9  # the seconds are others


@pytest.mark.slow
def test_an_observer_stops_where_the_page_on_runs_says(capsys):
    page = (PROJECT / "docs" / "how-to" / "runs.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (program,) = [text for text in programs if "class Enough" in text]
    exec(compile(program, "page", "exec"), {})
    shown = re.search(r"It prints `(accuracy .*?)`", page)[1]
    printed = capsys.readouterr().out
    assert words(printed) == words(shown)
    assert numbers(printed) == pytest.approx(numbers(shown), abs=5)


def test_the_run_of_the_tutorial_is_also_in_other_pages():
    head, measures = block_with(TUTORIAL, "stationarity").split("\n\n")
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert block_with(readme, "stationarity").split() == (head + measures).split()
    steps = (PROJECT / "docs" / "how-to" / "steps.md").read_text(encoding="utf-8")
    assert block_with(steps, "gain = ").strip() in " ".join(head.split())


def test_digits_are_spread_as_the_page_on_partitions_shows(fedcanon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (PROJECT / "docs" / "how-to" / "partitions.md").read_text(encoding="utf-8")
    command = re.search(r"^fedcanon data digits .*$", page, re.MULTILINE)[0]
    code, out, err = fedcanon(*shlex.split(command)[1:])
    assert code == 0, err
    assert printed_as_shown(re.sub(r"^ +…$", "…", block_with(page, "label skew"), flags=re.M), out)


def test_the_table_of_cellars_is_spread_as_the_page_on_data_shows(fedcanon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wine = load_wine(as_frame=True).frame
    cellars = ["east", "north", "south", "west"]
    wine["cellar"] = np.random.default_rng(0).choice(cellars, len(wine))
    pd.DataFrame(wine).to_csv("wine.csv", index=False)
    page = (PROJECT / "docs" / "how-to" / "data.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^fedcanon data table .*\\\n.*$", page, re.MULTILINE)
    code, out, err = fedcanon(*shlex.split(command.replace("\\\n", " "))[1:])
    assert code == 0, err
    assert printed_as_shown(block_with(page, "largest class"), out), out


@pytest.mark.slow
def test_a_pruned_run_is_as_small_and_as_accurate_as_its_page_says(fedcanon, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```bash\n(fedcanon .*?)^```$", EXPORT, re.DOTALL | re.MULTILINE)
    training, *others = [shlex.split(block.replace("\\\n", " "))[1:] for block in blocks]
    code, out, err = fedcanon(*training)
    assert code == 0, err
    _, accuracy, zeros, *_ = measured(out)
    told = re.search(r"ends with (\S+) % zeros and a test accuracy of (\S+)\.\s", EXPORT)
    assert (zeros, accuracy) == pytest.approx([float(number) for number in told.groups()], rel=0.02)
    shown = ["model.sparse.safetensors    31", "neurons and channels", "small on digits"]
    for command, some in zip(others[: len(shown)], shown, strict=True):
        code, out, err = fedcanon(*command)
        assert code == 0, err
        for line, own in zip(block_with(EXPORT, some).splitlines(), out.splitlines(), strict=True):
            if "latency" not in line:
                assert words(line) == words(own)
                assert numbers(own) == pytest.approx(numbers(line), rel=0.1)
