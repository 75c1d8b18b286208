"""Conducts a round in the server's job process, with `gcfcp.carriers`.

What is asked for comes with the job, as `config/gcfcp_round.json`. Where the rounds are kept is the
server's own matter: `rounds` in `local/gcfcp/server.toml`, or the directory gcfcp-rounds in the
workspace of the server. A job gives its round a name, and never a path. A second job with the same
name goes on where the first has ended. The results are copied into the directory of the job, which
FLARE's `download_job` fetches.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from gcfcp import codec
from gcfcp.carriers import conduct, results_of, round_of
from gcfcp.errors import GCFCPError
from gcfcp.nvflare.carrier import FlareCarrier
from gcfcp.nvflare.executor import site_file
from gcfcp.rounds import file_stem, read_settings, text

ROUND_FILE = "gcfcp_round.json"


class CalibrationController(Controller):  # type: ignore[misc]  # FLARE has no types.
    """Asks all sites of the job, calibrates, audits if that is wanted, and keeps a record.

    output: The name of the round's directory at the server.
    """

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is to be prepared."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left behind."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """A result that comes after its deadline is not used."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Conduct the round; if it fails, the job fails with one line that says why."""
        workspace, job = fl_ctx.get_engine().get_workspace(), fl_ctx.get_job_id()
        directory, problem = None, None
        try:
            directory = rounds_of(workspace) / file_stem("round", self.output)
            with codec.reading(ROUND_FILE, "round"):
                data = codec.read(Path(workspace.get_app_config_dir(job)) / ROUND_FILE)
                asked = round_of(codec.from_json(data))
            carrier = FlareCarrier(self, fl_ctx, abort_signal)
            conduct(carrier, *asked, directory, partial(self._say, fl_ctx))
        except GCFCPError as error:
            problem = str(error)
            self.system_panic(f"gcfcp: failed: {problem}", fl_ctx)
        if directory is not None:
            kept = Path(workspace.get_result_root(job)) / "gcfcp"
            kept.mkdir(parents=True, exist_ok=True)
            for name, content in results_of(directory, problem).items():
                codec.write(kept / name, content)

    def _say(self, fl_ctx: FLContext, text: str) -> None:
        """Show lines of progress in the log of the job."""
        for line in text.splitlines():
            self.log_info(fl_ctx, f"gcfcp: {line}")


def rounds_of(workspace: Workspace) -> Path:
    """The directory in which the server keeps its rounds."""
    file = site_file(workspace.get_site_config_dir(), "server")
    if file.is_file():
        return file.absolute().parent / text(read_settings(file), "rounds")
    return Path(workspace.get_root_dir()) / "gcfcp-rounds"
