"""Which exported libraries were made here. A library is native code: loading one is running it, with all one's rights.

Each export leaves the checksum of its manifest, which holds the checksums of all its files, in the user's cache.
"""

from contextlib import suppress
from pathlib import Path

from core.errors import ExportError
from core.export.manifest import NAME
from core.files import digest, write_atomically
from core.paths import cache_dir


def _mark(folder: Path) -> Path:
    return cache_dir() / "exports" / digest(folder / NAME)


def remember(folder: Path) -> None:
    """Notes that the export was made here. Where the cache can't be written it counts as one from elsewhere."""
    with suppress(OSError):
        mark = _mark(folder)
        mark.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(mark, "")


def made_here(folder: Path) -> bool:
    """Whether this user exported exactly what the folder's manifest describes. Raises ExportError without one."""
    try:
        return _mark(folder).is_file()
    except OSError as error:
        raise ExportError(f"{folder / NAME} can't be read ({error.strerror or error})") from error


def require_trust(folder: Path, trusted: bool) -> None:
    """Raises ExportError for a library from elsewhere that the user did not say yes to."""
    if not trusted and not made_here(folder):
        raise ExportError(
            f"the library in {folder} was not exported by you on this machine, and to load it is to run its code",
            "if you trust where it comes from, say so with --trust",
        )
