"""The job of a round, in FLARE's idiom: a recipe that a simulation or a server can execute."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.job_config.api import FedJob
from nvflare.recipe.spec import Recipe

from gcfcp.carriers import Target, Terms, round_to_json
from gcfcp.nvflare.controller import ROUND_FILE, CalibrationController
from gcfcp.nvflare.executor import SiteExecutor
from gcfcp.rounds import AUDIT, SUMMARIZE, Question


class CalibrationRecipe(Recipe):  # type: ignore[misc]  # FLARE has no types.
    """One round over all sites that FLARE gives the job to.

    question: What every site is asked for.
    target: What to calibrate for, and whether an audit follows.
    terms: The deadline, the least number of clients and so on. `clients` maps the name of each
    client to the name of its site in FLARE. FLARE starts the job when min_clients sites are
    connected, and ends it if fewer are left.
    name: The name of the job.
    output: The name of the round's directory at the server, by default that of the job. A second
    job with the same name and question asks only those that are missing.

    The job holds no code, so it needs no permission to bring code (FLARE calls it BYOC).
    """

    def __init__(
        self,
        question: Question,
        target: Target | None = None,
        terms: Terms | None = None,
        *,
        name: str = "gcfcp",
        output: str | None = None,
    ) -> None:
        terms = terms or Terms()
        job = FedJob(name=name, min_clients=terms.min_clients)
        job.set_app_packages(["gcfcp"])  # The sites use the gcfcp that they have installed.
        self._folder = TemporaryDirectory(prefix="gcfcp-")  # It lives as long as the recipe.
        file = Path(self._folder.name) / ROUND_FILE
        file.write_text(json.dumps(round_to_json(question, target or Target(), terms), indent=1))
        job.to_server(CalibrationController(output or name))
        job.add_file_to_server(str(file), app_folder_type="config")
        job.to_clients(SiteExecutor(), tasks=[SUMMARIZE, AUDIT])
        super().__init__(job)
