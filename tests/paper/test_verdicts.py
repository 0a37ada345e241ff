"""Verdicts by mean and deviation over seeds, and what curves suggest."""

import math

import numpy as np
import pytest
from scipy import stats

from fedcanon.paper.extrapolation import suggested
from fedcanon.paper.methods import DAMPED
from fedcanon.paper.outcome import Finding
from fedcanon.paper.trials import Training
from fedcanon.paper.tuning import Shape, Trained
from fedcanon.paper.verdicts import Margin, best_known, claim, protocol, to_best, widest
from fedcanon.runs import Record
from fedcanon.runs.measures import Cost


def training(accuracy):
    return Training(
        [Record(0, 1.0, 1.0, None, 0, 0.0, {"accuracy": accuracy}, {}, [], Cost(), 0.0)]
    )


def trained(*accuracies, loss=1.0, shape=Shape.constant):
    grid = [{"beta": 0.1, "validation_loss": loss}]
    return Trained({"beta": 0.1}, [training(a) for a in accuracies], grid, 1, shape)


def test_the_error_of_a_difference_is_that_of_welch():
    ours, theirs = (0.80, 0.83, 0.85), (0.78, 0.76, 0.81)
    margin = Margin(trained(*ours), trained(*theirs))
    oracle = stats.ttest_ind(ours, theirs, equal_var=False)
    assert margin.difference / margin.error == pytest.approx(oracle.statistic)


@pytest.mark.parametrize(
    ("ours", "theirs", "ahead", "level"),
    [
        ((0.80, 0.80, 0.80), (0.78, 0.78, 0.78), True, False),
        ((0.80, 0.80, 0.80), (0.795, 0.795, 0.795), False, True),  # less than a point
        ((0.90, 0.80, 0.70), (0.78, 0.78, 0.78), False, True),  # less than two errors
        ((0.78, 0.78, 0.78), (0.80, 0.80, 0.80), False, False),
    ],
)
def test_ahead_and_level_need_a_point_and_two_errors(ours, theirs, ahead, level):
    margin = Margin(trained(*ours), trained(*theirs))
    assert (margin.ahead, margin.level) == (ahead, level)


def test_margins_are_shown_in_points():
    assert Margin(trained(0.8), trained(0.75)).shown == "+5.0±0.0"
    lost = Trained({"beta": 0.1}, [Training([], "in round 3")], [], 1)
    assert Margin(lost, trained(0.75)).shown == "diverged"
    assert not Margin(lost, trained(0.75)).ahead


def test_the_widest_margin_and_the_best_of_others():
    found = {"a": trained(0.5), "b": trained(0.9), "c": trained(0.7)}
    assert widest(found, "abc").difference == pytest.approx(0.4)
    other, margin = to_best(found, "a", "bc")
    assert other == "b"
    assert margin.difference == pytest.approx(-0.4)


def test_the_best_known_steps_are_those_with_the_lower_validation_loss():
    by_shape = {
        Shape.constant: {"x": {"m": trained(0.9, loss=2.0), "n": trained(0.5, loss=1.0)}},
        Shape.cosine: {
            "x": {
                "m": trained(0.8, loss=1.0, shape=Shape.cosine),
                "n": trained(0.6, loss=2.0, shape=Shape.cosine),
            }
        },
    }
    best = best_known(by_shape)["x"]
    # By validation, though the test accuracies say the opposite.
    assert (best["m"].shape, best["n"].shape) == (Shape.cosine, Shape.constant)


def test_a_claim_is_judged_for_fedcanon_and_for_the_best_known_method():
    def judge(results, ours):
        return Finding(f"{ours}: {results['x'][ours].accuracy:.1f}", results is constant)

    constant, best = {"x": {"FedCanon": trained(0.5)}}, {"x": {DAMPED: trained(0.6)}}
    found = claim("it is so", judge, constant, best)
    assert (found.measured, found.verdict) == ("FedCanon: 0.5", "agrees")
    assert (found.best.measured, found.best.verdict) == (f"{DAMPED}: 0.6", "does not agree")


def test_the_notes_say_the_budget():
    notes = protocol(4, 30, (0, 1, 2), "partition")
    assert "4 tuning trials of 30 rounds for constant and 4 for falling steps" in notes[0]
    assert "3 seeds" in notes[0]


def test_a_power_law_is_found_again():
    rounds = np.arange(0, 101, 10)
    law = 0.8 - 0.9 * np.maximum(rounds, 1.0) ** -0.4
    assert suggested(rounds, law, 200) == pytest.approx(0.8 - 0.9 * 200**-0.4, abs=1e-3)


def test_nothing_is_suggested_from_few_points_or_a_curve_of_another_form():
    assert suggested([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4], 200) is None
    falling = [0.9 if t % 20 else 0.1 for t in range(0, 110, 10)]
    assert suggested(range(0, 110, 10), falling, 200) is None


def test_a_suggestion_is_an_accuracy():
    rounds = range(0, 70, 10)
    value = suggested(rounds, [0.1 + 0.012 * t for t in rounds], 10_000)
    assert value is None or (math.isfinite(value) and 0 <= value <= 1)
