"""Conducts a round in a container of one node, with `gcfcp.carriers`.

The container has no records of its own: it asks the organisations, also the one in whose node it
runs. Where the node keeps its rounds is its own matter: the variable GCFCP_ROUNDS of its
`algorithm_env` names a directory. With it, a second task with the same name of a round goes on
where the first has ended. Without it, the round is kept until the container ends, and a second task
asks every site again, which repeats its answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vantage6.algorithm.tools.decorators import algorithm_client

from gcfcp.carriers import conduct, results_of, round_of, say
from gcfcp.errors import GCFCPError
from gcfcp.rounds import file_stem
from gcfcp.vantage6.carrier import Vantage6Carrier

VARIABLE = "GCFCP_ROUNDS"  # It names the directory in which a node keeps its rounds.


@algorithm_client  # type: ignore[untyped-decorator]  # vantage6 has no types.
def calibrate(
    client: Any,
    question: Mapping[str, Any],
    target: Mapping[str, Any] | None = None,
    terms: Mapping[str, Any] | None = None,
    output: str = "gcfcp",
    organizations: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Ask the organisations, calibrate, audit if that is wanted, and return all results.

    question, target, terms: The round, as `round_to_json` writes it. `clients` of the terms maps
    the name of each client to the number of its organisation.
    output: The name of the round's directory at the node.
    organizations: The numbers of the organisations that are asked, or None for all of the
    collaboration.
    Returns `outcome` ("calibrated" or "failed"), `problem`, and the texts of `predictor`, `report`
    and `record`, each of them None if there is none.
    """
    problem = None
    with _directory(output) as directory:
        try:
            plain = {"question": question, "target": target, "terms": terms}
            conduct(Vantage6Carrier(client, organizations), *round_of(plain), directory)
        except GCFCPError as error:
            problem = str(error)
            say(f"failed: {problem}")
        found = {k: data.decode() for k, data in results_of(directory, problem).items()}
    return {
        "outcome": "failed" if problem else "calibrated",
        "problem": problem,
        "predictor": found.get("predictor.json"),
        "report": found.get("report.html"),
        "record": found.get("record.json"),
    }


@contextmanager
def _directory(output: str) -> Iterator[Path]:
    """The directory of a round: one that the node keeps, or one that is gone afterwards."""
    kept = os.environ.get(VARIABLE)
    if kept:
        yield Path(kept) / file_stem("round", output)
    else:
        with TemporaryDirectory(prefix="gcfcp-") as folder:
            yield Path(folder)
