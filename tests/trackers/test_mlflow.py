"""What MLflow's stores hold is what was recorded: a local file and a real server."""

import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
import urllib3

from tests.trackers.runs import expected, interrupt_tracked, resume_tracked, run_tracked
from tests.waiting import PATIENCE, until

mlflow = pytest.importorskip("mlflow")

pytestmark = [
    pytest.mark.slow,  # MLflow needs ten seconds to make a database
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # MLflow's, of SQLAlchemy
]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server of its own."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}"]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/health", process, folder / "log.txt")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)


def wait_for(address, process, log):
    def answers():
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE):
                return True
        except OSError:
            assert process.poll() is None, log.read_text()

    until(answers)


def tracked(folder, store):
    """The one run of a store, and its metrics by name and round."""
    client = mlflow.MlflowClient(store)
    run_id = (folder / "mlflow_run_id.txt").read_text()
    run = client.get_run(run_id)
    metrics = {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]
        for name in run.data.metrics
    }
    return run, metrics


def without_times(metrics):
    return {name: metrics[name] for name in metrics if not name.endswith("seconds")}


def goes_through_everything(folder, store):
    """A run, one that was interrupted, and one that was not tracked from its start."""
    run_tracked("mlflow", folder / "whole")
    run, metrics = tracked(folder / "whole", store)
    assert metrics == expected(folder / "whole")
    assert run.data.params["algorithm.beta"] == "0.1"
    assert run.info.run_name == "whole"
    assert run.info.status == "FINISHED"

    interrupt_tracked("mlflow", folder / "interrupted")
    run, _ = tracked(folder / "interrupted", store)
    assert run.info.status == "KILLED"
    resume_tracked("mlflow", folder / "interrupted")
    resumed, metrics = tracked(folder / "interrupted", store)
    assert resumed.info.run_id == run.info.run_id
    assert resumed.info.status == "FINISHED"
    assert without_times(metrics) == expected(folder / "interrupted", times=False)

    resume_tracked("mlflow", folder / "whole", rounds=6)  # other settings than at its start
    resumed, metrics = tracked(folder / "whole", store)
    assert metrics == expected(folder / "whole")


def test_a_database_beside_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    goes_through_everything(tmp_path / "runs", f"sqlite:///{tmp_path / 'runs/mlflow.db'}")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "interrupted",
        "mlflow.db",
        "whole",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_server(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    goes_through_everything(tmp_path, server)
    assert not (tmp_path / "mlflow.db").exists()


def test_a_run_from_another_store_is_complete_in_a_new_one(server, untracked_run, monkeypatch):
    (untracked_run / "mlflow_run_id.txt").write_text("0" * 32)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    resume_tracked("mlflow", untracked_run, rounds=5)
    _, metrics = tracked(untracked_run, server)
    assert metrics == expected(untracked_run)


def test_a_server_that_is_down_costs_three_attempts_and_a_warning(tmp_path, monkeypatch, caplog):
    connect, attempts = urllib3.util.connection.create_connection, []

    def counted(*arguments, **options):
        attempts.append(arguments)
        return connect(*arguments, **options)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", counted)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nobody listens there
    with caplog.at_level(logging.WARNING, logger="fedcanon"):
        result = run_tracked("mlflow", tmp_path / "run")
    assert len(attempts) == 3
    assert result.last.round == 4
    warnings = [r.message for r in caplog.records if r.name.startswith("fedcanon")]
    assert len(warnings) == 1
    assert warnings[0].startswith("the tracker mlflow failed, the run goes on without it")
