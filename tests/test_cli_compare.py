"""``fedcanon compare`` as a user types it."""

import pytest

from fedcanon import build, fit, load_config
from fedcanon.runs.compare import variants

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
