"""A folder from which a deployment is run: a Flower app, with what is needed to try it."""

from fedcanon.deployment.app.project import write_app

__all__ = ["write_app"]
