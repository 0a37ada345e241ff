"""Writes the folder of a deployment: a Flower app, with certificates and keys to try it."""

from fedcanon.deployment.app.project import write_app

__all__ = ["write_app"]
