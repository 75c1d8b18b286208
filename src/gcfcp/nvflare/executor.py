"""A site's answer to a task of FLARE.

The site's own file, `local/gcfcp/SITE.toml` in its startup kit, says who the site is, where its
records are and to which question it has agreed (`gcfcp.rounds.site_file`). SITE is the name in the
site's certificate. A job can name this class and give it nothing: it takes no arguments, and a task
holds the bytes of a question and nothing else that is read.

Every task is answered with a message, also if something fails: what an executor raises, FLARE
writes into its logs. By default a site of FLARE streams its log of errors to the server, and a job
can ask for the others. So the log has the code of a refusal and nothing else. `gcfcp ledger` shows
at the site why something was refused, and `python -m gcfcp.rounds SITE.toml` what is wrong with its
file.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from gcfcp.errors import GCFCPError
from gcfcp.rounds import RECORD, SILENT, Site, read_site, respond_to_bytes, unpack

FOLDER = "gcfcp"  # The directory below `local` in which the files of gcfcp are.


class SiteExecutor(Executor):  # type: ignore[misc]  # FLARE has no types.
    """Answers the questions that the site has agreed to, and refuses all others with a code."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """The reply to a task; see the module's docstring."""
        reply = Shareable()
        data = respond_to_bytes(shareable.get(RECORD), lambda: _site_of(fl_ctx), log=SILENT)
        reply[RECORD] = data
        self.logger.info("gcfcp: %s", unpack(data).get("code", f"answered with {len(data)} bytes"))
        return reply


def _site_of(fl_ctx: FLContext) -> Site:
    """The site that its own file describes."""
    name, workspace = fl_ctx.get_identity_name(), fl_ctx.get_engine().get_workspace()
    file = site_file(workspace.get_site_config_dir(), name)
    if not file.is_file():
        raise GCFCPError(f"{file} is missing: it says what {name} answers")
    return read_site(file, name, [workspace.get_run_dir(fl_ctx.get_job_id())])


def site_file(local: str, name: str) -> Path:
    """The file of a site in its directory `local`."""
    return Path(local) / FOLDER / f"{name}.toml"
