"""Programs in a forked child, which need not import again what the tests have imported."""

import gc
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path

FORK = get_context("fork")


def run_script(path, *arguments, folder="."):
    """Run a Python file as a program in a folder; its exit code, standard output and error.

    Python programs that it starts are forks as well.
    """
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
    subprocess.Popen = _Forked
    runpy.run_path(str(path), run_name="__main__")


class _Forked(subprocess.Popen):
    """Starts Python programs without a new interpreter, and others as usual."""

    def __init__(self, command, *, env=None, **options):
        if command[0] == sys.executable:
            options["preexec_fn"] = partial(_become, command[1:], env)
        super().__init__(command, env=env, **options)


def _become(command, environment):
    """Be ``python command …`` in a fork whose standard streams and folder are set."""
    code = 1
    try:
        gc.enable()  # which subprocess disables for a fork
        gc.freeze()  # nothing of before is collected, of which the files are closed now
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(k, "w" if k else "r") for k in range(3))
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        tempfile.tempdir = None  # the environment may name another
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path.insert(0, str(Path(command[0]).parent))
            runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
