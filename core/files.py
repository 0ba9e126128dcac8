"""Writing files so that a reader never sees half of one, whatever ends this process."""

import os
import uuid
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file (text as UTF-8) so that readers see the old one or the whole new one. Raises OSError."""
    # Not tempfile's: those are for the owner alone, and caches and record files are shared.
    new = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with new.open("xb") as out:
            out.write(data.encode() if isinstance(data, str) else data)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
