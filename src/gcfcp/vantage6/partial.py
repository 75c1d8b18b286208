"""A node's answer to a task of vantage6.

The node's configuration names the site's file (`gcfcp.rounds.site_file`):

    algorithm_env:
      GCFCP_SITE: /mnt/gcfcp/site.toml

The node adds these variables to every container after those that a task can influence, so that no
task can set them. The data are those that the file names. vantage6's own decorator `@data` is not
used, because with it a task chooses the data set, may filter its rows ("preprocessing") and may
write the query: two summaries that differ in one record tell that record.

By default a node sends the log of a container to the server. So nothing is written to it here but
the code. `gcfcp ledger` shows at the node why something was refused, and
`python -m gcfcp.rounds SITE.toml` what is wrong with its file.
"""

from __future__ import annotations

import base64
import os

from gcfcp.errors import GCFCPError
from gcfcp.rounds import SILENT, Site, read_site, respond_to_bytes

VARIABLE = "GCFCP_SITE"  # It names the file of the site.


def answer(request: str) -> dict[str, str]:
    """The reply to a request: the answer of the node's site, or a code if anything fails.

    request: The message of the server, as base64.
    """
    try:
        data = base64.b64decode(request, validate=True)
    except (ValueError, TypeError):
        data = b""  # It is refused as any other message that makes no sense.
    return {"reply": base64.b64encode(respond_to_bytes(data, _site, log=SILENT)).decode()}


def _site() -> Site:
    """The site that the node's own file describes."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise GCFCPError(f"the node's configuration has no {VARIABLE} in algorithm_env")
    return read_site(path)
