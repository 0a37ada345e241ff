"""``python -m fedcanon`` is the command line."""

from fedcanon.cli import main

main()
