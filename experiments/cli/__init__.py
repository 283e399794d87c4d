"""The command line: ``sparse-secagg COMMAND``."""

from experiments.cli.app import app

__all__ = ["app"]
