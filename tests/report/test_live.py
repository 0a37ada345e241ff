"""Pages that follow a run."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from fedcanon.report.page import live, serving
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import train
from tests.report.conftest import PANELS
from tests.waiting import PATIENCE


class Gate(Observer):
    """Holds a run after a round until it is opened."""

    def __init__(self, closed_after):
        self.closed_after, self.reached, self.opened = (
            closed_after,
            threading.Event(),
            threading.Event(),
        )

    def round(self, t):
        if t == self.closed_after:
            self.reached.set()
            assert self.opened.wait(PATIENCE)


@contextmanager
def held_run(path, rounds=6, closed_after=3):
    """A run that goes on in a thread and waits at a gate."""
    gate = Gate(closed_after)
    work = threading.Thread(
        target=train,
        kwargs={"rounds": rounds, "model": "linear", "folder": path, "observers": [gate]},
    )
    work.start()
    try:
        assert gate.reached.wait(PATIENCE)
        yield gate
    finally:
        gate.opened.set()
        work.join(PATIENCE)


def ask(address, path="/data.json", host=None, method="GET"):
    name, port = address.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(name, int(port), timeout=PATIENCE)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def news(address):
    return json.loads(ask(address)[1])


@pytest.mark.slow
def test_the_page_follows_a_run_to_its_end(visit, tmp_path):
    path = tmp_path / "run"
    with serving(path) as address:
        seen = visit(address)
        seen.page.wait_for_selector("#problem:visible")
        assert "there is no run in" in seen.text("#problem")
        with held_run(path) as gate:
            seen.page.wait_for_selector("#progress:has-text('round 3 of 6')")
            assert not seen.page.locator("#problem").is_visible()
            assert seen.text(".status") == "running"
            assert "left" in seen.text("#progress")
            assert seen.charts("chart.data[0].x.length") == [4] * len(PANELS)
            assert len(seen.charts("chart.data[0].y", "#losses")[0]) == 10
            gate.opened.set()
            seen.page.wait_for_selector(".status.finished")
        assert seen.text("#progress") == "round 6 of 6 · all rounds done"
        assert seen.charts("chart.data[0].x.length") == [7] * len(PANELS)
        assert seen.page.locator("#layers").is_visible()
        assert set(seen.requests) == {f"{address}/", f"{address}/data.json"}
        shutil.rmtree(path)
        seen.page.wait_for_selector("#problem:visible")
        assert not path.exists()
        assert seen.charts("chart.data[0].x.length") == [7] * len(PANELS)


@pytest.mark.slow
def test_a_zoom_outlasts_an_update(visit, tmp_path):
    with serving(tmp_path / "run") as address, held_run(tmp_path / "run") as gate:
        seen = visit(address)
        seen.page.wait_for_selector("#panels .js-line")
        zoom = "Plotly.relayout(document.querySelector('#panels .chart'), {'xaxis.range': [1, 2]})"
        seen.page.evaluate(zoom)
        gate.opened.set()
        seen.page.wait_for_selector(".status.finished")
        assert seen.charts("chart.layout.xaxis.range")[0] == [1, 2]


@pytest.mark.slow
def test_the_page_says_that_its_server_has_ended(browser, runs):
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    with serving(runs["scaffold-0"].path) as address:
        page.goto(address)
        page.wait_for_selector("#panels .js-line")
    page.wait_for_selector("#problem:visible")
    assert "not updated any more" in page.inner_text("#problem")
    page.close()


def test_nothing_else_is_served(runs):
    run = runs["scaffold-0"]
    with serving(run.path) as address:
        assert address.startswith("http://127.0.0.1:")
        assert ask(address, "/")[0] == 200
        for path in ("/config.toml", "/../config.toml", "/data.json/../config.toml", "/x?y"):
            assert ask(address, path)[0] == 404
        assert ask(address, method="POST")[0] == 501
        port = address.rpartition(":")[2]
        for host in ("localhost", f"localhost:{port}", "127.0.0.1:8080"):
            assert ask(address, host=host)[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            assert ask(address, host=host)[0] == 403
            assert ask(address, "/", host=host)[0] == 403


def test_a_run_without_measures_is_served(interrupted, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    with serving(path) as address:
        assert "config.toml" in news(address)["problem"]
        shutil.copy(interrupted.path / "config.toml", path)
        assert "waiting for the first measures" in news(address)["top"]
        shutil.copy(interrupted.path / "data.json", path)
        assert len(news(address)["charts"]["partitions"]) == 1
        (path / "history.jsonl").write_text("nonsense\n")
        assert "history.jsonl is damaged" in news(address)["problem"]


def test_a_mistake_of_ours_does_not_look_like_the_end_of_the_command(runs, monkeypatch):
    monkeypatch.setattr(live, "content", {}.__getitem__)
    with serving(runs["scaffold-0"].path) as address:
        assert news(address)["problem"].startswith("this run cannot be shown (TypeError: ")


def test_a_browser_that_goes_away_is_no_error(runs, capfd):
    with serving(runs["scaffold-0"].path) as address:
        port = int(address.rpartition(":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        time.sleep(0.3)
        assert ask(address)[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_watch_ends_with_ctrl_c(runs):
    command = [sys.executable, "-m", "fedcanon", "watch", runs["scaffold-0"].path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as page:
        try:
            address = page.stdout.readline().decode().split()[-1]
            assert page.stdout.readline() == b"Ctrl-C ends the page, not the run.\n"
            assert ask(address)[0] == 200
            page.send_signal(signal.SIGINT)
            out, err = page.communicate(timeout=PATIENCE)
        finally:
            page.kill()
    assert (page.returncode, out, err) == (0, b"ended\n", b"")


def test_watch_refuses_what_it_cannot_show(fedcanon, runs):
    assert "there is no run 'absent'" in fedcanon("watch", "absent")[2]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = fedcanon("watch", str(runs["scaffold-0"].path), "--port", str(port))
    assert code == 2
    assert f"cannot serve a page on port {port}" in err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "resume"])
def test_live_shows_a_run_of_this_process(command, fedcanon, tmp_path, monkeypatch):
    addresses, states = [], []

    @contextmanager
    def noted(path):
        with serving(path) as address:
            addresses.append(address)
            yield address

    def watch_it():
        while not addresses:
            time.sleep(0.01)
        while "finished" not in states:
            top = news(addresses[0]).get("top", "")
            states.append(top.partition('class="status ')[2].partition('"')[0])
            time.sleep(0.1)

    monkeypatch.setattr("fedcanon.report.page.serving", noted)
    folder, short = str(tmp_path / "run"), ("--set", "rounds=30", "--set", "model.name=linear")
    arguments = ["run", *short, "--folder", folder]
    if command == "resume":
        fedcanon(*arguments)
        arguments = ["resume", folder, "--rounds", "60"]
    viewer = threading.Thread(target=watch_it, daemon=True)
    viewer.start()
    code, out, _ = fedcanon(*arguments, "--live")
    viewer.join(PATIENCE)
    assert code == 0
    assert f"shown at {addresses[0]}" in out
    assert states[-1] == "finished"
