"""Writing files so that a reader never sees half of one, whatever ends this process."""

import ctypes
import hashlib
import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file (text as UTF-8) so that readers see the old one or the whole new one, also after a power cut.

    Raises OSError.
    """
    # Not tempfile's: those are for the owner alone, and caches and record files are shared.
    new = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with new.open("xb") as out:
            out.write(data.encode() if isinstance(data, str) else data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def exchange(one: Path, other: Path) -> bool:
    """Swaps two folders or files of one file system at once. False where the system can't; nothing has changed then."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    done: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


def remove_left_over(place: Path, prefix: str, least_age_s: float) -> None:
    """Removes folders called `prefix`, a process's number and "-..." whose process ended without tidying up.

    A process of another container has no number here: its folder must be old, too.
    """
    with suppress(OSError):
        for folder in place.iterdir():
            owner = folder.name.removeprefix(prefix).partition("-")[0]
            if not folder.name.startswith(prefix) or (owner.isdigit() and _alive(int(owner))):
                continue
            if folder.is_dir() and not folder.is_symlink() and _age_s(folder) > least_age_s:
                shutil.rmtree(folder, ignore_errors=True)


def _age_s(folder: Path) -> float:
    """Seconds since a file in the folder appeared or went; 0 when the folder is gone."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
