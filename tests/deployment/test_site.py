"""What a client runs on its own machine: its settings, and its processes on loopback."""

import stat
import subprocess
import sys
from importlib import import_module
from mmap import mmap

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.nodestate import NodeStateFactory

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.app.sites import write_site
from fedcanon.deployment.flower import waiting
from fedcanon.deployment.flower.environment import flower_environment
from fedcanon.deployment.site import read_site, supernode, supervision, worker
from fedcanon.deployment.site.flower import private_folder, supernode_arguments
from fedcanon.deployment.site.worker import task_client
from fedcanon.errors import FedcanonError
from tests.deployment.processes import free_ports, is_free
from tests.waiting import until

pytestmark = pytest.mark.flower


@pytest.fixture
def folder(tmp_path):
    write_certificates(tmp_path / "certificates", ["127.0.0.1"])
    authority = tmp_path / "certificates" / "ca.pem"
    place = tmp_path / "deployment" / "sites" / "1"
    write_site(place, tmp_path / "deployment", 1, "fl.example.org:9100", 9103, authority)
    return place


def test_the_task_of_a_message_that_did_not_arrive_whole_is_given_up():
    state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
    task = state.create_task(task_type=TaskType.CLIENT_APP, run_id=7, fab_hash="x")
    token = state.claim_task(task)
    assert token
    supernode._give_up_tasks(state)
    assert not state.get_tasks(statuses=supernode.UNFINISHED)
    assert state.get_task_by_token(token) is None  # so that the fork of the worker ends


class TestSettings:
    def test_what_is_written_is_read(self, folder):
        with (folder / "site.toml").open("a") as file:
            file.write('data = "/srv/table.csv"\nfraction = 0.5\n')
        site = read_site(folder)
        assert (site.client, site.server, site.port) == (1, "fl.example.org:9100", 9103)
        assert site.key == folder / "key"
        assert site.node == {"data": "/srv/table.csv", "fraction": 0.5}

    def test_secrets_are_for_their_owner_alone(self, folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        ("before", "after", "sentence"),
        [
            ("client = 1", "", "client is missing"),
            ("client = 1", "client = -1", "client: input should be greater than or equal to 0"),
            ("client = 1", 'client = "1"', "client: input should be a valid integer"),
            ("client = 1", "client = true", "client: input should be a valid integer"),
            (":9100", "", "server: give host and port, such as"),
            (":9100", ":99999", "server: give host and port, such as"),
            ("fl.example", "https://fl.example", "server: give host and port, such as"),
            ("port = 9103", "port = 0", "port: input should be greater than 0"),
            ('key = "key"', "key = 3", "key: give a path"),
            ('key = "key"', 'keys = "key"', "unknown key 'keys': use client, server"),
            ('"ca.pem"', '"gone.pem"', "cannot read the certificate .*gone.pem: No such file"),
            ('"ca.pem"', '"key"', "key has no certificate: copy"),
            ('key = "key"', 'key = "gone"', "cannot read the key .*gone: No such file"),
            ('key = "key"', 'key = "ca.pem"', "others may read the key .*: run chmod 600"),
            ('key = "key"', 'key = "site.toml"', "is no private key .*ssh-keygen"),
            ("[node]", "[node]\nx = [1]", "node.x: give a text, a number, true or false"),
            ("[node]", "[node]\nclient = 2", "client does not belong in"),
            ("[node]", "[node", "is not valid TOML"),
        ],
    )
    def test_a_mistake_is_explained_in_a_sentence(self, folder, before, after, sentence):
        path = folder / "site.toml"
        path.chmod(0o600)
        content = path.read_text()
        assert before in content
        path.write_text(content.replace(before, after))
        with pytest.raises(FedcanonError, match=sentence) as raised:
            read_site(folder)
        assert "\n" not in str(raised.value)

    def test_a_key_of_another_kind_is_refused(self, folder):
        (folder / "key").unlink()
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True
        )
        with pytest.raises(FedcanonError, match="not the key of an elliptic curve"):
            read_site(folder)

    def test_the_command_ends_with_the_sentence(self, fedcanon, tmp_path):
        code, _, err = fedcanon("site", "start", str(tmp_path))
        assert code == 2
        assert err.startswith(f"error: cannot read {tmp_path}/site.toml: No such file")

    def test_the_unit_names_this_folder_and_is_confined(self, folder, tmp_path):
        unit = (folder / "fedcanon-site.service").read_text()
        place = tmp_path / "deployment" / "sites" / "1"
        assert f"fedcanon site start {place}\n" in unit
        for line in ("NoNewPrivileges=true", "ProtectSystem=strict", f"ReadWritePaths={place}"):
            assert f"\n{line}\n" in unit


class TestWithoutProcesses:
    def test_with_another_flower_the_supernode_starts_its_processes(
        self, folder, monkeypatch, capsys
    ):
        monkeypatch.setattr(supervision, "is_tested", lambda: False)
        site = read_site(folder)
        with private_folder(site) as private:
            [supernode] = supervision._processes(site, private)
        assert supernode.command[0].endswith("flower-supernode")
        assert supernode.command[-2:] == ["--isolation", "subprocess"]
        assert "was not tested" in capsys.readouterr().out

    def test_who_waits_looks_ever_more_rarely(self, monkeypatch):
        monkeypatch.setattr(waiting.time, "monotonic", lambda: 100.0)
        assert waiting.pause(100.0, longest=3.0) == waiting.SHORTEST
        assert waiting.pause(90.0, longest=3.0) == 1.0
        assert waiting.pause(0.0, longest=3.0) == 3.0


def test_a_worker_imports_what_the_app_of_a_message_has_imported(monkeypatch):
    monkeypatch.setattr(worker, "OFTEN", ("colorsys", "sunau"))
    monkeypatch.setattr(worker, "_used", mmap(-1, 2))
    for name in worker.OFTEN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    worker._learn()
    assert "colorsys" not in sys.modules
    assert worker._forked(lambda: sys.exit(import_module("colorsys") is None)) == 0
    worker._learn()
    assert "colorsys" in sys.modules
    assert "sunau" not in sys.modules


@pytest.mark.parametrize(
    "module", ["fedcanon.deployment.operate.server", "fedcanon.deployment.site"]
)
def test_what_starts_a_server_or_a_site_imports_nothing_slow(module):
    program = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert module in imported
    assert not imported & {"flwr", "numpy", "pandas", "scipy", "torch"}


@pytest.mark.slow
def test_a_supernode_gives_no_task_without_the_secret(tmp_path, folder):
    """Asked by a process of another user, which knows the port and even the certificate."""
    port = free_ports(1)
    path = folder / "site.toml"
    path.write_text(path.read_text().replace("port = 9103", f"port = {port}"))
    site, address = read_site(folder), f"127.0.0.1:{port}"
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    with private_folder(site) as private:
        arguments = supernode_arguments(site, private, with_worker=True)
        command = [sys.executable, "-m", "fedcanon.deployment.site.supernode", *arguments]
        supernode = subprocess.Popen(command, env=flower_environment(private / "flower"))
        authority = (private / "certificates" / "ca.pem").read_bytes()
        other_authority = (tmp_path / "certificates" / "ca.pem").read_bytes()
        secret = (private / "secret").read_bytes()
        owner = task_client(address, authority, secret)
        guessing = task_client(address, authority, b"guessed")
        unsigned = RuntimeHttpClient.from_server_address(
            address, False, authority, [RuntimeVersionHttpInterceptor("SuperExec")]
        )
        misled = task_client(address, other_authority, secret)
        try:
            until(lambda: not is_free(port), lambda: supernode.poll() is None)
            assert not owner.AcquireTask(request).token  # there is no task, but it may ask
            for stranger in (guessing, unsigned):
                with pytest.raises(httpx.HTTPStatusError, match="401"):
                    stranger.AcquireTask(request)
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                misled.AcquireTask(request)
        finally:
            for client in (owner, guessing, unsigned, misled):
                client.close()
            supernode.kill()
            supernode.wait()
