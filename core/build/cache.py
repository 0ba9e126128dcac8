"""The content-addressed cache of compiled kernels, safe under several processes.

    kernels/index/<k>/<key>.json   one kernel: which library holds it, or the compiler's error
    kernels/lib/<sha256>.so        libraries, named by their content; several kernels may share one
    kernels/building/<pid>-*/      where compilers write; what dead processes left there is removed after a while

Files appear by rename only, and a library's name is its checksum, so a reader sees a whole entry or none, and two
processes that build the same kernel at once both succeed. The libraries take LIMIT_BYTES at most: above it those used
least recently go, when a process opens the cache that no other has open.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.build.nvcc import COMMON_FLAGS
from core.build.toolchain import Toolchain
from core.build.trim import Used, mark_used
from core.errors import ToolchainError
from core.files import digest, remove_left_over, write_atomically
from core.paths import INCLUDE

LIMIT_BYTES = 8 << 30
_LEFT_OVER_S = 3600.0  # a process of another container has no pid here: its folder must be old, too
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """What the cache knows of a kernel: `library` (a file name) when it compiled, else `error` and `log`."""

    kernel: str
    library: str = ""
    seconds: float = 0.0
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
    error: str = ""
    log: str = ""


def kernel_key(source: str, flags: Sequence[str], arch: str, toolchain: Toolchain) -> str:
    """The identity of a compilation: source, our own headers it includes, flags, architecture, and all versions."""
    parts = [
        source, own_headers(source), *COMMON_FLAGS, *flags, arch,
        toolchain.nvcc_version, str(toolchain.host_compiler.name), toolchain.host_version, toolchain.cutlass_version,
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def own_headers(source: str, include: Path = INCLUDE) -> str:
    """Digest of every header of ours that the source includes, directly or not."""
    digest, seen = hashlib.sha256(), set()
    waiting = _INCLUDE.findall(source)
    folders = str(include), str(include / "bolt")
    for name in waiting:
        for path in (os.path.join(folder, name) for folder in folders):
            if path not in seen and os.path.isfile(path):
                seen.add(path)
                text, included = _header(path, os.stat(path).st_mtime_ns)
                digest.update(f"{name}\0{text}\0".encode())
                waiting += included
    return digest.hexdigest()


@cache
def _header(path: str, stamp: int) -> tuple[str, list[str]]:
    """Contents of a header and what it includes; `stamp` makes a changed one be read again."""
    text = Path(path).read_text(encoding="utf-8")
    return text, _INCLUDE.findall(text)


def cannot_write(error: OSError, place: Path) -> ToolchainError:
    """The user's line for a cache that can't be written: full, read-only or not permitted."""
    return ToolchainError(
        f"the kernel cache {place} can't be written ({error.strerror or error})",
        "free some space there, or set BOLT_CACHE to another folder",
    )


class KernelCache:
    """See the module. Raises ToolchainError when the folder can't be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kernels"
        self._libraries = self.folder / "lib"
        self._verified: dict[Path, tuple[int, int]] = {}
        try:
            for part in ("index", "lib", "building"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(error, self.folder) from error
        self._used = Used(self._libraries, "*.so", LIMIT_BYTES)
        self._forget_removed({path.name for path in self._used.removed})
        remove_left_over(self.folder / "building", "", _LEFT_OVER_S)

    def find(self, key: str, verify: bool = True) -> Entry | None:
        """The entry, its library's checksum proven (once in a process). A damaged entry is removed and not found."""
        path = self._index(key)
        try:
            entry = Entry(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            path.unlink(missing_ok=True)
            return None
        if entry.library and verify and not self._whole(self.library(entry)):
            path.unlink(missing_ok=True)
            return None
        return entry

    def library(self, entry: Entry) -> Path:
        return self._libraries / entry.library

    def store_library(self, built: Path) -> str:
        """Move a library in; returns its name in the cache. Raises ToolchainError."""
        try:
            name = f"{digest(built)}.so"
            target = self._libraries / name
            os.replace(built, target)
            stat = target.stat()
            self._verified[target] = (stat.st_mtime_ns, stat.st_size)
            return name
        except OSError as error:
            raise cannot_write(error, self.folder) from error

    def take_in(self, name: str, data: bytes | None) -> Path | None:
        """The library of that name, made of `data` when it is not here; None when neither is.

        Raises ToolchainError when it can't be written, or `data` is not what the name, its checksum, says.
        """
        path = self._libraries / name
        if self._whole(path):
            return path
        if data is None:
            return None
        with self.work_folder() as folder:
            received = Path(folder) / "received.so"
            try:
                received.write_bytes(data)
            except OSError as error:
                raise cannot_write(error, self.folder) from error
            stored = self.store_library(received)
        if stored != name:
            raise ToolchainError(f"a library arrived as {stored}, not as {name}", "run the same command again")
        return path

    def store(self, key: str, entry: Entry) -> None:
        """Write an entry. Raises ToolchainError."""
        path = self._index(key)
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, json.dumps(asdict(entry)))
        except OSError as error:
            raise cannot_write(error, self.folder) from error

    def forget(self, key: str) -> None:
        """Remove an entry, so that the kernel is compiled again. Its library stays: others may share it."""
        self._index(key).unlink(missing_ok=True)

    def work_folder(self) -> "tempfile.TemporaryDirectory[str]":
        """A folder of this process for compilers to write in. Raises ToolchainError."""
        try:
            return tempfile.TemporaryDirectory(
                dir=self.folder / "building", prefix=f"{os.getpid()}-", ignore_cleanup_errors=True
            )
        except OSError as error:
            raise cannot_write(error, self.folder) from error

    def _index(self, key: str) -> Path:
        return self.folder / "index" / key[:2] / f"{key}.json"

    def _whole(self, path: Path) -> bool:
        try:
            stat = path.stat()
            if self._verified.get(path) == (stat.st_mtime_ns, stat.st_size):
                return True
            if digest(path) != path.stem:
                path.unlink(missing_ok=True)
                return False
        except OSError:  # gone or unreadable: the kernel is compiled again
            return False
        self._verified[path] = (stat.st_mtime_ns, stat.st_size)
        mark_used(path)
        return True

    def _forget_removed(self, libraries: set[str]) -> None:
        if not libraries:
            return
        for path in (self.folder / "index").glob("*/*.json"):
            with suppress(OSError, ValueError):
                if json.loads(path.read_text(encoding="utf-8")).get("library") in libraries:
                    path.unlink()


def usage_of(entry: Entry) -> dict[str, Any]:
    """The ptxas figures of an entry, by field name of core.build.artifact.BuiltKernel."""
    return {n: getattr(entry, n) for n in ("registers", "spill_bytes", "smem_bytes")}
