"""Runs made visible: plots and tables."""
