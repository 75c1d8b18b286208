"""Files on disk: read whole, written whole or not at all, and nobody else's file is lost.

A file is written under another name, `.gcfcp-MACHINE-RANDOM.part` in the same directory, and gets
its own name when it is complete. So a crash leaves the old file, the new one or none, and at most
one such part. The writer holds a lock on its part as long as it lives, and `sweep` removes the
parts of this machine on which nobody holds a lock.

A new file has the permissions that the umask gives it. A file that is overwritten keeps its mode
and, where the system allows it, its owner and group; access control lists are not kept.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path

from gcfcp.errors import GCFCPError

try:
    import fcntl
except ImportError:  # Windows has no such locks. Parts are then never swept.
    fcntl = None  # type: ignore[assignment]

# These errors say that a file system has no hard links.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_PART = re.compile(r"\.gcfcp-([0-9a-f]{8})-[0-9a-f]{16}\.part")


def read(path: str | PathLike[str]) -> bytes:
    """The bytes of a file. If it cannot be read, a GCFCPError says why in one line."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise GCFCPError(f"cannot read {fspath(path)!s:.200}: {why(error)}") from None


def write(
    path: str | PathLike[str], data: bytes, *, sync: bool = True, overwrite: bool = True
) -> None:
    """Write a file whole or not at all: a crash leaves the old file, or none, never half of one.

    sync: Whether to wait until the bytes have reached the disk. With False the system writes them
    at some later time, and after a power failure the file may be empty. Use it only for files that
    are checked when they are read.
    overwrite: Whether a file that has this name may be replaced.
    """
    with creating(path, sync=sync, overwrite=overwrite) as part, open(part, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def creating(
    path: str | PathLike[str], *, sync: bool = True, overwrite: bool = True
) -> Iterator[Path]:
    """A path to write to. What was written there becomes the file, if no exception is raised.

    Without `overwrite` the file must not exist in the end either, even if another process made it
    in the meantime: of several, one wins, and the others raise a GCFCPError and lose nothing.
    Every error of the operating system becomes a GCFCPError of one line.
    """
    target = Path(path)
    try:
        if "\0" in fspath(target):
            raise ValueError("embedded null byte")
        part, lock = _new_part(target, hidden=overwrite and os.path.lexists(target))
    except (OSError, ValueError) as error:
        raise _cannot_write(target, error) from None
    try:
        yield part
        if sync:
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
        _place(part, target, overwrite)
    except FileExistsError:
        raise exists(target) from None
    except OSError as error:
        raise _cannot_write(target, error) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
        if lock is not None:
            os.close(lock)


def _cannot_write(path: Path, error: OSError | ValueError) -> GCFCPError:
    """The error for a file that cannot be written."""
    return GCFCPError(f"cannot write {fspath(path)!s:.200}: {why(error)}")


class AlreadyThereError(GCFCPError):
    """A file that must not be overwritten has this name."""


def exists(path: str | PathLike[str]) -> AlreadyThereError:
    """The error for a file that must not be overwritten."""
    return AlreadyThereError(
        f"{fspath(path)} exists: give another name, or --force to overwrite it"
    )


def sweep(directory: str | PathLike[str]) -> int:
    """Remove what killed processes of this machine left in a directory, and say how many files.

    A part is removed only if its name is one that `creating` makes, if it was made on this machine,
    and if no living process holds its lock.
    """
    if fcntl is None:
        return 0
    removed = 0
    with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            found = _PART.fullmatch(entry.name)
            if found and found.group(1) == _machine() and entry.is_file(follow_symlinks=False):
                removed += _remove_unlocked(entry.path)
    return removed


def _remove_unlocked(path: str) -> bool:
    """Remove a file if no process holds a lock on it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
            return True
        finally:
            os.close(handle)
    return False


@functools.cache
def _machine() -> str:
    """Eight digits for this machine, so that no lock of another one is misjudged."""
    import platform  # It is not needed for `import gcfcp`, which should be quick.

    known = platform.node().encode()
    with contextlib.suppress(OSError):
        known += Path("/etc/machine-id").read_bytes()
    return hashlib.sha256(known).hexdigest()[:8]


def _new_part(target: Path, hidden: bool) -> tuple[Path, int | None]:
    """A new file beside the target, and a handle that holds a lock on it; None without locks.

    hidden: Whether only the owner may read it until it is complete.
    """
    while True:
        part = target.parent / f".gcfcp-{_machine()}-{secrets.token_hex(8)}.part"
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600 if hidden else 0o666)
        if fcntl is None:
            os.close(handle)
            return part, None
        with contextlib.suppress(OSError):  # Some file systems have no locks.
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Another process may have swept the file between its creation and the lock.
        if os.path.lexists(part):
            return part, handle
        os.close(handle)


def _place(part: Path, target: Path, overwrite: bool) -> None:
    """Give a complete file its name; FileExistsError if it must not replace another one."""
    if overwrite:
        with contextlib.suppress(FileNotFoundError):
            _keep_permissions(part, os.stat(target))
        os.replace(part, target)
    elif os.name == "nt":
        os.rename(part, target)  # On Windows this fails if the target exists.
    else:
        try:
            os.link(part, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # An empty file reserves the name. A crash before the next line would leave it empty.
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            os.replace(part, target)


def _keep_permissions(part: Path, old: os.stat_result) -> None:
    """Give the new file the owner, the group and the mode of the one that it replaces."""
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file; give - for standard output")
    mode = stat.S_IMODE(old.st_mode)
    new = os.stat(part)
    if hasattr(os, "chown") and new.st_gid != old.st_gid:
        try:
            os.chown(part, -1, old.st_gid)
        except OSError:  # Another group must not get the rights that the old one had.
            mode &= ~0o070 | (mode & 0o007) << 3
    if hasattr(os, "chown") and new.st_uid != old.st_uid:
        with contextlib.suppress(OSError):
            os.chown(part, old.st_uid, -1)
    os.chmod(part, mode)


def why(error: OSError | ValueError) -> str:
    """The reason for an error of the operating system, without the path."""
    return str(getattr(error, "strerror", None) or error)
