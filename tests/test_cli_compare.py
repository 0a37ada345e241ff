"""``fedcanon compare`` as a user types it."""

import re

import numpy as np
import pandas as pd
import pytest

from fedcanon import build, fit, load_config
from fedcanon.runs.compare import variants
from fedcanon.runs.config import changed
from fedcanon.runs.folder import RunFolder

SHORT = ["--set", "rounds=3", "--set", "model.name=linear"]


def row(out, label):
    return next(line.split() for line in out.splitlines() if line.split()[:1] == [label])


@pytest.mark.slow
def test_a_table_and_a_picture_of_every_method(fedcanon, tmp_path):
    names = ["fedcanon", "fedcanon+", "fedmid", "za1", "feddr", "fedavg"]
    for against in ("rounds", "bytes", "seconds"):
        picture = tmp_path / f"{against}.png"
        options = ["--plot", str(picture), "--against", against]
        code, out, _ = fedcanon("compare", *names, *SHORT, *options)
        assert code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert max(map(len, out.splitlines())) <= 80
    assert [row(out, name)[5] for name in names[:3]] == ["3", "3", str(3 * (10 * 10 + 1))]


def test_a_method_in_a_comparison_is_the_method_run_alone(fedcanon):
    _, out, _ = fedcanon("compare", "fedda", "fedcanon+", *SHORT)
    settings = ["rounds=3", "model.name=linear", "algorithm.name=fedcanon+"]
    alone = fit(build(load_config(settings=settings)), 3).last
    assert row(out, "fedcanon+")[1:4] == [
        f"{alone.objective:.5g}",
        f"{alone.gradient_norm:.1e}",
        f"{alone.test['accuracy']:.4f}",
    ]


def test_methods_share_settings_unless_their_own_say_otherwise():
    config = load_config(settings=["algorithm.local_steps=7", "compression.name=sign"])
    runs = variants(
        config,
        [
            "fedcanon+",
            "fedavg",
            "fedmid:server_prox=none,beta=0.5",
            "fedcanon+:compression.name=none",
        ],
    )
    tables = [run.algorithm for run in runs.values()]
    assert tables[0] == {"name": "fedcanon+", "local_steps": 7}
    assert tables[1] == {"name": "fedavg", "local_steps": 7}
    assert tables[2] == {"name": "fedmid", "beta": 0.5, "local_steps": 7, "server_prox": "none"}
    assert [r.compression["name"] for r in runs.values()] == ["sign", "sign", "sign", "none"]
    assert variants(config, ["za1"])["za1"].compression["name"] == "none"  # it must arrive as it is


def test_a_method_that_diverges_does_not_cost_the_others(fedcanon):
    code, out, _ = fedcanon("compare", "fedavg:beta=1e38", "fedcanon+", *SHORT)
    assert code == 1
    assert "fedavg:beta=1e38: client 0 diverged in round 0" in " ".join(out.split())
    assert row(out, "fedcanon+")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fedcanom"], "did you mean 'fedcanon'?"),
        (["fedavg", "fedavg"], "'fedavg' is given twice"),
        (["fedmid:server_prox"], "write settings as fedmid:key=value"),
        (["fedmid:server_prox=x"], "fedmid:server_prox=x: algorithm.server_prox = 'x'"),
        (["fedavg:rounds.x=3"], "rounds.x must be the same for all: use --set rounds.x=3"),
        (["fedda", "--set", "penalty.kappa=1.0"], "fedda: MCP is ρ-weakly convex"),
        (["scaffold:compression.name=sign"], "Scaffold cannot compress its uploads"),
        (["scaffnew", "--set", "clients.participants=3"], "scaffnew: Scaffnew needs all 10"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_get_one_sentence_before_anything_is_trained(fedcanon, arguments, expected):
    code, out, err = fedcanon("compare", *arguments)
    assert code == 2
    assert expected in " ".join(err.split())
    assert not out


@pytest.mark.slow
def test_several_seeds_give_means_deviations_and_files_for_a_paper(fedcanon, tmp_path):
    folder = tmp_path / "kept"
    names = ["fedcanon+", "fedmid:server_prox=none"]
    code, out, _ = fedcanon("compare", *names, *SHORT, "--seeds", "3,4", "--folder", str(folder))
    assert code == 0
    assert max(map(len, out.splitlines())) <= max(80, len(str(folder)) + 80)
    each = {
        name: [fit(build(changed(own, {"seed": seed})), 3).last for seed in (3, 4)]
        for name, own in variants(load_config(settings=SHORT[1::2]), names).items()
    }
    table = pd.read_csv(folder / "table.csv").set_index("method")
    for name, records in each.items():
        accuracies = [record.test["accuracy"] for record in records]
        assert table.loc[name, "seeds"] == 2
        assert table.loc[name, "accuracy"] == pytest.approx(np.mean(accuracies))
        assert table.loc[name, "accuracy_deviation"] == pytest.approx(np.std(accuracies, ddof=1))
    assert row(out, "fedcanon+")[3] == f"{table.loc['fedcanon+', 'accuracy']:.4f}"
    assert f"± {table.loc['fedcanon+', 'accuracy_deviation']:.4f}" in out
    assert list(pd.read_csv(folder / "runs.csv")["seed"]) == [3, 4, 3, 4]
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert {run.config.seed for run in map(RunFolder, (folder / "runs").iterdir())} == {3, 4}
    source = (folder / "table.tex").read_text()
    assert r"fedmid:server\_prox=none & " in source
    assert re.search(
        r"^\\toprule\n.*\\\\\n\\midrule\n(.* \$\\pm\$ .*\\\\\n){2}\\bottomrule", source, re.M
    )
    assert fedcanon("compare", "fedavg", *SHORT, "--folder", str(folder))[0] == 2


def test_all_parameters_of_every_method_are_told(fedcanon):
    code, out, err = fedcanon("compare", "fedmid:beta=0.05", "fedcanon:local_steps=7", *SHORT)
    assert code == 0, err
    words = " ".join(out.split())
    assert "fedmid: " in words
    assert "beta = 0.05" in words
    assert "local_steps = 7" in words
    assert "alpha = βK" in words


def test_a_blank_column_has_a_reason(fedcanon):
    code, out, _ = fedcanon("compare", "fedavg", *SHORT, "--set", "evaluate.gradient=false")
    assert code == 0
    assert "‖G‖ is blank: it is measured only in small problems" in out
    _, out, _ = fedcanon("compare", "fedavg", *SHORT)
    assert "blank" not in out


def test_seeds_that_fail_are_named_and_the_others_count(fedcanon):
    code, out, _ = fedcanon("compare", "fedavg:beta=1e38", "fedavg", *SHORT, "--seeds", "0,1")
    assert code == 1
    assert "fedavg:beta=1e38, seed 1: client" in " ".join(out.split())
    assert "2 seeds" in out
    code, _, err = fedcanon("compare", "fedavg", *SHORT, "--seeds", "0,x")
    assert code == 2
    assert "seed" in err
