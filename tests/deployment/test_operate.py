"""The operator's side of a deployment: its folder, its doors, its keys."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import tomllib
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flwr")

from fedcanon import FedcanonError
from fedcanon.deployment.app.credentials import write_certificates, write_node_key
from fedcanon.deployment.app.project import write_app
from fedcanon.deployment.operate import server
from fedcanon.deployment.operate.checks import (
    check_certificate,
    check_doors,
    check_loopback,
    check_secrets,
)
from fedcanon.deployment.operate.copying import copy_of
from fedcanon.deployment.operate.flower import OperatorOnly
from fedcanon.deployment.operate.folder import DeploymentFolder
from fedcanon.deployment.operate.keys import check_keys, replace_key
from fedcanon.runs.config import load_config
from tests.deployment.processes import Deployment, free_ports, make_deployment
from tests.waiting import PATIENCE

pytestmark = pytest.mark.flower

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def folder(tmp_path):
    """The deployment of two sites."""
    place = tmp_path / "app"
    write_app(place, "rounds = 2\n", 2, HOSTS, free_ports(4))
    return DeploymentFolder.at(place)


class TestFolder:
    def test_a_name_with_quotes_is_written_so_that_it_can_be_read(self, tmp_path):
        place = tmp_path / """it's-"100%"-\\here$HOME"""
        write_app(place, "", 2, ["fl.example.org"], 9100)
        project = tomllib.loads((place / "pyproject.toml").read_text())
        assert project["tool"]["flwr"]["app"]["config"]["folder"] == str(place / "run")
        flower = tomllib.loads((place / "flower" / "config.toml").read_text())
        authority = flower["superlink"]["deployment"]["root-certificates"]
        assert authority == str(place / "server" / "loopback" / "ca.pem")
        readme = (place / "README.md").read_text()
        [start] = [line for line in readme.splitlines() if line.startswith("fedcanon deploy start")]
        assert shlex.split(start)[-1] == str(place)

    @pytest.mark.parametrize("host", ['a"b', "a b", "", "fl.example.org:9100", "[::1]", "a\nb"])
    def test_what_is_no_host_is_refused(self, fedcanon, tmp_path, host):
        code, _, err = fedcanon(
            *("deploy", "init", str(tmp_path / "app"), "--host", host),
            *("--set", "model.name=linear"),
        )
        assert code == 2
        assert "neither the name nor the IP address of a host" in err
        assert not list(tmp_path.iterdir())

    def test_an_address_of_version_6_is_in_brackets(self, tmp_path):
        write_app(tmp_path / "app", "", 1, ["2001:db8::7"], 9100)
        site = tomllib.loads((tmp_path / "app" / "sites" / "0" / "site.toml").read_text())
        assert site["server"] == "[2001:db8::7]:9100"
        assert "listen [::]:9100 ssl;" in (tmp_path / "app" / "server" / "nginx.conf").read_text()

    def test_a_superlink_that_strangers_can_reach_is_not_started(self, folder):
        file = folder.path / "flower" / "config.toml"
        file.write_text(file.read_text().replace("127.0.0.1", "0.0.0.0"))
        with pytest.raises(FedcanonError, match="strangers can reach it"), _running(folder):
            pass

    def test_without_nginx_there_is_a_sentence(self, folder, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
        with pytest.raises(FedcanonError, match="apt-get install nginx-light"), _running(folder):
            pass

    def test_a_run_needs_a_server(self, fedcanon, folder):
        code, _, err = fedcanon("deploy", "run", str(folder.path))
        assert code == 2
        assert "fedcanon deploy start" in err

    def test_other_folders_are_no_deployments(self, fedcanon, tmp_path):
        for command in (["start"], ["run"], ["try"], ["key", "0", "new.pub"]):
            code, _, err = fedcanon("deploy", command[0], str(tmp_path), *command[1:])
            assert code == 2
            assert "fedcanon deploy init" in err

    def test_a_copy_listens_to_this_machine_only(self, tmp_path):
        write_app(tmp_path / "app", "", 9, ["2001:db8::7"], 9100)
        copy, port = copy_of(DeploymentFolder.at(tmp_path / "app"), tmp_path / "copy")
        nginx = (copy.server / "nginx.conf").read_text().split()
        assert [nginx[k + 1] for k, word in enumerate(nginx) if word == "listen"] == [
            f"127.0.0.1:{port}"
        ]
        assert f"{copy.address};" in nginx
        assert "9100" not in "".join(path.read_text() for path in copy.path.rglob("*.toml"))
        config = load_config(copy.path / "app" / "run.toml")
        assert (config.rounds, config.clients.count, len(copy.keys)) == (2, 3, 3)


def _running(folder):
    return server.running(folder, print)


class TestKeys:
    def test_the_key_of_a_site_is_replaced_in_its_folder(self, fedcanon, folder, tmp_path):
        write_node_key(tmp_path / "new")
        code, out, _ = fedcanon("deploy", "key", str(folder.path), "1", str(tmp_path / "new.pub"))
        assert code == 0
        assert "when the server is started" in out
        assert folder.keys[1].read_text().split() == (tmp_path / "new.pub").read_text().split()

    def test_what_is_no_key_or_anothers_is_refused(self, folder, tmp_path):
        (tmp_path / "text.pub").write_text("hello\n")
        with pytest.raises(FedcanonError, match="ssh-keygen -t ecdsa"):
            replace_key(folder, 0, tmp_path / "text.pub", running=False)
        before = folder.keys[1].read_bytes()
        with pytest.raises(FedcanonError, match="key of site 0"):
            replace_key(folder, 1, folder.keys[0], running=False)
        assert folder.keys[1].read_bytes() == before

    def test_two_sites_with_one_key_are_found(self, folder):
        assert check_keys(folder).passed
        shutil.copy(folder.keys[0], folder.keys[1])
        assert "same key" in check_keys(folder).found


class TestChecks:
    def test_a_good_certificate_is_good_and_says_how_long(self, folder):
        verdict = check_certificate(folder)
        assert verdict.passed
        assert "127.0.0.1" in verdict.found
        assert "364 days left" in verdict.found

    def test_faults_of_a_certificate_are_named(self, folder, tmp_path):
        def found(hosts, days=365, **files):
            shutil.rmtree(folder.server)
            write_certificates(folder.server, hosts, days=days)
            for name, source in files.items():
                suffix = "key" if name == "server" else "pem"
                shutil.copy(source, folder.server / f"{name}.{suffix}")
            verdict = check_certificate(folder)
            assert not verdict.passed
            return verdict.found

        write_certificates(tmp_path / "other", HOSTS)
        assert found(["fl.example.org"]) == "not valid for 127.0.0.1"
        assert "-1 days left" in found(HOSTS, days=0)
        assert "has not signed" in found(HOSTS, ca=tmp_path / "other" / "ca.pem")
        assert "is not the key" in found(HOSTS, server=tmp_path / "other" / "server.key")
        (folder.server / "server.pem").unlink()
        assert not check_certificate(folder).passed

    @pytest.mark.parametrize("name", ["server/server.key", "sites/1/key", "flower", "."])
    def test_a_secret_that_others_can_read_is_named(self, folder, name):
        assert check_secrets(folder, "secrets").passed
        (folder.path / name).chmod(0o755)
        verdict = check_secrets(folder, "secrets")
        assert not verdict.passed
        assert str(folder.path / name) in verdict.found


def test_only_the_operators_token_opens_the_control_interface():
    guard = OperatorOnly("right")
    key = "flwr-oidc-access-token"
    for metadata in ([], [(key, "wrong")], [(key, "")], [(key, "ríght")], [("other", "right")]):
        assert guard.validate_tokens_in_metadata(metadata) == (False, None)
    allowed, account = guard.validate_tokens_in_metadata([(key, "right")])
    assert allowed
    assert account is not None


# In real processes


def made(root, clients=2):
    """A small deployment, as its user makes it."""
    folder = root / "app"
    ports = ("--port", str(free_ports(clients + 3)))
    make_deployment(folder, "--set=model.name=linear", "--clients", str(clients), *ports)
    return Deployment(folder)


# Python forgets to close the socket of a peer that is gone before the handshake begins.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.slow
@pytest.mark.nginx
def test_the_server_keeps_strangers_out_and_goes_on_after_faults(tmp_path):
    with made(tmp_path) as there:
        there.start_server()
        nothing_but_fleet_is_open(there)
        flower_commands_need_the_token(there, tmp_path / "stranger")
        first = there.nodes()
        kill(there, "operate.flower superlink")
        there.until(lambda: "ready again" in there.log("server"), PATIENCE, "it is ready again")
        assert set(there.nodes()) == set(first) == {"0", "1"}
        assert not set(there.nodes().values()) & set(first.values())
        nothing_but_fleet_is_open(there)
        a_key_is_replaced(there, tmp_path)
        an_open_door_is_noticed(there)
        there.stop("server", signal.SIGKILL)
        there.until(lambda: not list(processes(there)), PATIENCE, "all end with it")
        a_port_that_is_taken_is_named(there)
        there.start_server()
        there.stop("server")
        assert not list(processes(there))


def outside(there):
    """The address of the server as sites know it."""
    return tomllib.loads((there.folder / "sites" / "0" / "site.toml").read_text())["server"]


def nothing_but_fleet_is_open(there):
    port = int(outside(there).rpartition(":")[2])
    for verdict in check_doors(port, there.folder / "server" / "ca.pem"):
        assert verdict.passed, verdict
    folder = DeploymentFolder.at(there.folder)
    assert check_loopback(folder.port, folder.loopback / "ca.pem").passed


def flower_commands_need_the_token(there, home):
    """A stranger has Flower and the authority's certificate, and one on the same machine too."""
    inside, server = DeploymentFolder.at(there.folder).address, there.folder / "server"
    home.mkdir()
    for address, certificate, words in (
        (outside(there), server / "ca.pem", "404"),
        (inside, server / "loopback" / "ca.pem", "Authentication failed"),
    ):
        content = f'[superlink.it]\naddress = "{address}"\nroot-certificates = "{certificate}"\n'
        (home / "config.toml").write_text(content)
        for command in (["ls", "it"], ["run", str(there.folder), "it"]):
            done = subprocess.run(
                ["flwr", *command],
                env={**there.environment, "FLWR_HOME": str(home)},
                capture_output=True,
                text=True,
            )
            assert done.returncode != 0
            assert words in done.stdout + done.stderr
    assert there.call(["flwr", "ls", "deployment"]).returncode == 0  # the operator may


def a_key_is_replaced(there, root):
    old = Path(shutil.copy(there.folder / "sites" / "1" / "key", root / "old"))
    new = root / "new"
    write_node_key(new)
    before = there.nodes()
    there.call([*there.key_command, "1", f"{new}.pub"])
    after = there.nodes()
    assert after["0"] == before["0"]
    assert after["1"] != before["1"]
    there.start_site(1)  # still with the old key
    there.until(lambda: "2004" in there.log("client-1"), PATIENCE, "the old key is refused")
    there.stop("client-1")
    shutil.move(new, old.with_name("key"))
    shutil.copy(root / "key", there.folder / "sites" / "1" / "key")
    before = len(there.log("client-1"))
    there.start_site(1)
    there.until(
        lambda: "connected as node" in there.log("client-1")[before:],
        PATIENCE,
        "the new key is let in",
    )
    there.until(lambda: after["1"] in there.online(), PATIENCE, "it is online")
    there.stop("client-1")


def an_open_door_is_noticed(there):
    """If nginx forwards everything, the check fails."""
    file = there.folder / "server" / "nginx.conf"
    file.write_text(file.read_text().replace("^/v1/fleet/[a-z-]+$", "^/"))
    kill(there, "nginx: master")
    port = int(outside(there).rpartition(":")[2])

    def found():
        return check_doors(port, there.folder / "server" / "ca.pem")[0].found

    there.until(lambda: "list-runs answers 401" in found(), PATIENCE, "the door is open")


def a_port_that_is_taken_is_named(there):
    host, _, port = outside(there).rpartition(":")
    with socket.create_server((host, int(port))):
        done = there.call(there.server_command, check=False)
    assert done.returncode == 2
    assert "nginx does not start" in done.stderr
    assert "could not bind" in done.stderr
    assert not list(processes(there))


def processes(there, word=""):
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and str(there.folder) in words and word in words:
            yield process


def kill(there, word):
    found = list(processes(there, word))
    assert found
    for process in found:
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.nginx
def test_a_dry_run_passes_every_check(tmp_path):
    there = made(tmp_path)
    before = {path: path.read_bytes() for path in there.folder.rglob("*") if path.is_file()}
    done = there.call([*there.try_command], check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert done.stdout.count("passed") == 15
    after = {path: path.read_bytes() for path in there.folder.rglob("*") if path.is_file()}
    assert after == before
