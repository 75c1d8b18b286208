"""FLARE as a carrier: a task for each letter, and the result of it.

FLARE knows its sites by the names in their certificates and takes a result only from the site that
it gave the task to. So the name of a site is its key. A site whose job process is gone for longer
than FLARE's grace period is lost: its task is withdrawn, and it is asked again if it comes back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from gcfcp.carriers import Letter, Node, Reply
from gcfcp.errors import GCFCPError
from gcfcp.rounds import RECORD, Code

GRACE = 5  # The seconds that FLARE keeps a task beyond the deadline, which is not FLARE's matter.


class FlareCarrier:
    """The sites of one job.

    controller: The controller of the job, which hands tasks out.
    fl_ctx: The context of its control flow.
    abort: The signal by which FLARE ends the job.
    """

    command = "a job of NVIDIA FLARE (gcfcp.nvflare)"
    pause = 0.0

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort: Signal) -> None:
        self._controller, self._context, self._abort = controller, fl_ctx, abort
        self._tasks: dict[str, Task] = {}  # The tasks that wait for a result, by ticket.
        self._replies: dict[str, Reply] = {}  # The replies that nobody has asked for yet.
        self._lock = threading.Lock()  # Results come in on FLARE's threads.

    def nodes(self) -> list[Node]:
        """The sites of the job that are connected."""
        self._refuse_ended()
        clients = self._context.get_engine().get_clients()
        return [Node(c.name, c.name) for c in clients if not self._is_lost(c.name)]

    def send(self, letters: Sequence[Letter]) -> list[str | None]:
        """Offer each site its task, which the site fetches."""
        return [self._send(letter) for letter in letters]

    def _send(self, letter: Letter) -> str:
        data = Shareable()
        data[RECORD] = letter.data
        task = Task(
            name=letter.action,
            data=data,
            timeout=math.ceil(max(letter.seconds, 0)) + GRACE,
            result_received_cb=self._received,
        )
        ticket = str(task.msg_root_id)
        with self._lock:
            self._tasks[ticket] = task
        self._controller.send(task=task, fl_ctx=self._context, targets=[letter.node.id])
        return ticket

    def receive(self, tickets: Sequence[str]) -> list[Reply]:
        """The replies that have come to these tickets."""
        self._refuse_ended()
        with self._lock:
            found = [self._replies.pop(t) for t in tickets if t in self._replies]
            lost = [
                (ticket, self._tasks.pop(ticket))
                for ticket in tickets
                if ticket in self._tasks and self._is_lost(self._tasks[ticket].targets[0])
            ]
        for ticket, task in lost:
            self._controller.cancel_task(task, fl_ctx=self._context)
            found.append(Reply(ticket, None, code=Code.NODE_LOST))
        return found

    def _received(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Keep the result of a task until it is asked for. FLARE calls this on its own threads."""
        ticket, name = str(client_task.task.msg_root_id), client_task.client.name
        result, client_task.result = client_task.result, None
        with self._lock:
            if self._tasks.pop(ticket, None) is None:
                return
            if result.get_return_code() != ReturnCode.OK:
                # The site has no such executor, or could not run it. Headers are not read any
                # further, because they may quote an exception.
                self._replies[ticket] = Reply(ticket, name, code=Code.APP_FAILED)
            else:
                self._replies[ticket] = Reply.of_bytes(ticket, name, result.get(RECORD))

    def _is_lost(self, name: str) -> bool:
        return bool(self._controller.get_client_disconnect_time(name))

    def _refuse_ended(self) -> None:
        """Raise a GCFCPError if FLARE has ended the job."""
        if self._abort.triggered:
            raise GCFCPError(
                "FLARE has ended the job, because somebody has aborted it or fewer than "
                "min_clients sites are left: run it again to ask only those that are missing"
            )
