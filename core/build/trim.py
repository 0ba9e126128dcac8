"""Folders of made files that stay below a size: what was used least recently goes, and never under a user's hands.

Every process that uses such a folder holds a shared lock on it; a process that comes while no other is there trims it.
"""

import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".in-use"
# Trimmed to this share of the limit, so that not every next process has to trim again.
_LOW_WATER = 0.8


def mark_used(path: Path) -> None:
    """Notes that the file was used now. Its time of writing, by which it is known to be unchanged, stays."""
    with suppress(OSError):  # read-only, or gone: its user finds out by itself
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


class Used:
    """A folder in use until `close`, or until nobody holds this object or its process any more."""

    def __init__(self, folder: Path, pattern: str, limit_bytes: int) -> None:
        self.removed: list[Path] = []
        self.close: Callable[[], object] = lambda: None
        with suppress(OSError):  # a read-only folder or a share without locks is used as it is, and never trimmed
            file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self.close = weakref.finalize(self, os.close, file)
            if _alone(file):
                self.removed = trim(folder, pattern, limit_bytes)
            fcntl.flock(file, fcntl.LOCK_SH)


def _alone(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def in_use(folder: Path, pattern: str, limit_bytes: int) -> Iterator[None]:
    """Holds a folder of made files; trims it first when nobody else does."""
    used = Used(folder, pattern, limit_bytes)
    try:
        yield
    finally:
        used.close()


def trim(folder: Path, pattern: str, limit_bytes: int) -> list[Path]:
    """Removes the files used least recently when all together are above the limit; returns them."""
    found = []
    for path in folder.glob(pattern):
        with suppress(OSError):
            stat = path.stat()
            found.append((stat.st_atime_ns, stat.st_size, path))
    total = sum(size for _, size, _ in found)
    if total <= limit_bytes:
        return []
    removed = []
    for _, size, path in sorted(found):
        if total <= _LOW_WATER * limit_bytes:
            break
        with suppress(OSError):
            path.unlink()
            removed.append(path)
            total -= size
    return removed
