"""How nodes are started on the operator's machine, in a dry run."""

from __future__ import annotations

import sys
from pathlib import Path


def site_command(site: Path) -> list[str]:
    """Return the command that starts a site, from its folder."""
    return [sys.executable, "-m", "fedcanon", "site", "start", str(site)]


def supernode(
    server: str,
    certificates: Path,
    port: int,
    node: dict[str, object],
    key: Path | None,
    *,
    answers: bool = True,
) -> list[str]:
    """Return the command of a SuperNode that is not a site's: it has another key, or none.

    It starts processes that answer messages, unless it only shall be refused.
    """
    entries = (f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in node.items())
    command = ["flower-supernode", "--superlink", server, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--root-certificates", str(certificates)]
    command += ["--node-config", " ".join(entries)]
    command += ["--isolation", "subprocess" if answers else "process"]
    return [*command, *([] if key is None else ["--auth-supernode-private-key", str(key)])]
