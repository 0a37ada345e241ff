"""Trainings of the paper are run folders that are found again, and steps are tuned fairly."""

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.data import DATASETS
from fedcanon.paper.trials import Trainer, Training, Watch, portion, run_name
from fedcanon.paper.tuning import Shape, Trained, Tuned, Tuner, held_out, with_steps
from fedcanon.runs import Observer, Record
from fedcanon.runs.build import divide_dataset
from fedcanon.runs.config import changed, make_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Cost
from fedcanon.runs.named import make_algorithm

CONFIG = make_config(None, {"rounds": 4, "model": "linear"})
DIGITS = DATASETS["digits"]()


class Counting(Watch, Observer):
    """Counts rounds, and stops a training after some of them where it is told to."""

    def __init__(self, stop_after=None):
        self.rounds, self.stop_after = 0, stop_after

    def training(self, label):
        return nullcontext(self)

    def round(self, t):
        self.rounds += 1
        if t == self.stop_after:
            raise KeyboardInterrupt


def losses(training):
    return [record.loss for record in training.records]


def test_a_finished_training_is_loaded_and_an_interrupted_one_goes_on(tmp_path):
    whole = Trainer(tmp_path / "whole", Counting())
    expected = losses(whole.train("", CONFIG, DIGITS))
    assert whole.watch.rounds == 4
    assert losses(whole.train("", CONFIG, DIGITS)) == expected
    assert whole.watch.rounds == 4

    config = changed(CONFIG, {"checkpoint.rounds": 1})
    first = Trainer(tmp_path / "broken", Counting(stop_after=2))
    with pytest.raises(KeyboardInterrupt):
        first.train("", config, DIGITS)
    again = Trainer(tmp_path / "broken", Counting())
    found = again.train("", config, DIGITS)
    assert again.watch.rounds < 4
    assert losses(found) == expected
    run = RunFolder(tmp_path / "broken" / run_name(config, DIGITS))
    assert run.status == "finished"
    assert not (run.path / "checkpoints").exists()


def test_a_training_that_diverges_is_kept_and_not_repeated(tmp_path):
    trainer = Trainer(tmp_path, Counting())
    config = changed(CONFIG, {"algorithm": {"name": "fedavg", "beta": 1e38}})
    found = trainer.train("", config, DIGITS)
    assert "diverged in round 0" in found.diverged
    assert [record.round for record in found.records] == [0]
    assert found.accuracy() == 0
    trainer.watch.begin = None  # a training that begins would call it
    assert trainer.train("", config, DIGITS) == found


def test_other_mistakes_are_not_taken_for_divergence(tmp_path):
    config = changed(CONFIG, {"algorithm": {"name": "fedda"}, "penalty.kappa": 100.0})
    with pytest.raises(FedcanonError, match="weakly convex"):
        Trainer(tmp_path).train("", config, DIGITS)


def test_other_settings_or_other_data_are_another_run():
    names = {
        run_name(CONFIG, DIGITS),
        run_name(changed(CONFIG, {"seed": 1}), DIGITS),
        run_name(changed(CONFIG, {"algorithm.beta": 0.2}), DIGITS),
        run_name(CONFIG, portion(DIGITS, 100, None)),
    }
    assert len(names) == 4
    assert run_name(CONFIG, DIGITS) in names


def test_a_portion_says_so_and_keeps_samples_with_their_labels():
    small = portion(DIGITS, 100, 50)
    assert (len(small.train), len(small.test)) == (100, 50)
    assert small.note == "subset: 100 of 1,437 training and 50 of 360 test samples"
    cpu = torch.device("cpu")
    pairs = zip(*DIGITS.train.tensors(torch.float32, cpu), strict=True)
    labels = {tuple(x.flatten().tolist()): int(y) for x, y in pairs}
    for x, y in zip(*small.train.tensors(torch.float32, cpu), strict=True):
        assert labels[tuple(x.flatten().tolist())] == y
    assert portion(DIGITS, None, None) is DIGITS


def test_tuning_takes_the_best_step_and_passes_over_those_that_diverge(tmp_path):
    tuner = Tuner(Trainer(tmp_path), DIGITS, rounds=3)
    config = changed(CONFIG, {"algorithm": {"name": "fedavg"}})
    tuned = tuner.rank("fedavg", config, {"beta": (1e-6, 0.1, 1e38)})
    assert tuned.ranking[0] == {"beta": 0.1}
    losses = [point["validation_loss"] for point in tuned.grid]
    assert losses[2] is None
    assert losses[1] < losses[0]
    lost = tuner.rank("fedavg", config, {"beta": (1e38, 2e38)})
    assert lost.ranking == [{"beta": 1e38}]
    assert [point["validation_loss"] for point in lost.grid] == [None, None]


def test_a_loss_that_is_no_number_is_never_the_best(tmp_path):
    class Overflowing(Trainer):
        """Finite weights of β = 0.2 have scores that are not."""

        def train(self, label, config, dataset):
            beta = config.algorithm["beta"]
            loss = math.nan if beta == 0.2 else beta
            return Training([replace(record(3, 0.5), test={"test_loss": loss})])

    tuner = Tuner(Overflowing(tmp_path), DIGITS, rounds=3)
    tuned = tuner.rank("fedcanon+", CONFIG, {"beta": (0.3, 0.2, 0.1)})
    assert tuned.ranking == [{"beta": 0.1}, {"beta": 0.3}]
    assert [point["validation_loss"] for point in tuned.grid] == [0.3, None, 0.1]


def test_tuning_never_sees_the_test_samples(tmp_path):
    """With test labels turned into nonsense, the validation losses stay the same to the bit."""
    nonsense = replace(DIGITS, test=replace(DIGITS.test, targets=DIGITS.test.targets.flip(0)))
    grids = [
        Tuner(Trainer(tmp_path / name), data, rounds=2)
        .rank("fedcanon+", CONFIG, {"beta": (0.05, 0.1)})
        .grid
        for name, data in (("a", DIGITS), ("b", nonsense))
    ]
    assert grids[0] == grids[1]


def clients(config, dataset):
    whole, parts = divide_dataset(config, dataset)
    return [whole.train.take(part) for part in parts]


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.05"])
def test_the_clients_of_tuning_are_those_of_the_training_that_follows(partition):
    config = changed(CONFIG, {"data.partition": partition, "clients.count": 5})
    validation = held_out(config, DIGITS)
    assert len(validation.train) + len(validation.test) == len(DIGITS.train)
    users = changed(config, {"data.partition": "users"})
    for whole, kept in zip(clients(config, DIGITS), clients(users, validation), strict=True):
        assert len(kept) == len(whole) - len(whole) // 5
        counts, left = (torch.bincount(one.targets, minlength=10) for one in (whole, kept))
        assert (left <= counts).all()


def test_another_partition_is_another_tuning():
    names = {
        run_name(changed(config, {"data.partition": "users"}), held_out(config, DIGITS))
        for config in (changed(CONFIG, {"data.partition": p}) for p in ("iid", "dirichlet:0.5"))
    }
    assert len(names) == 2


def test_the_next_best_step_is_taken_where_the_best_diverges(tmp_path):
    tuner = Tuner(Trainer(tmp_path), DIGITS, rounds=3, seeds=(0, 1))
    config = changed(CONFIG, {"algorithm": {"name": "fedavg"}})
    ranking = [{"beta": 1e38}, {"beta": 0.1}, {"beta": 0.01}]
    found = tuner.train_ranked("fedavg", config, Tuned(ranking, []))
    assert found.settings == {"beta": 0.1}
    assert len(found.trainings) == 2
    assert not found.diverged
    losses = [{"beta": 1e38, "validation_loss": None}, {"beta": 2e38, "validation_loss": None}]
    hopeless = Tuned([{"beta": 1e38}, {"beta": 2e38}], losses)
    found = tuner.train_ranked("fedavg", config, hopeless)
    assert found.settings == {"beta": 1e38}
    assert found.diverged
    assert found.validation_loss == math.inf
    assert found.shown == "diverged (β 1e+38)"


def test_a_single_point_needs_no_training(tmp_path):
    tuner = Tuner(Trainer(tmp_path), DIGITS, rounds=2)
    assert tuner.rank("", CONFIG, {"beta": (0.1,)}).ranking == [{"beta": 0.1}]
    assert not list(tmp_path.iterdir())


def record(t, accuracy):
    cost = Cost()
    return Record(t, 1.0, 1.0, None, 0, 0.0, {"accuracy": accuracy}, {}, [], cost, 0.0)


def training(*accuracies, diverged=""):
    return Training([record(t, accuracy) for t, accuracy in enumerate(accuracies)], diverged)


def test_accuracies_are_means_of_the_last_measurements_and_of_seeds():
    found = Trained({"beta": 0.1}, [training(0.1, 0.4, 0.6), training(0.1, 0.6, 0.8)], [], last=2)
    assert found.accuracies == pytest.approx([0.5, 0.7])
    assert found.accuracy == pytest.approx(0.6)
    assert found.shown == "0.6000±0.1414 (β 0.1)"
    assert found.deviation == pytest.approx(0.2 / math.sqrt(2))
    rounds, means, deviations = found.curve
    assert rounds == [0, 1, 2]
    assert means == pytest.approx([0.1, 0.5, 0.7])
    assert deviations == pytest.approx([0, 0.2 / math.sqrt(2), 0.2 / math.sqrt(2)])


def test_a_training_that_diverged_counts_as_nothing_and_ends_the_curve():
    lost = training(0.2, diverged="in round 0")
    for both in ([lost, training(0.2, 0.6)], [training(0.2, 0.6), lost]):
        found = Trained({"beta": 0.1}, both, [], last=2)
        assert found.accuracies == [0, 0]
        assert (found.accuracy, found.deviation) == (0, 0)
        assert found.shown == "diverged (β 0.1)"
        assert found.curve == ([0], [0.2], [0])


def test_one_seed_does_not_vary():
    found = Trained({"beta": 0.1}, [training(0.2, 0.6)], [], last=1)
    assert found.deviation == 0
    assert found.shown == "0.6000 (β 0.1)"


def test_falling_steps_fall_over_the_rounds_of_each_training():
    config = changed(CONFIG, {"algorithm": {"name": "fedcanon+", "gain": "auto"}})
    for rounds in (10, 40):
        own = with_steps(
            changed(config, {"rounds": rounds}), {"beta": 0.2, "alpha": 0.5}, Shape.cosine
        )
        algorithm = make_algorithm({k: v for k, v in own.algorithm.items() if v != "auto"})
        for step, start in ((algorithm.beta, 0.2), (algorithm.alpha, 0.5)):
            assert step(0) == start
            assert step(rounds) == pytest.approx(0.05 * start)
            assert step(rounds // 2) == pytest.approx(0.525 * start)
    assert with_steps(config, {"beta": 0.2}, Shape.constant).algorithm["beta"] == 0.2
    # η is no step of a path, and stays.
    split = changed(CONFIG, {"algorithm": {"name": "feddr"}})
    assert with_steps(split, {"eta": 2.0}, Shape.cosine).algorithm["eta"] == 2.0


def test_constant_and_falling_steps_are_tuned_and_trained_apart(tmp_path):
    tuner = Tuner(Trainer(tmp_path), DIGITS, rounds=3)
    configs = {"FedAvg": changed(CONFIG, {"algorithm": {"name": "fedavg"}})}
    found = {shape: tuner.train_all("digits", configs, (0.05, 0.2), shape) for shape in Shape}
    assert len(list(tmp_path.iterdir())) == 2 * (2 + 1)
    constant, cosine = (found[shape]["FedAvg"] for shape in Shape)
    assert [point["beta"] for point in constant.grid] == [point["beta"] for point in cosine.grid]
    assert constant.validation_loss == min(p["validation_loss"] for p in constant.grid)
    assert constant.accuracies != cosine.accuracies or constant.grid != cosine.grid


def test_the_base_watch_shows_nothing():
    with Watch().training("x") as observer, Watch().steps("x", 1) as done:
        assert isinstance(observer, Observer)
        assert done() is None
