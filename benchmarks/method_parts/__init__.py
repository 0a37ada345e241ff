"""Parts of benchmarks/methods.py: a module for each kind of problem."""
