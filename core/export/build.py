"""Compiles the sources of an exported folder side by side and links the library; objects are cached by content."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path

from core.build.cache import cannot_write, kernel_key
from core.build.machine import default_jobs
from core.build.nvcc import base_command, first_error, gencode, run
from core.build.toolchain import Toolchain
from core.build.trim import in_use, mark_used
from core.errors import ToolchainError
from core.export.emit import Source
from core.files import digest
from core.paths import cache_dir
from templates.gpu import GpuSpec
from templates.operators import FOLDER, HEADERS

OBJECTS_LIMIT_BYTES = 4 << 30  # of compiled sources that are kept, see core.build.trim
Progress = Callable[[int, int, str], None]  # done, of how many, the file that was finished


def build_library(
    folder: Path,
    name: str,
    sources: Sequence[Source],
    gpu: GpuSpec,
    toolchain: Toolchain,
    jobs: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> None:
    """Compile `sources` of `folder` and link them to `folder/lib<name>.so`.

    Raises:
        ToolchainError: a file does not compile or the library does not link; the compiler's first error line.
        Cancelled: `cancel` was set.
    """
    stop = cancel or threading.Event()
    objects = cache_dir() / "export-objects"
    try:
        objects.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, objects) from error
    with (
        in_use(objects, "*.o", OBJECTS_LIMIT_BYTES),
        tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as work_name,
    ):
        work = Path(work_name)

        def compile_one(number: int, source: Source) -> Path:
            return _object(folder, source, gpu, toolchain, objects, work / str(number), stop)

        with ThreadPoolExecutor(jobs or default_jobs()) as pool:
            futures = {pool.submit(compile_one, i, s): s for i, s in enumerate(sources)}
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    if progress:
                        progress(done, len(futures), futures[future].path)
            except BaseException:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        _link(folder, name, [f.result() for f in futures], gpu, toolchain, work, stop)


def _object(
    folder: Path, source: Source, gpu: GpuSpec, toolchain: Toolchain, objects: Path, work: Path, stop: threading.Event
) -> Path:
    """The object file of one source, from the cache or compiled into it."""
    text = (folder / source.path).read_text(encoding="utf-8")
    # What a plan or the dispatch between plans includes is made for this very library.
    of_plan = Path(source.path).name.startswith(("plan", "buckets"))
    own = [(folder / "include").glob("*.h"), (folder / "src").glob("bolt_*.h")] if of_plan else []
    headers = sha256(b"".join((FOLDER / h).read_bytes() for h in HEADERS)).hexdigest()
    interface = "".join(p.read_text(encoding="utf-8") for paths in own for p in sorted(paths))
    key = kernel_key(text + interface, (*source.flags, headers), gpu.nvcc_arch, toolchain)
    kept = _kept(objects, key)
    if kept is not None:
        return kept
    work.mkdir()
    result = work / "unit.o"
    includes = [f"-I{folder / 'src'}", f"-I{folder / 'include'}"]
    command = [*base_command(toolchain), *includes, *source.flags, "-c", folder / source.path, "-o", result]
    ran = run(command, work, stop)
    if ran.status != 0:
        raise ToolchainError(f"{source.path} does not compile: {first_error(ran.log, ran.status)}")
    try:
        partial = objects / f".{key}.{os.getpid()}.{threading.get_ident()}"
        shutil.copy(result, partial)
        kept = objects / f"{key}-{digest(result)}.o"
        os.replace(partial, kept)
    except OSError as error:
        raise cannot_write(error, objects) from error
    return kept


def _kept(objects: Path, key: str) -> Path | None:
    """The object compiled earlier, its checksum proven; a damaged one is removed."""
    for path in objects.glob(f"{key}-*.o"):
        if digest(path) == path.stem.rpartition("-")[2]:
            mark_used(path)
            return path
        path.unlink(missing_ok=True)
    return None


def _link(
    folder: Path, name: str, units: Sequence[Path], gpu: GpuSpec, toolchain: Toolchain, work: Path,
    stop: threading.Event,
) -> None:  # fmt: skip
    library = folder / f"lib{name}.so"
    script = ["-Xlinker", f"--version-script={folder / 'src' / 'exports.map'}", "-Xlinker", "-z,defs"]
    command = [
        *base_command(toolchain), *gencode(gpu.nvcc_arch), "-shared", *units, *script, "-ldl", "-lpthread", "-lrt",
        "-o", library,
    ]  # fmt: skip
    ran = run(command, work, stop)
    if ran.status != 0:
        raise ToolchainError(f"{library.name} does not link: {first_error(ran.log, ran.status)}")
