"""Verdicts by mean and deviation over seeds, and what curves suggest."""

import numpy as np
import pytest
from scipy import stats

from fedcanon.paper.extrapolation import suggested
from fedcanon.paper.methods import DAMPED
from fedcanon.paper.outcome import Finding
from fedcanon.paper.trials import Training
from fedcanon.paper.tuning import Shape, Trained
from fedcanon.paper.verdicts import Margin, best_known, budget, claim, to_nearest, widest
from fedcanon.runs import Record
from fedcanon.runs.measures import Cost


def training(accuracy):
    return Training(
        [Record(0, 1.0, 1.0, None, 0, 0.0, {"accuracy": accuracy}, {}, [], Cost(), 0.0)]
    )


def trained(*accuracies, loss=1.0, shape=Shape.constant):
    grid = [{"beta": 0.1, "validation_loss": loss}]
    return Trained({"beta": 0.1}, [training(a) for a in accuracies], grid, 1, shape)


def diverged(loss=1.0):
    grid = [{"beta": 0.1, "validation_loss": loss}]
    return Trained({"beta": 0.1}, [Training([], "in round 3")], grid, 1)


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
    found = {"ours": trained(*ours), "theirs": trained(*theirs)}
    assert Margin(found["ours"], found["theirs"]).ahead == ahead
    assert (not widest(found, found).ahead) == level


def test_margins_are_shown_in_points():
    assert Margin(trained(0.8), trained(0.75)).shown == "+5.0±0.0"
    lost = diverged()
    assert Margin(lost, trained(0.75)).shown == "diverged"
    assert not Margin(lost, trained(0.75)).ahead
    assert Margin(trained(0.75), lost).shown == "+75.0±0.0 (the other diverged)"


def test_a_method_of_which_one_seed_diverged_is_behind_whichever_seed_it_was():
    finished, lost = training(0.84), Training([], "in round 3")
    for both in ([lost, finished], [finished, lost]):
        margin = Margin(trained(0.85, 0.84), Trained({"beta": 0.1}, both, [], 1))
        assert margin.ahead
        assert margin.difference == pytest.approx(0.845)


def test_methods_are_level_if_none_is_ahead_of_any_other():
    found = {"a": trained(0.85, 0.85), "b": trained(0.83, 0.83), "c": trained(0.96, 0.76)}
    # c is 3 points above b on average, but by chance; a is 2 ahead of b for sure.
    lead = widest(found, "abc")
    assert (lead.ours, lead.theirs) == (found["a"], found["b"])
    assert lead.ahead
    level = widest(found, "bc")
    assert (level.ahead, level.difference) == (False, pytest.approx(0.03))


def test_a_method_is_ahead_of_all_if_it_is_ahead_of_the_nearest():
    found = {"a": trained(0.85, 0.85), "b": trained(0.83, 0.83), "c": trained(0.92, 0.72)}
    other, margin = to_nearest(found, "a", "bc")
    assert (other, margin.ahead) == ("c", False)  # though b has the higher mean
    other, margin = to_nearest(found, "b", "a")
    assert margin.difference == pytest.approx(-0.02)


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


def test_the_best_known_steps_did_not_diverge_if_others_did_not():
    lost = diverged(loss=1.0)
    by_shape = {
        Shape.constant: {"x": {"m": lost}},
        Shape.cosine: {"x": {"m": trained(0.8, loss=2.0, shape=Shape.cosine)}},
    }
    assert best_known(by_shape)["x"]["m"].shape is Shape.cosine
    assert best_known({shape: {"x": {"m": lost}} for shape in Shape})["x"]["m"] is lost


def test_a_claim_is_judged_for_fedcanon_and_for_the_best_known_method():
    def judge(results, ours):
        return Finding(f"{ours}: {results['x'][ours].accuracy:.1f}", results is constant)

    constant, best = {"x": {"FedCanon": trained(0.5)}}, {"x": {DAMPED: trained(0.6)}}
    found = claim("it is so", judge, constant, best)
    assert (found.measured, found.verdict) == ("FedCanon: 0.5", "agrees")
    assert (found.best.measured, found.best.verdict) == (f"{DAMPED}: 0.6", "does not agree")


def test_the_notes_say_the_budget():
    note = budget(4, 30, (0, 1, 2), "partition")
    assert "4 tuning trials of 30 rounds for constant and 4 for falling steps" in note
    assert "3 seeds" in note


def test_a_power_law_is_found_again():
    rounds = np.arange(0, 101, 10)
    law = 0.8 - 0.9 * np.maximum(rounds, 1.0) ** -0.4
    assert suggested(rounds, law, 200) == pytest.approx(0.8 - 0.9 * 200**-0.4, abs=1e-3)


def test_nothing_is_suggested_from_few_points_or_a_curve_of_another_form():
    assert suggested([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4], 200) is None
    falling = [0.9 if t % 20 else 0.1 for t in range(0, 110, 10)]
    assert suggested(range(0, 110, 10), falling, 200) is None


def test_a_suggestion_is_an_accuracy():
    rounds, target = np.arange(0, 101, 10), 10**8
    law = 1.4 - 1.35 * np.maximum(rounds, 1.0) ** -0.1
    assert 1.4 - 1.35 * target**-0.1 > 1  # what the law itself comes to
    assert 0.8 < suggested(rounds, law, target) <= 1
