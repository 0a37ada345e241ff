"""The command line: one file per command, in the order of ``fedcanon --help``.

Help and completion import all of these files. A command therefore imports what it works with when
it starts, inside its function: PyTorch alone takes seconds.
"""

# ruff: noqa: F401, I001
import sys

try:
    from fedcanon.cli import run, runs, compare, sweep, path, glm, report, watch
    from fedcanon.cli import export, evaluate, deploy, operate, site, check, attack, expose
    from fedcanon.cli import data, catalogue, paper
    from fedcanon.cli.app import main as main
except KeyboardInterrupt:  # Ctrl-C in the first moment, when ``main`` cannot answer yet
    sys.stderr.write("stopped before the end.\n")
    sys.exit(130)
