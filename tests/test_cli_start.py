"""The command line starts at once: help, completion and lists import nothing that is slow."""

import json
import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from fedcanon.cli.app import app
from fedcanon.cli.catalogue import WRITTEN
from fedcanon.cli.registries import catalogue

HEAVY = {
    "flwr",
    "jinja2",
    "matplotlib",
    "networkx",
    "numba",
    "numpy",
    "optuna",
    "pandas",
    "PIL",
    "plotly",
    "pyarrow",
    "pydantic",
    "ray",
    "safetensors",
    "scipy",
    "sklearn",
    "torch",
}

SPY = """
import atexit, sys
def tell():
    roots = {name.partition(".")[0] for name in sys.modules}
    print("imported:", *sorted(roots), file=sys.stderr)
atexit.register(tell)
sys.argv[0] = "fedcanon"
from fedcanon.cli import main
main()
"""


def started(*arguments, **variables):
    """The output of a command, and the packages that it has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", SPY, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    *errors, last = done.stderr.splitlines()
    assert done.returncode == 0, errors
    assert last.startswith("imported: ")
    return done.stdout, set(last.split()[1:])


def completed(*words):
    """What a shell is offered behind these words, by the protocol of bash; and the packages."""
    line = " ".join(["fedcanon", *words])
    variables = {"_FEDCANON_COMPLETE": "complete_bash", "COMP_WORDS": line}
    out, packages = started(COMP_CWORD=str(len(words)), **variables)
    return out.split(), packages


def commands(group, before=()):
    for name, command in group.commands.items():
        yield (*before, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))


@pytest.mark.slow
def test_the_spy_sees_what_is_imported(tmp_path):
    _, packages = started("runs", FEDCANON_RUNS=str(tmp_path))
    assert "torch" in packages


@pytest.mark.slow
def test_the_default_run_imports_nothing_slow_but_what_it_works_with(tmp_path):
    _, packages = started("run", "--set", "rounds=1", "--folder", str(tmp_path / "run"))
    assert packages & HEAVY == {
        *("numba", "numpy", "pydantic", "safetensors", "scipy", "torch"),
        "PIL",  # for images of one's own, with the other datasets
        *("pandas", "pyarrow"),  # for the table of measures, after the last round
    }


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("list",), ("list", "models")])
def test_nothing_slow_is_imported(arguments):
    out, packages = started(*arguments)
    assert out
    assert not packages & HEAVY


@pytest.mark.slow
def test_help_of_every_command_imports_nothing_slow():
    everything = list(commands(get_command(app)))
    assert ("deploy", "init") in everything
    program = SPY.replace(
        "main()\n",
        f"for command in {everything!r}:\n"
        "    sys.argv[1:] = [*command, '--help']\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code\n",
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.count("Usage:") == len(everything)
    assert not set(done.stderr.splitlines()[-1].split()[1:]) & HEAVY


INTERRUPTED = """
import os, signal, sys
last = sys.argv[1]

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == last:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from fedcanon.cli import main
sys.argv[:] = ["fedcanon", "check"]
main()
"""


@pytest.mark.parametrize("imported", ["typer", "rich.table", "fedcanon.cli.paper", "torch"])
def test_ctrl_c_while_packages_are_imported_is_no_error(imported):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, imported], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "stopped before the end.\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ru",), {"run", "runs"}),
        (("deploy", "adm"), {"admit"}),
        (("run", "--eng"), {"--engine"}),
        (("list", "pen"), {"penalties"}),
        (("compare", "--against", "b"), {"bytes"}),
    ],
)
def test_completion(words, offered):
    found, packages = completed(*words)
    assert set(found) == offered
    assert not packages & HEAVY


def test_the_script_that_connects_a_shell_calls_the_command():
    script, packages = started(
        "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert re.search(r"_FEDCANON_COMPLETE=complete_bash \$1", script)
    assert not packages & HEAVY


def test_the_catalogue_is_what_the_registries_have():
    written = json.loads(WRITTEN.read_text(encoding="utf-8"))
    assert written == catalogue(), "'python -m fedcanon.cli.registries' writes it anew"
    assert list(written) == list(catalogue())
