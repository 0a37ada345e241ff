"""The worker of a site: loaded once, it forks for each message.

It takes tasks from the SuperNode as ``flower-superexec`` does, and answers each as
``flwr-clientapp`` does, by the same functions of Flower. Those start a Python process and import
PyTorch for every message; a fork has everything already, and nothing of the messages before.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from mmap import mmap
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime import run_clientapp

from fedcanon.deployment.flower.internals import ask_again_soon
from fedcanon.deployment.flower.waiting import AT_HOME, pause, say
from fedcanon.deployment.site.flower import AUTHORITY, HOST, SECRET

LOADED = ("torch", "fedcanon.deployment.flower.apps")
"""What all apps import."""

OFTEN = ("pandas", "sklearn.model_selection", "fedcanon.statistics.deployed.client")
"""What many apps import: as soon as one has, the worker does as well, for the next messages."""

_used = mmap(-1, len(OFTEN))
"""Shared with forks: a byte for each of these modules says whether the last one has imported it."""


def main(port: int, private: Path) -> None:
    """Answer the messages of the SuperNode on a port, until the parent process ends.

    Args:
        port: The SuperNode's port on this machine.
        private: The folder with the secret and the certificate of that port.
    """
    supervisor = os.getppid()
    _load()
    address, authority = f"{HOST}:{port}", (private / AUTHORITY).read_bytes()
    client = task_client(address, authority, (private / SECRET).read_bytes())
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    say("the worker is ready")
    last = time.monotonic()
    while os.getppid() == supervisor:
        token = ""
        with suppress(httpx.TransportError):  # the SuperNode is not there yet, or not any more
            token = client.AcquireTask(request).token
        if not token:
            time.sleep(pause(last, AT_HOME))
            continue
        begun = time.monotonic()
        code = _forked(
            partial(run_clientapp.run_clientapp, address, token, False, authority, supervisor)
        )
        _learn()
        last = time.monotonic()
        end = f"has failed ({code})" if code else "was answered"
        say(f"a message {end} after {last - begun:.2f} s")


def task_client(address: str, authority: bytes, secret: bytes) -> RuntimeHttpClient:
    """Return a client that may take tasks from the SuperNode at an address."""
    signature = SuperExecAuthHttpInterceptor(
        master_secret=secret, protected_methods=["/flwr.proto.Runtime/AcquireTask"]
    )
    return RuntimeHttpClient.from_server_address(
        address, False, authority, [RuntimeVersionHttpInterceptor("SuperExec"), signature]
    )


def _load() -> None:
    """Import what apps import, and leave nothing that a fork cannot have: no threads."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    for name in LOADED:
        import_module(name)
    ask_again_soon(run_clientapp, "pull_and_inflate_object_from_tree")
    sys.modules["torch"].set_num_threads(1)
    gc.collect()
    gc.freeze()  # so that a fork's collector does not copy the memory it shares


def _learn() -> None:
    """Import what the last fork has imported of that which many apps do."""
    for name, used in zip(OFTEN, _used[:], strict=True):
        if used:
            import_module(name)


def _forked(answer: Callable[[], object]) -> int:
    """Call a function in a fork, which ends with it, and return the exit code."""
    if sys.platform != "win32":
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code: object = 1
        try:
            answer()
        except SystemExit as end:
            code = end.code
        except Exception:
            logging.exception("the message could not be answered")
        finally:
            _used[:] = bytes(name in sys.modules for name in OFTEN)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 0)
    raise AssertionError("Windows has no forks.")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
