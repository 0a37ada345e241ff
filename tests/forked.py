"""Programs in a forked child, which need not import again what the tests have imported."""

import os
import runpy
import sys
import tempfile
import warnings
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

FORK = get_context("fork")


def run_script(path, *arguments, folder="."):
    """Run a Python file as a program in a folder; its exit code, standard output and error."""
    with ExitStack() as files:
        new = tempfile.TemporaryFile
        out, err = (files.enter_context(new("w+", encoding="utf-8")) for _ in range(2))
        child = FORK.Process(target=_run, args=(Path(path), arguments, folder, out, err))
        child.start()
        child.join()
        return child.exitcode, *(file.seek(0) or file.read() for file in (out, err))


def _run(path, arguments, folder, out, err):
    os.chdir(folder)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.stdout, sys.stderr = out, err
    sys.argv = [str(path), *map(str, arguments)]
    sys.path.insert(0, str(path.parent.absolute()))
    warnings.resetwarnings()
    runpy.run_path(str(path), run_name="__main__")
