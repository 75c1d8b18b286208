"""A Flower grid within this process: the real ServerApp and ClientApps, without a network.

The handler of a node is a callable (message, context) -> Message, such as a ClientApp; a node whose
handler is None hangs. Each node has a node configuration and may have a public key. Replies come in
a random order if `shuffle` is a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

try:  # From 1.38 on, a Message needs the task that makes it, and nothing public can set it.
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
except ImportError:
    pass

Handler = Callable[[Message, Context], Message]


@dataclass
class InProcessNode:
    """A node, and how often it was asked."""

    handler: Handler | None
    config: dict[str, Any] = field(default_factory=dict)
    public_key: bytes = b""
    asked: int = 0
    started: str = ""


class InProcessGrid(Grid):
    """A grid whose nodes answer when their replies are pulled."""

    def __init__(self, nodes: dict[int, InProcessNode], shuffle: int | None = None) -> None:
        self.nodes = nodes
        self.rng = None if shuffle is None else np.random.default_rng(shuffle)
        self.sent: list[Message] = []
        self._waiting: dict[str, Message] = {}

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=k, public_key=n.public_key, last_activated_at=n.started)
            for k, n in self.nodes.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            self._waiting[ids[-1]] = message
            self.sent.append(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        if self.rng is not None:
            self.rng.shuffle(ids)
        replies = []
        for message_id in ids:
            message = self._waiting.get(message_id)
            if message is None:
                continue  # Its reply was pulled before.
            node = self.nodes[message.metadata.dst_node_id]
            if node.handler is None:
                continue
            node.asked += 1
            context = Context(1, message.metadata.dst_node_id, node.config, RecordDict(), {})
            replies.append(node.handler(message, context))
            del self._waiting[message_id]
        return replies

    def send_and_receive(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError
