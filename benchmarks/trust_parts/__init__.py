"""The parts of trust.py, a module for each."""
