"""One process at a time works on a GPU: two tuners beside each other would be in each other's figures."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import DeviceError

_TELL_S = 1.0


def lock_path(pci_bus: str) -> Path:
    """The GPU's lock file, the same for every user of this machine who has the same temporary folder."""
    return Path(tempfile.gettempdir()) / f"bolt-gpu-{pci_bus.replace(':', '-')}.lock"


@contextmanager
def alone(pci_bus: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the GPU's lock, which is free again however this process ends.

    `waiting` is called once a second while another process holds it. Raises DeviceError when there can be no lock.
    """
    file = _opened(lock_path(pci_bus))
    try:
        _take(file, waiting)
        yield
    finally:
        os.close(file)


def _take(file: int, waiting: Callable[[], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        waiting()
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_TELL_S):
            waiting()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        # Asleep until the lock is free: who only looks now and then would never find it so beside a busy process.
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        over.set()
        teller.join()


def _opened(path: Path) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:  # another user's, and enough to lock
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceError(
            f"the GPU's lock {path} can't be opened ({error.strerror or error})", "set TMPDIR to a writable folder"
        ) from error
