"""A study over three sites in real processes on loopback, by the commands in its README."""

import re
import shlex
import subprocess
import tomllib
from contextlib import suppress

import pandas as pd
import psutil
import pytest
import tomli_w

pytest.importorskip("flwr")

from fedcanon.deployment.site import read_site
from fedcanon.deployment.site.flower import private_folder
from fedcanon.runs.config import validated
from fedcanon.statistics.deployed.client import SiteSettings
from fedcanon.tables.site import Guards
from tests.deployment.processes import BIN, free_ports
from tests.statistics.test_study import TABLES
from tests.waiting import PATIENCE, until

STUDY = {
    "label": "ill",
    "columns": ["age", "sex", "noise1"],
    "free": ["age"],
    "choose": "bic",
    "penalty": {"name": "mcp"},  # on its path many models are the one before: few questions
    "splines": {"age": 3},
}


def commands(readme):
    """The commands of a README, block by block."""
    blocks = re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)
    return [[shlex.split(line) for line in block.strip().splitlines()] for block in blocks]


class Running:
    """Processes that end with the test."""

    def __init__(self, logs):
        self._logs, self._processes = logs, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            self.end(process)

    def start(self, command):
        """Start a process; return it and the file of what it prints."""
        path = self._logs / f"{len(self._processes)}.log"
        with path.open("wb") as log:
            started = subprocess.Popen(
                [BIN / command[0], *command[1:]], stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(started)
        return started, path

    def end(self, process):
        """End a process and all that it has started."""
        if process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            for one in [*children, process]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.nginx
def test_three_sites_give_the_bits_of_one_process_and_guards_refuse(fedcanon, tmp_path):
    (tmp_path / "study.toml").write_text(tomli_w.dumps(STUDY))
    folder, study = tmp_path / "app", str(tmp_path / "study.toml")
    init = ("deploy", "init", str(folder), "--study", study, "--clients", "3")
    assert fedcanon(*init, "--port", str(free_ports(6)))[0] == 0
    for k in range(3):
        TABLES[k].to_csv(folder / "sites" / str(k) / "table.csv", index=False)
        TABLES[k].to_csv(tmp_path / f"H{k}.csv", index=False)
        file = folder / "sites" / str(k) / "site.toml"
        file.write_text(file.read_text().replace('# name = "Aarhus"', f'name = "H{k}"'))
    [server], sites, [run], _ = commands((folder / "README.md").read_text())
    with Running(tmp_path) as there:
        operator, log = there.start(server)
        until(lambda: b"ready" in log.read_bytes(), lambda: operator.poll() is None)
        processes = [there.start(command)[0] for command in sites]
        found = subprocess.run(
            [BIN / run[0], *run[1:]], capture_output=True, text=True, timeout=PATIENCE
        )
        assert found.returncode == 0, found.stdout + found.stderr
        tables = [str(tmp_path / f"H{k}.csv") for k in range(3)]
        here = ("--study", study, "--report", str(tmp_path / "r.html"))
        written = ("--table", str(tmp_path / "local.csv"))
        assert fedcanon("glm", *tables, *here, *written)[0] == 0
        both = [tmp_path / "local.csv", folder / "run" / "coefficients.csv"]
        assert both[0].read_bytes() == both[1].read_bytes()
        assert "H2" in (folder / "run" / "report.html").read_text()
        assert len(pd.read_csv(both[0])) == 5

        file = folder / "sites" / "1" / "site.toml"
        file.write_text(file.read_text().replace("# minimum_sites = 1", "minimum_sites = 4"))
        there.end(processes[1])
        there.start(sites[1])
        refused = subprocess.run(
            [BIN / run[0], *run[1:]], capture_output=True, text=True, timeout=PATIENCE
        )
        assert refused.returncode == 2
        assert "the site H1 refuses: it answers only in sums over at least" in refused.stdout
        assert "Traceback" not in refused.stdout + refused.stderr
        assert not (folder / "run" / "report.html").exists()


def test_the_settings_of_a_site_are_its_guards():
    settings = SiteSettings(client=0, state="state", table="t.csv", columns="age, sex")
    assert settings.guards == Guards(columns=frozenset({"age", "sex"}))
    strict = SiteSettings(client=0, state="s", table="t.csv", minimum_sites=3, penalised=False)
    assert strict.guards == Guards(minimum_sites=3, penalised=False)


def test_a_study_understands_what_a_site_tells_its_apps(fedcanon, tmp_path):
    (tmp_path / "study.toml").write_text(tomli_w.dumps(STUDY))
    study = ("--study", str(tmp_path / "study.toml"), "--clients", "2")
    code, _, errors = fedcanon("deploy", "init", str(tmp_path / "app"), *study)
    assert (code, errors) == (0, "")
    site = tmp_path / "app" / "sites" / "1"
    with private_folder(read_site(site)) as private:
        settings = validated(SiteSettings, tomllib.loads((private / "node.toml").read_text()))
    assert (settings.client, settings.table) == (1, "table.csv")


def test_a_study_that_cannot_be_deployed_is_refused(fedcanon, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('label = "ill"\n')
    init = ("deploy", "init", str(tmp_path / "app"), "--study", str(study))
    for more, words in [
        (("--clients", "3"), "name the columns in"),
        ((), "a study takes --clients"),
        (("--clients", "3", "--set", "rounds=3"), "neither a configuration nor --set"),
    ]:
        code, _, err = fedcanon(*init, *more)
        assert code == 2
        assert words in " ".join(err.split())
    assert not (tmp_path / "app").exists()
    study.write_text('label = "ill"\ncolumns = ["age"]\n')
    assert fedcanon(*init, "--clients", "2")[0] == 0
    for command, words in [("status", "is a study"), ("try", "cannot be tried")]:
        code, _, err = fedcanon("deploy", command, str(tmp_path / "app"))
        assert code == 2
        assert words in " ".join(err.split())
