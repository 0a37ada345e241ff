"""A script in a forked child, which need not import again what the tests have imported."""

import os
import runpy
import sys
import tempfile
import warnings
from multiprocessing import get_context
from pathlib import Path

FORK = get_context("fork")


def run_script(path, *arguments, folder):
    """Run a script as a program in a folder; the exit code, and what it prints."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        child = FORK.Process(target=_run, args=(Path(path), arguments, folder, printed))
        child.start()
        child.join()
        printed.seek(0)
        return child.exitcode, printed.read()


def _run(path, arguments, folder, printed):
    os.chdir(folder)
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    sys.stdout = sys.stderr = printed
    sys.argv = [str(path), *map(str, arguments)]
    sys.path.insert(0, str(path.parent.absolute()))
    warnings.resetwarnings()
    runpy.run_path(str(path), run_name="__main__")
