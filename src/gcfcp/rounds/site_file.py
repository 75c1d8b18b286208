"""A site in a file of settings, for carriers that have no configuration for it.

    client = "hospital-a"                  # The name of the site, unless the carrier knows it.
    ledger = "ledger"                      # Where the site keeps what it has answered.
    data = "calibration.csv"               # And so on: the keys of `settings`.

A site that computes its scores in Python names a function of its own instead (see `own`), and
whatever keys that function reads:

    site = "my_site.py:site"

A path in the file starts at the directory of the file. So a directory that holds the file, the data
and the ledger can be mounted elsewhere as a whole, for example into a container.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from gcfcp import checks, codec
from gcfcp.errors import GCFCPError
from gcfcp.rounds.ledger import Ledger, default_directory
from gcfcp.rounds.own import own_site
from gcfcp.rounds.settings import site_of, text
from gcfcp.rounds.site import Site

# Values that are paths, or begin with one.
_PATHS = (
    *("data", "summary", "groups", "shape", "audit-data", "ledger", "site", "key"),
    *("known-keys", "grid"),
)


def read_settings(path: str | PathLike[str]) -> dict[str, Any]:
    """The settings in a TOML file, with paths from the root on; a GCFCPError names a bad file."""
    file = Path(path)
    try:
        settings = tomllib.loads(codec.read(file).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GCFCPError(f"{file} is not TOML: {error}") from None
    for key in _PATHS:
        if isinstance(settings.get(key), str) and settings[key]:
            whole = file.absolute().parent / settings[key]
            if key != "grid" or whole.exists():  # A grid can be given in words instead of a file.
                settings[key] = str(whole)
    return settings


def read_site(
    path: str | PathLike[str], client: str | None = None, foreign: Sequence[str | Path] = ()
) -> Site:
    """The site that a file describes; a GCFCPError if something is wrong with it.

    client: The name by which the carrier knows the site. `client` in the file comes before it.
    foreign: Directories that a server can write to, as in `own_site`.
    """
    settings = {"client": client} | read_settings(path)
    if "site" in settings:
        return own_site(text(settings, "site"), settings, foreign)
    name = settings.pop("client")
    if name is None:
        raise GCFCPError(f'{path} does not say who the site is: add client = "NAME"')
    checks.name("client", name)
    directory = text(settings, "ledger") if "ledger" in settings else default_directory()
    settings.pop("ledger", None)
    return site_of(settings, str(name), Ledger(Path(directory)))
