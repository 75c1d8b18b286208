"""A site's own Python: a function in a file that lies at the site makes the `Site`.

    site = "/srv/gcfcp/my_site.py:site"          # In the site's own configuration.

The function takes the site's settings and returns a `Site`: its name, its policy, its ledger, and
the functions that read its records. The file is named by its whole path, and is loaded from there
and from nowhere else. So neither the policy nor the code that reads the records can be replaced by
something that a server sends, and nothing of the site's has to be sent to the server.

A carrier may unpack what a server sends into a directory from which Python imports. Before the
site's file is loaded, such directories are taken off Python's path for the rest of the process, so
that a module in them is not taken for one of the site's. This guards against mistakes. It is no
wall against a server that sends code to be run: see docs/threat-model.md.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gcfcp.errors import GCFCPError
from gcfcp.rounds.site import Site


def own_site(
    reference: str, settings: Mapping[str, Any], foreign: Sequence[str | Path] = ()
) -> Site:
    """The site that a function of the site's own makes; a GCFCPError if it makes none.

    reference: The absolute path of a Python file, a colon, and the name of a function in it.
    settings: The site's configuration, which the function gets.
    foreign: Directories that a server can write to. Nothing more is imported from them.

    Whatever the site's code raises, the error names only its type: its text may quote the data.
    """
    path, name = _parts(reference)
    theirs = [Path(directory).resolve() for directory in foreign]
    if _is_in(path, theirs):
        raise GCFCPError(
            f"site={reference!r:.200} lies in a directory that the server writes to: put the file "
            "where only this site can write"
        )
    sys.path[:] = [entry for entry in sys.path if not _is_in(Path(entry), theirs)]
    try:
        site = getattr(_module(path), name)(MappingProxyType(dict(settings)))
    except BaseException as error:  # A site's code may even call sys.exit("score 0.37").
        raise GCFCPError(
            f"site={reference!r:.200} raised {type(error).__name__}: call the function by hand at "
            "the site to see why"
        ) from None
    if not isinstance(site, Site):
        raise GCFCPError(
            f"site={reference!r:.200} returned {type(site).__name__}: it must return a "
            "gcfcp.rounds.Site"
        )
    if not site.ledger.directory.is_absolute():
        raise GCFCPError(
            f"site={reference!r:.200} has the ledger {str(site.ledger.directory)!r:.60}, which is "
            "not an absolute path: a site that is started in another directory would begin another "
            "ledger"
        )
    return site


def _parts(reference: str) -> tuple[Path, str]:
    """The file and the name of the function."""
    path, _, name = reference.rpartition(":")
    if not Path(path).is_absolute() or Path(path).suffix != ".py" or not name.isidentifier():
        raise GCFCPError(
            f"site={reference!r:.200} is not the whole path of a Python file, a colon and the name "
            'of a function, such as "/srv/gcfcp/my_site.py:site"'
        )
    if not Path(path).is_file():
        raise GCFCPError(f"site={reference!r:.200}: there is no such file")
    return Path(path), name


def _is_in(path: Path, directories: Sequence[Path]) -> bool:
    """Whether a file or directory lies in one of these directories."""
    return any(path.resolve().is_relative_to(directory) for directory in directories)


def _module(path: Path) -> Any:
    """The module in this file, which is loaded anew each time."""
    name = f"gcfcp_own_site_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pickles look their module up.
    spec.loader.exec_module(module)
    return module
