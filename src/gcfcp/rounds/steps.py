"""What a site keeps of a secure sum between two steps: one file for each step that it has made.

A secure sum has up to five steps (`gcfcp.secure`). At each of them a site gets a request, changes
its state and sends a reply. The file of a step is written before the reply leaves, and holds the
SHA-256 of the request, the reply, and the state after it:

    DIRECTORY/DATASET/sum-FINGERPRINT-STEP.step

Three things follow, also after a crash and with several processes at once, because a name is given
by a hard link, which fails if the name is taken:

- **A step is made once.** Whoever asks for it again with the same bytes gets the same reply. With
  other bytes, such as another division into survivors and dropped sites, it is refused.
- **Steps go forward.** When a step is on disk, the states of the steps before it are overwritten
  with nothing; the names stay, so that no earlier step can be made again from an old copy.
- **Secrets are forgotten.** After the last step no state is left. (What a disk keeps of overwritten
  bytes is not in our hands; the directory is readable by its owner only.)

The file is a container of `codec`, of kind b"L". Its header has `sum`, `step`, `request` and
`reply`, the length of the reply; its body is the reply followed by the state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gcfcp import codec, files
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.ledger import Asked, Ledger, usable

_KIND, _VERSION = b"L", 1


@dataclass(frozen=True)
class _Step:
    """A step that was made."""

    request: str  # The SHA-256 of the request.
    reply: bytes
    state: bytes  # Empty if a later step was made.


@dataclass(frozen=True)
class Steps:
    """The steps of a site in one secure sum.

    ledger: The ledger of the site.
    asked: What is summed, about which records.
    sum: The fingerprint of the sum.
    """

    ledger: Ledger
    asked: Asked
    sum: str

    def take(
        self, number: int, request: bytes, make: Callable[[bytes], tuple[bytes, bytes]]
    ) -> bytes:
        """The reply of a step: the one that was kept, or a new one, which is then kept.

        number: The step, from 0.
        make: It makes the state after the step, and the reply, from the state before it. It gets
        nothing at step 0.
        Raises a `Refusal` if the step was made for another request, or comes too early or late.
        """
        with usable():
            folder = self.ledger.prepare(self.asked)
            kept = self._read(folder, number)
        if kept is None:
            kept = self._made(folder, number, request, make)
        if kept is None or kept.request != hashlib.sha256(request).hexdigest():
            raise Refusal(
                Code.SUM_REFUSED,
                f"step {number} of this secure sum was made for another request, and each step is "
                "made once",
            )
        with usable():
            self._forget_before(folder, number)
        return kept.reply

    def _made(
        self,
        folder: Path,
        number: int,
        request: bytes,
        make: Callable[[bytes], tuple[bytes, bytes]],
    ) -> _Step | None:
        """The step, made here or meanwhile by another process; None if neither could be."""
        try:
            before = self._before(folder, number)
        except Refusal:
            with usable():
                meanwhile = self._read(folder, number)
            if meanwhile is None:
                raise
            return meanwhile
        state, reply = make(before)
        new = _Step(hashlib.sha256(request).hexdigest(), reply, state)
        with usable():
            made = self.ledger.create(self._path(folder, number), self._pack(number, new))
            return new if made else self._read(folder, number)

    def _before(self, folder: Path, number: int) -> bytes:
        """The state before a step; a `Refusal` if there is none, or a later step was made."""
        if number == 0:
            return b""
        with usable():
            made = [self._read(folder, n) for n in range(5)]
        last = max((n for n, step in enumerate(made) if step is not None), default=-1)
        step = made[last] if 0 <= last < number else None
        if step is None or not step.state:
            raise Refusal(
                Code.SUM_REFUSED,
                f"step {number} of this secure sum comes too early or too late: step {last} was "
                "the last",
            )
        return step.state

    def _forget_before(self, folder: Path, number: int) -> None:
        """Overwrite the states of earlier steps."""
        for earlier in range(number):
            step = self._read(folder, earlier)
            if step is not None and step.state:
                bare = _Step(step.request, step.reply, b"")
                files.write(
                    self._path(folder, earlier), self._pack(earlier, bare), sync=self.ledger.sync
                )

    # --- files

    def _path(self, folder: Path, number: int) -> Path:
        return folder / f"sum-{self.sum[:32]}-{number}.step"

    def _pack(self, number: int, step: _Step) -> bytes:
        header = {
            "sum": self.sum,
            "step": number,
            "request": step.request,
            "reply": len(step.reply),
        }
        return codec.pack(_KIND, _VERSION, header, step.reply + step.state)

    def _read(self, folder: Path, number: int) -> _Step | None:
        """A step that was made; None if it was not, and a GCFCPError if its file is damaged."""
        path = self._path(folder, number)
        if not path.exists():
            return None
        name = str(path)
        header, body = codec.unpack(codec.read(path), _KIND, _VERSION, name)
        with codec.reading(name, "step of a secure sum"):
            if (header["sum"], header["step"]) != (self.sum, number):
                raise ValueError("it belongs elsewhere")
            length = int(header["reply"])
            return _Step(str(header["request"]), bytes(body[:length]), bytes(body[length:]))
