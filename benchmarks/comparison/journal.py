"""Finished runs in a file, so that an interrupted benchmark continues where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcanon.files import write_whole

Outcome = dict[str, Any]


class Journal:
    """A file with one line of JSON for each finished run."""

    def __init__(self, path: Path) -> None:
        self._path, self._done = path, dict[str, Outcome]()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # the last one may be cut off
        for line in whole:
            entry = json.loads(line)
            self._done[_name(entry["run"])] = entry["outcome"]
        if len(whole) < len(lines):
            write_whole(path, "".join(whole))

    def outcome(self, run: dict[str, Any], work: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a run: from the file, or by doing the work."""
        name = _name(run)
        if name not in self._done:
            self._done[name] = work()
            with self._path.open("a") as file:
                line = json.dumps({"run": run, "outcome": self._done[name]}, ensure_ascii=False)
                file.write(line + "\n")
        return self._done[name]


def _name(run: dict[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)
