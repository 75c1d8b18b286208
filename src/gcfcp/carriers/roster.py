"""The roster: a file that says which node may speak for which client.

    [clients]
    hospital-a = "hospital-a.pub"           # Over Flower: a public key, or its fingerprint.
    hospital-b = "SHA256:0Jx..."

What stands on the right is a matter of the carrier, which knows its nodes by it. Without a roster,
a node can claim any name, which is good enough for a simulation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

from gcfcp import checks, codec
from gcfcp.errors import GCFCPError


def read_roster(
    path: str | PathLike[str], key_of: Callable[[Path, str], str] = lambda _, text: text
) -> dict[str, str]:
    """Read a roster file; the result maps each client to the key of its node.

    key_of: It makes the key of a node out of the roster's path and the text beside a client's name,
    or raises a GCFCPError. By default the text is the key.
    """
    file = Path(path)
    try:
        table = tomllib.loads(codec.read(file).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GCFCPError(f"roster {file} is not TOML: {error}") from None
    clients = table.get("clients")
    if not isinstance(clients, Mapping) or not clients or len(table) > 1:
        raise GCFCPError(f'roster {file} needs one table, [clients], with lines NAME = "KEY.pub"')
    roster: dict[str, str] = {}
    for name, text in clients.items():
        checks.name("client", name)
        if not isinstance(text, str):
            raise GCFCPError(f"roster {file}: the key of {name!r} is not a string")
        try:
            roster[name] = key_of(file, text)
        except GCFCPError as error:
            raise GCFCPError(f"roster {file}: {name!r}: {error}") from None
    if len(set(roster.values())) < len(roster):
        raise GCFCPError(f"roster {file} gives one key to two clients: each needs a key of its own")
    return roster
