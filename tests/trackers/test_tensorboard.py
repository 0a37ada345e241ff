"""What TensorBoard reads back is what was recorded."""

import numpy as np
import pytest

from tests.trackers.runs import expected, interrupt_tracked, resume_tracked, run_tracked

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData


def read(folder):
    return EventAccumulator(str(folder / "tensorboard")).Reload()


def scalars(folder):
    events = read(folder)
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def in_single_precision(table):
    """TensorBoard's."""
    return {
        name: [(t, float(np.float32(number))) for t, number in pairs]
        for name, pairs in table.items()
    }


def test_numbers_equal_the_records(tmp_path):
    run_tracked("tensorboard", tmp_path / "run")
    assert scalars(tmp_path / "run") == in_single_precision(expected(tmp_path / "run"))


def test_settings_are_hyper_parameters(tmp_path):
    run_tracked("tensorboard", tmp_path / "run", rounds=1)
    content = read(tmp_path / "run").PluginTagToContent("hparams")[SESSION_START_INFO_TAG]
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    assert found["algorithm.beta"].number_value == 0.1
    assert found["data.name"].string_value == "digits"


def test_an_interrupted_run_goes_on_without_a_gap_or_a_double(tmp_path):
    interrupt_tracked("tensorboard", tmp_path / "run")
    assert scalars(tmp_path / "run")["loss"][-1][0] == 5  # nothing is lost without an end
    resume_tracked("tensorboard", tmp_path / "run")
    assert scalars(tmp_path / "run") == in_single_precision(expected(tmp_path / "run"))


def test_a_run_that_was_not_tracked_is_complete_once_it_is(untracked_run):
    resume_tracked("tensorboard", untracked_run, rounds=5)
    assert scalars(untracked_run) == in_single_precision(expected(untracked_run))
