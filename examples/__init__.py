"""Complete programs.

A package, so that one of the same name in an environment (Opacus installs one) does not hide it.
"""
