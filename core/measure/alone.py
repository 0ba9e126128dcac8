"""One process at a time works on a GPU: two tuners beside each other would be in each other's figures."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import DeviceError

_STEP_S = 0.05
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
        told = 0.0
        while not _taken(file):
            if time.monotonic() - told >= _TELL_S:
                waiting()
                told = time.monotonic()
            time.sleep(_STEP_S)
        yield
    finally:
        os.close(file)


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


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
