"""Starts Flower's SuperLink and its launcher so that nobody else on the machine can use them.

``python -m fedcanon.deployment.operate.flower superlink …`` and ``… superexec …`` are Flower's
commands ``flower-superlink`` and ``flower-superexec``, with the same arguments, and with two
secrets that Flower has a place for but no command:

- Flower's Control API asks no one who they are, unless there is account authentication. Here the
  operator's account needs a token that is drawn at every start and kept in ``FLWR_HOME``, where
  Flower's own commands find it.
- The launcher gives the token of a task to its process in the command, which everybody on the
  machine can read. Here it is in a file for its owner alone.

``… commands`` runs several of Flower's commands in one process, because its start takes a second.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from hmac import compare_digest
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr.cli.auth_plugin import OidcCliPlugin
from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountInfo
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

from fedcanon.files import private_file

Metadata = Sequence[tuple[str, str | bytes]]


class OperatorOnly(NoOpControlAuthnPlugin):
    """Lets requests to the Control API in that carry the operator's token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        given = dict(metadata).get(ACCESS_TOKEN_KEY, b"")
        given = given.encode() if isinstance(given, str) else given
        if not compare_digest(given, self._token):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        raise FlowerError(ApiErrorCode.NO_ACCOUNT_AUTH, "The operator's token does not expire.")


class HiddenTokens(SubprocessExecutor):
    """Starts the process of a task as Flower does, but with the task's token in a file."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        certificates = Path(str(spec.root_certificates_path))
        token = certificates.with_name(f"task-{spec.task_id}")
        with private_file(token) as file:
            file.write(spec.token.encode())
        command = [TASK_TYPE_TO_COMMAND[spec.task_type], "--token-file", str(token)]
        command += ["--runtime-api-address", spec.runtime_api_address]
        command += ["--root-certificates", str(certificates)]
        subprocess.Popen([*command, "--parent-pid", str(spec.parent_pid)])
        return LaunchResult.accepted()


def superlink() -> None:
    """Run Flower's SuperLink; only who has the operator's token may control it."""
    flower: Any = import_module("flwr.superlink.cli.flower_superlink")
    config = flower._parse_superlink_lifespan_config()
    token = secrets.token_urlsafe(32)
    credentials = AccountAuthCredentials(token, token)
    OidcCliPlugin(f"{config.host}:{config.port}").store_tokens(credentials)
    config.authn_plugin = OperatorOnly(token)
    flower._run_superlink_http_api(config)


def superexec() -> None:
    """Run Flower's launcher of tasks; their tokens are in files."""
    flower: Any = import_module("flwr.supercore.superexec.run_superexec")
    flower.get_executor = lambda *_, **__: HiddenTokens()
    import_module("flwr.supercore.cli").flower_superexec()


def commands() -> None:
    """Run commands of ``flwr``, a JSON list of lists of words; print NUL behind each answer."""
    flower: Any = import_module("flwr.cli.app")
    for words in json.load(sys.stdin):
        code = flower.app(words, standalone_mode=False)
        if code:
            sys.exit(code)
        print(end="\0", flush=True)


if __name__ == "__main__":
    {"superlink": superlink, "superexec": superexec, "commands": commands}[sys.argv.pop(1)]()
