"""Messages about configurations name what can be written instead."""

import re

import pytest

from fedcanon import FedcanonError, build, load_config
from fedcanon.layout import Layout
from fedcanon.penalties import L1, PENALTIES, TotalVariation
from fedcanon.penalties.registry import COMMON_NAMES
from fedcanon.runs.config import make_config
from fedcanon.runs.named import make_penalty, penalty_parameters


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("batch_size=all", "valid integer or 'full'."),
        ("algorithm.alpha=big", 'use a number, "auto", "beta*K" or a schedule, such as {schedule'),
        ("algorithm.beta=big", 'use a number, "auto" or a schedule'),
        ("data=digits", 'a table; write data.name = "digits", or [data] with name = "digits".'),
        ("penalty=l1", 'a table; write penalty.name = "l1", or [penalty] with name = "l1".'),
        ("clients=10", "write [clients] with the keys count, participants, weights."),
        ("loss=3", "write [loss] with a name."),
        ("partition=iid", "unknown key 'partition': did you mean 'data.partition'?"),
        ("clients.partition=iid", "did you mean 'data.partition'?"),
        ("kappa=0.1", "unknown key 'kappa': use one of adversary, "),
        ("privacy=3", "write [privacy] with the keys level, epsilon, "),
    ],
)
def test_what_can_be_written_instead(setting, words):
    with pytest.raises(FedcanonError, match=re.escape(words)):
        build(load_config(settings=[setting]))


def test_a_step_without_a_rule_of_its_own_is_a_number_or_a_schedule():
    settings = ["algorithm.name=fedavg", "algorithm.server_step=big"]
    with pytest.raises(FedcanonError, match="use a number or a schedule"):
        build(load_config(settings=settings))


def test_the_engine_of_deployments_is_not_offered():
    with pytest.raises(FedcanonError, match=r"'processes', 'ray' or 'flower'\.$"):
        load_config(settings=["engine.name=fast"])
    assert load_config(settings=["engine.name=deployed"]).engine.name == "deployed"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbfrounds = 7\n")
    assert load_config(path).rounds == 7


def test_common_names_of_penalties():
    assert set(COMMON_NAMES.values()) < set(PENALTIES)
    assert not set(COMMON_NAMES) & set(PENALTIES)
    assert load_config(settings=["penalty={name='lasso', kappa=0.1}"]).penalty == {
        "name": "l1",
        "kappa": 0.1,
    }
    layers = [{"match": "*", "name": "sum", "terms": [{"name": "tv", "kappa": 0.1}]}]
    ours = make_config(None, {"penalty": {"layers": layers}}).penalty["layers"][0]["terms"]
    assert ours == [{"name": "total_variation", "kappa": 0.1}]


def test_common_names_of_penalties_in_python():
    layout = Layout.of([("weight", (2, 3))])
    assert penalty_parameters("lasso") == penalty_parameters("l1")
    for name, kind in (("lasso", L1), ("tv", TotalVariation)):
        assert isinstance(make_penalty({"name": name, "kappa": 0.1, "on": "all"}, layout), kind)
