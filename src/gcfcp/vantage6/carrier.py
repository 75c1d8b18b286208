"""vantage6 as a carrier: a task for each letter, and the result of its run.

The server of vantage6 knows every organisation by a number, and takes the result of a run only from
the node of the organisation that the run is for. So this number is the key of a node. A task for a
node that is offline waits until the node is back.

A look costs requests to the server, so it is made every second at most. If the server cannot be
reached, nothing is known, and the next look may find it again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from gcfcp.carriers import Letter, Node, Reply
from gcfcp.rounds import Code

METHOD = "answer"  # The name of the partial function.
# What vantage6 says of a run (vantage6.common.task_status). Of the others nothing is known yet.
_COMPLETED = "completed"
_LOST = ("unknown error", "start failed")  # Asking again may help.
_FAILED = ("failed", "non-existing Docker image", "crashed", "killed by user", "not allowed")


class Vantage6Carrier:
    """The organisations of a collaboration.

    client: The client that vantage6 gives a central function.
    organizations: The numbers of the organisations that are asked, or None for all.
    """

    command = "a task of vantage6 (gcfcp.vantage6)"
    pause = 1.0

    def __init__(self, client: Any, organizations: Sequence[int] | None = None) -> None:
        self._client = client
        self._wanted = None if organizations is None else {str(number) for number in organizations}
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        """The organisations; vantage6 keeps a task for those that are offline."""
        if not self._nodes:
            numbers = [str(found["id"]) for found in _try(self._client.organization.list) or ()]
            wanted = [n for n in numbers if self._wanted is None or n in self._wanted]
            self._nodes = [Node(number, number) for number in wanted]
        return self._nodes

    def send(self, letters: Sequence[Letter]) -> list[str | None]:
        """Create a task for each letter."""
        return [self._send(letter) for letter in letters]

    def _send(self, letter: Letter) -> str | None:
        task = _try(
            lambda: self._client.task.create(
                input_={
                    "method": METHOD,
                    "kwargs": {"request": base64.b64encode(letter.data).decode()},
                },
                organizations=[int(letter.node.id)],
                name=f"gcfcp {letter.action}",
                description="a question to one site; its own policy decides whether it answers",
            )
        )
        # If the server refuses the task, what comes back has no number.
        number = task.get("id") if isinstance(task, dict) else None
        return None if number is None else str(number)

    def receive(self, tickets: Sequence[str]) -> list[Reply]:
        """The results that have come to these tasks."""
        found = (self._reply(ticket) for ticket in tickets)
        return [reply for reply in found if reply is not None]

    def _reply(self, ticket: str) -> Reply | None:
        """What has become of a task; None if that is not known yet."""
        for run in _try(lambda: self._client.run.from_task(int(ticket))) or ():
            status, sender = run["status"], str(run["organization"]["id"])
            if status == _COMPLETED:
                for result in _try(lambda: self._client.result.from_task(int(ticket))) or ():
                    return Reply.of_bytes(ticket, sender, _bytes(result))
            elif status in _LOST:
                return Reply(ticket, None, code=Code.NODE_LOST)
            elif status in _FAILED:
                return Reply(ticket, None, code=Code.APP_FAILED)
        return None


def _bytes(result: Any) -> bytes:
    """The bytes in the result of a run, which may come from anyone; none if there are none."""
    try:
        return base64.b64decode(result["reply"], validate=True)
    except (ValueError, TypeError, KeyError):
        return b""


def _try(call: Callable[[], Any]) -> Any:
    """What a call to the server returns, or None if it fails for whatever reason."""
    try:
        return call()
    except Exception:
        return None
