"""Running nvcc: flags, cancellable processes, and reading what it prints."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from core.build.machine import default_jobs
from core.build.toolchain import Toolchain
from core.errors import Cancelled, ToolchainError

# NDEBUG: without it device asserts are real calls and ptxas serializes wgmma (C7510).
# fvisibility and no-gnu-unique: equal template names in two libraries of one process would otherwise merge, and
# launches of the second fail.
COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "--expt-relaxed-constexpr",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-fno-gnu-unique",
)
# Ends its process group when standard input does: however the process at its other end came to its end, nothing that
# nvcc started outlives it.
_WATCHED = 'exec 3<&0; { cat <&3 >/dev/null; kill -KILL 0; } & exec 3<&-; exec "$@" </dev/null'
_NICENESS = 10  # the process that measures and the window go first
_POLL_S = 0.1


@dataclass(frozen=True)
class Ran:
    """A finished process: exit status (negative: a signal) and stdout and stderr together."""

    status: int
    log: str


def run(command: Sequence[str | Path], cwd: Path, cancel: threading.Event | None = None) -> Ran:
    """Run a program in a process group of its own, without a shell; temporary files go to `cwd`.

    Raises:
        Cancelled: `cancel` was set; the whole group is dead by then.
        ToolchainError: the program can't be started.
    """
    environment = {**os.environ, "TMPDIR": str(cwd), "LC_ALL": "C"}
    with tempfile.TemporaryFile(dir=cwd) as log:
        try:
            if not os.access(command[0], os.X_OK) and shutil.which(str(command[0])) is None:
                raise FileNotFoundError("it is not there, or not executable")
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "nvcc", *map(str, command)], cwd=cwd, env=environment,
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"{command[0]} can't be started ({error})", "run `python3 main.py doctor`") from error
        try:
            _lower_priority(process.pid)
            while True:
                try:
                    status = process.wait(timeout=_POLL_S if cancel else None)
                    break
                except subprocess.TimeoutExpired:
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("the compilers were stopped") from None
        finally:
            _kill_group(process)
        log.seek(0)
        return Ran(status, log.read().decode(errors="replace"))


def _lower_priority(group: int) -> None:
    try:
        os.setpriority(os.PRIO_PGRP, group, _NICENESS)
    except ProcessLookupError:  # already over
        return


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the group outlives this call, whether nvcc ended by itself or not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def gencode(arch: str) -> tuple[str, str]:
    """Flags for one architecture without PTX, e.g. "90a"."""
    return "-gencode", f"arch=compute_{arch},code=sm_{arch}"


def base_command(toolchain: Toolchain) -> list[str | Path]:
    """nvcc with the host compiler, the common flags, header and library folders."""
    libraries = [f"-L{d}" for d in toolchain.library_dirs]
    return [
        toolchain.nvcc, "-ccbin", toolchain.host_compiler, *COMMON_FLAGS, *toolchain.include_flags, *libraries,
    ]  # fmt: skip


def compile_library(
    sources: Sequence[Path | str],
    out: Path,
    arch: str,
    toolchain: Toolchain,
    flags: Sequence[str] = (),
    jobs: int | None = None,
    cancel: threading.Event | None = None,
) -> None:
    """Compile files (.cu, .cpp) side by side and link them into the shared library `out`, replaced atomically.

    Args:
        sources: paths of the files; their base names may repeat.
        arch: GPU architecture as nvcc names it, e.g. "80" or "90a".
        flags: further flags for compiling (and linking, where they begin with -l, -L or -Xlinker).

    Raises:
        ToolchainError: the first error line of the first file that does not compile or of the link.
        Cancelled: `cancel` was set.
    """
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    link_flags = [f for f in flags if f.startswith(("-l", "-L", "-Xlinker"))]
    compile_flags = [f for f in flags if f not in link_flags]
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as name:
        folder = Path(name)

        def compile_one(index: int, source: Path) -> Path:
            work = folder / str(index)
            work.mkdir()
            result = work / "unit.o"
            ran = run(
                [*base_command(toolchain), *gencode(arch), *compile_flags, "-c", source, "-o", result], work, cancel
            )
            if ran.status != 0:
                raise ToolchainError(f"{source.name} does not compile: {first_error(ran.log, ran.status)}")
            return result

        with ThreadPoolExecutor(jobs or default_jobs()) as pool:
            units = list(pool.map(compile_one, range(len(sources)), [Path(s).resolve() for s in sources]))
        library = folder / out.name
        ran = run(
            [*base_command(toolchain), *gencode(arch), "-shared", *units, *link_flags, "-o", library], folder, cancel
        )
        if ran.status != 0:
            raise ToolchainError(f"{out.name} does not link: {first_error(ran.log, ran.status)}")
        os.replace(library, out)


# In the order in which they run: nvcc itself, the front end (cudafe++, cicc), ptxas, the host compiler, the linker.
_ERROR_LINE = re.compile(
    r"^nvcc (fatal|error)\s*:|\berror( #\d+(-\w+)?)?\s*:|\bfatal error\b|^ptxas (fatal|error)\b|\bcatastrophic error\b"
    r"|undefined reference|^(cc1plus|collect2|/\S*ld|ld): |No space left on device|out of memory",
    re.IGNORECASE,
)
_FOLDER = re.compile(r"(?<![\w.)\]])/(?:[^\s/:()\"']+/)+")
_DRIVER_LINE = re.compile(r"^nvcc error\s*:|^collect2: error|^\d+ errors? detected", re.IGNORECASE)


def without_folders(log: str, include_dirs: Iterable[Path]) -> str:
    """A compiler log for others to read: headers by their include path, this machine's folders left out."""
    for folder in sorted(map(str, include_dirs), key=len, reverse=True):
        log = log.replace(f"{folder}/", "")
    return _FOLDER.sub("", log)


def first_error(log: str, status: int = 1) -> str:
    """The line of a compiler log that says what went wrong; the cause before the driver's summary of it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    causes = [line for line in errors if not _DRIVER_LINE.search(line)]
    if causes or errors:
        return (causes or errors)[0]
    if status < 0:
        return f"the compiler was killed by {signal.Signals(-status).name} (is there enough memory?)"
    return lines[-1] if lines else f"nvcc ended with status {status} and said nothing"


@dataclass(frozen=True)
class Usage:
    """What ptxas says of one entry function: registers a thread, spilled bytes a thread, static shared memory."""

    function: str
    registers: int
    spill_bytes: int
    smem_bytes: int


def parse_ptxas(log: str) -> list[Usage]:
    """Usage of every entry function in the log of a compile with -Xptxas -v, in order."""
    found: list[Usage] = []
    function, spills = "", 0
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '(\S+)'", line):
            function, spills = entry[1], 0
        elif stores := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(stores[1]) + int(stores[2])
        elif function and (used := re.search(r"Used (\d+) registers", line)):
            smem = re.search(r"(\d+) bytes smem", line)
            found.append(Usage(function, int(used[1]), spills, int(smem[1]) if smem else 0))
            function = ""
    return found
