"""Robust rules and adversaries in configurations, records and on pages."""

import json
import tomllib

import pytest
import torch

from fedcanon import FedcanonError, train
from fedcanon.report.page.html import content
from fedcanon.report.page.oddness import LISTED, oddness
from fedcanon.report.page.reading import read_run
from fedcanon.robustness import Adversary
from fedcanon.runs.build import build
from fedcanon.runs.config import changed, load_config, make_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import SHOWN_CLIENTS, Cost, Record, _largest
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import resume

SETTINGS = {
    "rounds": 6,
    "batch_size": "full",
    "precision": "float64",
    "data": {"name": "breast_cancer", "partition": "iid"},
    "model": "logistic",
    "robust": {"byzantine": 2},
    "adversary": {"attack": "sign_flip", "clients": [3, 5]},
    "engine": {"name": "serial"},
}


class Crash(Observer):
    def round(self, t):
        if t == 3:
            raise RuntimeError


def test_a_file_says_it_and_a_run_keeps_it(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[robust]\nbyzantine = 2\nrule = "nnm+trimmed-mean"\n'
        '[adversary]\nattack = "push"\nclients = [0, 7]\nstrength = 1\n'
    )
    config = load_config(path)
    federation = build(config)
    rule, adversary = federation.rules.aggregation, federation.rules.adversary
    assert (rule.rule, rule.byzantine) == ("nnm+trimmed-mean", 2)
    assert adversary == Adversary("push", (0, 7), 1.0, config.seed)
    RunFolder(tmp_path).write_config(config)
    assert RunFolder(tmp_path).config == config
    assert tomllib.loads((tmp_path / "config.toml").read_text())["adversary"]["strength"] == 1


def test_sections_that_may_be_missing_can_be_set_and_changed():
    plain = make_config(None, {})
    assert (plain.robust, plain.adversary) == (None, None)
    assert changed(plain, {"robust.byzantine": 1}).robust.rule == "filter"
    config = make_config(SETTINGS, {"robust": {"rule": "median"}})
    assert (config.robust.byzantine, config.robust.rule) == (2, "median")
    assert load_config(settings=["robust.byzantine=2"]).robust.byzantine == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["robust.rules=x"], "unknown key 'robust.rules': did you mean 'rule'?"),
        (["robust.byzantine=-1"], "robust.byzantine = -1"),
        (["robust.byzantine=1", "robust.rule=mediam"], "called 'mediam': did you mean 'median'?"),
        (["adversary.attack=ipm"], "adversary.clients is missing."),
        (["adversary.attack=ipn", "adversary.clients=1"], "'ipn': did you mean 'ipm'?"),
        (["adversary.attack=ipm", "adversary.clients=11"], "between 1 and 10 clients can be bad"),
        (["adversary.attack=ipm", "adversary.clients=[10]"], "the clients 0 to 9"),
        (["robust.byzantine=5"], "5 bad clients cannot be outvoted by 5 others"),
        (["robust.byzantine=2", "clients.weights=samples"], 'clients.weights = "uniform"'),
    ],
)
def test_mistakes_are_explained(settings, message):
    with pytest.raises(FedcanonError) as caught:
        build(load_config(settings=["model.name=linear", *settings]))
    assert message in str(caught.value)


def test_labels_of_bad_clients_are_flipped_when_the_problem_is_made():
    settings = ["model.name=linear", "engine.vectorised=false"]
    bad = {4, 8}
    flipping = ["adversary.attack=label_flip", "adversary.clients=[4, 8]"]
    plain, attacked = (
        build(load_config(settings=settings + more)).problem for more in ([], flipping)
    )
    labels = plain.clients.targets.split([client.samples for client in plain.clients])
    found = attacked.clients.targets.split([client.samples for client in attacked.clients])
    for client in range(10):
        expected = 9 - labels[client] if client in bad else labels[client]
        assert torch.equal(found[client], expected)


def test_flipped_labels_harm_the_model_and_uploads_are_left_alone():
    base = {**SETTINGS, "robust": None}
    honest = train({**base, "adversary": None})
    flipped = train({**base, "adversary": {"attack": "label_flip", "clients": 4}})
    assert flipped.last.test["accuracy"] < honest.last.test["accuracy"]


def test_records_say_how_far_clients_are_and_how_often_they_were_dropped(tmp_path):
    result = train(SETTINGS, folder=tmp_path / "run")
    first, last = result.records[0], result.last
    assert (first.distances, first.drops) == ({}, {})
    assert last.distances.keys() == set(range(10))
    assert sorted(last.distances, key=last.distances.get)[-2:] in ([3, 5], [5, 3])
    assert last.drops == {3: 6, 5: 6}
    assert RunFolder(tmp_path / "run").records()[-1].distances == last.distances
    assert not {"distances", "drops"} & set(result.history.columns)


def test_a_resumed_run_counts_on(tmp_path):
    whole = train(SETTINGS)
    with pytest.raises(RuntimeError):
        train(
            SETTINGS,
            folder=tmp_path / "run",
            checkpoint={"rounds": 1},
            observers=[Crash()],
        )
    resumed = resume(tmp_path / "run")
    assert torch.equal(resumed.vector, whole.vector)
    assert [r.drops for r in resumed.records] == [r.drops for r in whole.records]
    assert [r.distances for r in resumed.records] == [r.distances for r in whole.records]


def test_histories_of_old_versions_can_be_read(tmp_path):
    train(rounds=2, model="linear", folder=tmp_path / "run")
    history = tmp_path / "run" / "history.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    for line in lines:
        del line["distances"], line["drops"]
    history.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    records = RunFolder(tmp_path / "run").records()
    assert [record.round for record in records] == [0, 1, 2]
    assert records[-1].distances == {}
    assert "oddness" not in content([read_run(RunFolder(tmp_path / "run"))])["top"]


def test_of_very_many_clients_the_farthest_are_kept():
    distances = {client: float(client % 1000) for client in range(5000)}
    kept = _largest(distances)
    assert len(kept) == SHOWN_CLIENTS
    assert min(kept.values()) == 960
    assert list(kept) == sorted(kept)


def test_a_page_marks_the_odd_ones_the_farthest_first(tmp_path):
    train(SETTINGS, folder=tmp_path / "run")
    run = read_run(RunFolder(tmp_path / "run"))
    (found,) = oddness([run])
    assert {row.client for row in found.rows[:2]} == {"3", "5"}
    assert [row.is_odd for row in found.rows] == [True] * 2 + [False] * 8
    assert [row.dropped for row in found.rows] == ["100%"] * 2 + ["0%"] * 8
    numbers = [float(row.distance) for row in found.rows]
    assert numbers == sorted(numbers, reverse=True)
    top = content([run])["top"]
    assert top.count('class="odd"') == 2
    assert "filter against 2 clients" in top
    assert "attacked by clients 3; 5: sign_flip" in top


def test_a_page_lists_no_more_clients_than_a_reader_can_look_at(tmp_path):
    train(rounds=1, model="linear", folder=tmp_path / "run")
    run = read_run(RunFolder(tmp_path / "run"))
    distances = dict.fromkeys(range(50), 1.0)
    last = Record(4, 1.0, 1.0, None, 0, 0.0, {}, {}, [], Cost(), 0.0, distances, {7: 1})
    (found,) = oddness([type(run)(**{**vars(run), "records": [last]})])
    assert (len(found.rows), found.hidden) == (LISTED, 50 - LISTED)
    assert {row.dropped for row in found.rows if row.client == "7"} == {"25%"}
