"""What an operator sees of a deployment, and orders."""

from dataclasses import replace

import pytest

from fedcanon import FedcanonError, FedCanonPlus, train
from fedcanon.deployment.overview import read_overview
from fedcanon.deployment.status import ADMIT, END, EXCLUDE, PAUSE, give_order
from fedcanon.penalties import L1
from fedcanon.report.page.html import content
from fedcanon.report.page.reading import read_run
from fedcanon.runs.build import build
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import resume_with
from tests.deployment.network import World
from tests.problems import quadratics


def world(**settings):
    problem = quadratics(clients=4, d=3)
    return World(problem, FedCanonPlus(0.5, 0.1, 3), L1(0.1), "server", **settings)


def seen_after_some_rounds(folder):
    there = world()
    there.federation.engine.use_folder(folder)
    give_order(folder, EXCLUDE, 3)

    def empty(world, message):
        reply = world.ask(message)
        world.arrived.append(replace(reply, content={}) if message.client == 1 else reply)

    there.there = {0, 1, 3}
    there.fates = [empty] * 100
    there.step()
    return there, read_overview(folder)


def test_every_client_has_a_row_and_what_was_odd_is_told(tmp_path):
    assert read_overview(tmp_path) is None
    there, seen = seen_after_some_rounds(tmp_path)
    states = {row[0]: row[1] for row in seen.rows}
    assert states == {"0": "there", "1": "there", "2": "away", "3": "excluded by the operator"}
    rows = {row[0]: dict(zip(seen.columns, row, strict=True)) for row in seen.rows}
    assert rows["0"]["round"] == "0"
    assert rows["0"]["refused"] == ""
    assert int(rows["1"]["refused"]) == there.membership.refusals[1] > 0
    assert any("client 1's last answer was refused: malformed" in event for event in seen.events)
    assert "slowest client" in seen.rounds["a round"]
    give_order(tmp_path, PAUSE)
    there.federation.engine.commit()
    assert "deploy resume" in read_overview(tmp_path).rounds["paused"]


def test_the_page_shows_them_and_trusts_no_text(tmp_path):
    run = tmp_path / "run"
    train(rounds=1, model="linear", penalty="l1", clients={"count": 4}, folder=run)
    _, seen = seen_after_some_rounds(run)
    hostile = replace(seen, events=["<script>alert(1)</script>"])
    top = content([read_run(RunFolder(run))], hostile)["top"]
    assert "excluded by the operator" in top
    assert "<script>" not in top
    assert "&lt;script&gt;" in top


class TestOrders:
    def test_a_client_is_excluded_and_admitted_again(self, tmp_path):
        there = world()
        there.federation.engine.use_folder(tmp_path)
        there.step()
        give_order(tmp_path, EXCLUDE, 2)
        there.step()
        assert there.membership.gone == {2: "excluded by the operator"}
        (tmp_path / "orders" / "exclude-2").unlink()
        give_order(tmp_path, ADMIT, 2)
        there.step()
        assert there.membership.members.keys() == {0, 1, 2, 3}
        assert there.invariant() < 1e-12
        assert not list((tmp_path / "orders").iterdir())

    def test_a_run_that_waits_for_clients_can_be_ended(self, tmp_path):
        there = world(minimum=3)
        there.federation.engine.use_folder(tmp_path)
        there.step()
        there.there = {0, 1}
        give_order(tmp_path, END)
        with pytest.raises(FedcanonError, match="ended by the operator"):
            there.step()


def test_what_may_change_in_a_resumed_run_is_taken_over(tmp_path):
    run = RunFolder(tmp_path / "run")
    small = {"model": "linear", "penalty": "l1", "clients": {"count": 3}}
    train(rounds=2, evaluate={"every": 1}, folder=run.path, **small)
    settings = {"rounds": 6, "evaluate": {**run.config.evaluate.model_dump(), "every": 2}}
    result = resume_with(run, build, settings=settings)
    assert [record.round for record in result.records] == [0, 1, 2, 4, 6]
    assert run.config.evaluate.every == 2
