"""The folder of a deployment, and the environment of Flower's commands in it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedcanon.deployment.app.project import REPORT, RESULT, RUN, STUDY
from fedcanon.deployment.flower.environment import flower_environment
from fedcanon.deployment.flower.nodes import FILE as NODES
from fedcanon.errors import FedcanonError
from fedcanon.files import explained

CONNECTION = "deployment"
"""The name that ``flower/config.toml`` gives to the SuperLink."""


@dataclass(frozen=True)
class DeploymentFolder:
    """What ``fedcanon deploy init`` has written."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> DeploymentFolder:
        """Return the deployment in a folder.

        Raises:
            FedcanonError: There is none.
        """
        if not any((path / "app" / name).is_file() for name in (RUN, STUDY)):
            raise FedcanonError(f"{path} is no deployment: make one with 'fedcanon deploy init'.")
        return cls(path.absolute())

    @property
    def is_study(self) -> bool:
        """Whether it does a study, rather than training a model."""
        return (self.path / "app" / STUDY).is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run, or the study, has its result."""
        return (self.run / (REPORT if self.is_study else RESULT)).is_file()

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def loopback(self) -> Path:
        """The folder of what guards the SuperLink on its own machine, new at every start."""
        return self.server / "loopback"

    @property
    def logs(self) -> Path:
        return self.server / "logs"

    @property
    def nodes(self) -> Path:
        """The file that says which node speaks for which client."""
        return self.path / NODES

    @property
    def run(self) -> Path:
        return self.path / "run"

    def site(self, client: int) -> Path:
        return self.path / "sites" / str(client)

    @property
    def keys(self) -> dict[int, Path]:
        """The public keys of the sites, by client."""
        found = self.path.glob("sites/*/key.pub")
        return {int(k.parent.name): k for k in found if k.parent.name.isdecimal()}

    @cached_property
    def address(self) -> str:
        """Where the SuperLink listens, as ``flower/config.toml`` says."""
        file = self.path / "flower" / "config.toml"
        with explained(f"cannot read {file}"):
            text = file.read_text(encoding="utf-8")
        try:
            address = tomllib.loads(text)["superlink"][CONNECTION]["address"]
            host, port = str(address).rsplit(":", 1)
            int(port)
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
            raise FedcanonError(
                f'{file} must have address = "127.0.0.1:PORT" in [superlink.{CONNECTION}].'
            ) from None
        if host != "127.0.0.1":
            raise FedcanonError(
                f"{file} says that the SuperLink is at {host}, where strangers can reach it: it "
                "must be at 127.0.0.1, behind nginx."
            )
        return f"{host}:{port}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Flower's commands."""
        return flower_environment(self.path / "flower")
