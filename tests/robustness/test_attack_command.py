"""``fedcanon attack`` shows which rule withstands which attack."""

import pytest
from typer.testing import CliRunner

from fedcanon.cli.app import app

SMALL = [
    "--set=rounds=15",
    "--set=batch_size=full",
    "--set=model.name=linear",
    "--set=algorithm.local_steps=3",
    "--set=data.partition=iid",
]


def attack(*words):
    return CliRunner().invoke(app, ["attack", *words, *SMALL])


@pytest.mark.slow
def test_the_filter_withstands_what_the_mean_does_not():
    result = attack("--attack", "sign_flip", "--rule", "mean", "--rule", "filter")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line}
    assert "Test accuracy with 2 hostile of 10 clients" in result.output
    mean, filtered = lines["sign_flip"]
    assert float(filtered) > 0.7
    assert mean == "diverged" or float(mean) < 0.5
    assert lines["nobody"][0] == lines["nobody"][1]  # the filter costs nothing here


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--attack", "sign_flop"], "did you mean 'sign_flip'?"),
        (["--rule", "filtr"], "did you mean 'filter'?"),
        (["--clients", "11", "--attack", "ipm"], "between 1 and 10 clients can be bad"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(words, message):
    result = attack(*words)
    assert result.exit_code
    assert message in str(result.exception)
