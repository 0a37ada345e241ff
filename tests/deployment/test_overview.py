"""What an operator sees of a deployment."""

from dataclasses import replace

from fedcanon import FedCanonPlus, train
from fedcanon.deployment.overview import read_overview
from fedcanon.deployment.status import EXCLUDE, PAUSE, give_order
from fedcanon.penalties import L1
from fedcanon.report.page.html import content
from fedcanon.report.page.reading import read_run
from fedcanon.runs.folder import RunFolder
from tests.deployment.network import World
from tests.problems import quadratics


def seen_after_some_rounds(folder):
    there = World(quadratics(clients=4, d=3), FedCanonPlus(0.5, 0.1, 3), L1(0.1), "server")
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
