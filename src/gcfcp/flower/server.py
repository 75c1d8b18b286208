"""A round as a ServerApp of Flower. What a round is belongs to `gcfcp.carriers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from gcfcp import carriers
from gcfcp.carriers import Result, Say, Setup, Target, Terms, say
from gcfcp.errors import GCFCPError
from gcfcp.flower.carrier import FlowerCarrier
from gcfcp.rounds import Question


def server_app(question: Question, target: Target, terms: Terms, output: str | Path) -> ServerApp:
    """A ServerApp that conducts one round and leaves its results in the directory `output`."""
    return app_of(lambda _: (question, target, terms, Path(output)))


def app_of(setup: Callable[[Mapping[str, Any]], Setup]) -> ServerApp:
    """A ServerApp that `setup` sets up from its run configuration."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            conduct(grid, *setup(context.run_config))
        except GCFCPError as error:
            say(f"failed: {error}")  # One line says why, before Flower prints a traceback.
            raise

    return app


def conduct(
    grid: Grid,
    question: Question,
    target: Target,
    terms: Terms,
    output: str | Path,
    say: Say = say,
) -> Result:
    """Conduct one round over Flower, as `gcfcp.carriers.conduct` does over any carrier.

    grid: Flower's connection to the nodes.
    """
    return carriers.conduct(FlowerCarrier(grid), question, target, terms, output, say)
