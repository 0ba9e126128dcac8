"""Compiles kernels side by side: several to a file, cached, each bad one costing only itself."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from core.build.artifact import BuiltKernel
from core.build.batches import Batch, batch_seconds, makespan, plan_batches
from core.build.cache import Entry, KernelCache, cannot_write, kernel_key, usage_of
from core.build.machine import LIGHT_NVCC_BYTES, NVCC_BYTES, default_jobs, free_memory
from core.build.nvcc import (
    Ran,
    Usage,
    base_command,
    first_error,
    parse_ptxas,
    run,
    without_folders,
)
from core.build.toolchain import Toolchain
from core.errors import Cancelled, ToolchainError
from core.measure.measurement import Failure, Stage
from core.paths import cache_dir as default_cache_dir
from templates import families
from templates.emit import namespace_of
from templates.family import Family, Kernel
from templates.gpu import GpuSpec

_LOG_BYTES = 16_000
_MOST_JOBS = 1024  # `Builder.jobs` may grow up to this while it builds, when it counts a cluster's compilers
_LIGHT_SECONDS = 30.0
# Not the kernel's fault: another day, or with fewer jobs, it may compile. Such failures are not kept.
_PASSING = re.compile(r"died due to signal|killed by|out of memory|Cannot allocate memory", re.IGNORECASE)
_FULL = re.compile(r"No space left on device|File size limit exceeded|Disk quota exceeded|File too large|signal 25\b")


class Builder:
    """A ports.KernelBuilder over nvcc and the kernel cache.

    One instance serves one GPU model. `close` may be called from any thread; `build` runs on one thread at a time.
    `compile_batch` and `has_memory_for` are what core.cluster does on other machines.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        gpu: GpuSpec,
        cache_dir: Path | None = None,
        jobs: int | None = None,
        families_by_name: Mapping[str, Family] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """`stop`: setting it does what `close` does."""
        self.toolchain = toolchain
        self.gpu = gpu
        self.cache = KernelCache(cache_dir or default_cache_dir())
        self.jobs = jobs or default_jobs(LIGHT_NVCC_BYTES)
        self._families = families() if families_by_name is None else families_by_name
        self._keys: dict[Kernel, str] = {}
        self._closed = stop or threading.Event()

    def __contains__(self, kernel: object) -> bool:
        """Whether the kernel is compiled already, so that taking it costs nothing."""
        if not isinstance(kernel, Kernel):
            return False
        entry = self.cache.find(self.key(kernel), verify=False)
        return entry is not None and not entry.error

    def seconds(self, kernels: Sequence[Kernel]) -> float:
        """Estimated wall time of compiling those of the kernels that are not in the cache."""
        missing = [k for k in kernels if self.cache.find(self.key(k), verify=False) is None]
        plan = plan_batches(missing, self._flags, self._seconds, self.jobs)
        return makespan([batch_seconds(b, self._seconds) for b in plan], self.jobs)

    def build(
        self, kernels: Sequence[Kernel], started: Callable[[Batch], None] | None = None
    ) -> Iterator[tuple[Kernel, BuiltKernel | Failure]]:
        """See ports.KernelBuilder. Ends early, without an exception, after `close`.

        Raises:
            ToolchainError: nothing can be compiled at all: nvcc is gone, or the cache can't be written.
        """
        missing = []
        for kernel in dict.fromkeys(kernels):
            if self._closed.is_set():
                return
            entry = self.cache.find(self.key(kernel))
            if entry is None:
                missing.append(kernel)
            else:
                yield kernel, self._result(kernel, entry, cached=True)
        if missing:
            yield from self._compile(missing, started)

    def close(self) -> None:
        self._closed.set()

    def key(self, kernel: Kernel) -> str:
        """The kernel's key in the cache."""
        if kernel not in self._keys:
            family = self._families[kernel.family]
            self._keys[kernel] = kernel_key(
                family.source(kernel), family.flags(kernel, self.gpu), self.gpu.nvcc_arch, self.toolchain
            )
        return self._keys[kernel]

    def _flags(self, kernel: Kernel) -> tuple[str, ...]:
        return self._families[kernel.family].flags(kernel, self.gpu)

    def _seconds(self, kernel: Kernel) -> tuple[float, float]:
        return self._families[kernel.family].compile_seconds(kernel)

    def _compile(
        self, kernels: Sequence[Kernel], started: Callable[[Batch], None] | None
    ) -> Iterator[tuple[Kernel, BuiltKernel | Failure]]:
        """Starts a compiler only while the caller asks for results: to pause is not to ask."""
        waiting = deque(plan_batches(kernels, self._flags, self._seconds, self.jobs))
        running: dict[Future[dict[Kernel, Entry] | list[Batch]], Batch] = {}
        pool = ThreadPoolExecutor(_MOST_JOBS, thread_name_prefix="nvcc")
        stop = threading.Event()
        try:
            while (waiting or running) and not self._closed.is_set():
                while waiting and len(running) < self.jobs and self.has_memory_for(waiting[0], len(running)):
                    batch = waiting.popleft()
                    running[pool.submit(self.compile_batch, batch, stop)] = batch
                    if started:
                        started(batch)
                for future in wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    result = future.result()
                    if isinstance(result, list):
                        waiting.extendleft(reversed(result))
                    else:
                        for kernel, entry in result.items():
                            yield kernel, self._result(kernel, entry, cached=False)
        except Cancelled:
            if not self._closed.is_set():
                raise
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def has_memory_for(self, batch: Batch, running: int) -> bool:
        """Whether one more compiler fits into the free memory; the first always may start.

        A compiler that has just started has not taken its memory yet, so those running are counted by half.
        """
        need = NVCC_BYTES if self._seconds(batch[0])[0] >= _LIGHT_SECONDS else LIGHT_NVCC_BYTES
        return running == 0 or free_memory() - running * need // 2 >= need

    def compile_batch(self, batch: Batch, stop: threading.Event) -> dict[Kernel, Entry] | list[Batch]:
        """Entries of the batch, which the cache holds then, or the smaller batches to try when it is not to be compiled
        as one. Safe from several threads. Raises Cancelled once `stop` is set, and ToolchainError."""
        began = time.monotonic()
        with self.cache.work_folder() as name:
            folder = Path(name)
            try:
                for index, kernel in enumerate(batch):
                    source = self._families[kernel.family].source(kernel)
                    (folder / _file(index)).write_text(source, encoding="utf-8")
                unit = "".join(f'#include "{_file(i)}"\n' for i in range(len(batch)))
                (folder / "batch.cu").write_text(unit, encoding="utf-8")
            except OSError as error:
                raise cannot_write(error, self.cache.folder) from error
            library = folder / "batch.so"
            command = [*base_command(self.toolchain), *self._flags(batch[0]), "-Xptxas=-v", "-shared"]
            ran = self._run([*command, folder / "batch.cu", "-o", library], folder, stop)
            if ran.status != 0 and len(batch) > 1:
                return _smaller(batch, ran.log)
            if ran.status != 0:
                return {batch[0]: self._failed(batch[0], ran)}
            return self._keep(batch, library, parse_ptxas(ran.log), time.monotonic() - began)

    def either_stopped(self, stop: threading.Event) -> threading.Event:
        """Set when `stop` is, or after `close`."""
        return _Either(stop, self._closed)

    def _run(self, command: Sequence[str | Path], folder: Path, stop: threading.Event) -> Ran:
        try:
            ran = run(command, folder, self.either_stopped(stop))
        except OSError as error:
            raise cannot_write(error, self.cache.folder) from error
        if ran.status != 0 and (full := _FULL.search(ran.log)):
            raise ToolchainError(
                f"the kernel cache {self.cache.folder} can't be written ({full[0]})",
                "free some space there, or set BOLT_CACHE to another folder",
            )
        return ran

    def _keep(self, batch: Batch, library: Path, usages: list[Usage], seconds: float) -> dict[Kernel, Entry]:
        stored = self.cache.store_library(library)
        shares = share_usages(batch, usages)
        entries = {}
        for kernel in batch:
            own = shares[kernel]
            entries[kernel] = Entry(
                kernel=kernel.name,
                library=stored,
                seconds=round(seconds / len(batch), 3),
                registers=max((u.registers for u in own), default=None),
                spill_bytes=max((u.spill_bytes for u in own), default=None),
                smem_bytes=max((u.smem_bytes for u in own), default=None),
            )
            self.cache.store(self.key(kernel), entries[kernel])
        return entries

    def _failed(self, kernel: Kernel, ran: Ran) -> Entry:
        log = without_folders(ran.log, self.toolchain.include_dirs)  # failures are records, and records are shared
        entry = Entry(kernel.name, error=first_error(log, ran.status), log=log[:_LOG_BYTES])
        if ran.status > 0 and not _PASSING.search(ran.log):
            self.cache.store(self.key(kernel), entry)
        return entry

    def _result(self, kernel: Kernel, entry: Entry, cached: bool) -> BuiltKernel | Failure:
        if entry.error:
            return Failure("", kernel.name, Stage.COMPILE, entry.error, entry.log)
        library = self.cache.library(entry)
        return BuiltKernel(kernel, library, entry.seconds, cached, **usage_of(entry))


class _Either(threading.Event):
    """Set when one of two events is."""

    def __init__(self, *events: threading.Event) -> None:
        super().__init__()
        self._events = events

    def is_set(self) -> bool:
        return any(e.is_set() for e in self._events)


def _file(index: int) -> str:
    return f"kernel{index}.cu"


def _smaller(batch: Batch, log: str) -> list[Batch]:
    """The kernels whose files the compiler complained of each alone, the others together; without a name, all alone."""
    named = {int(n) for n in re.findall(r"\bkernel(\d+)\.cu\b", log)}
    good = tuple(k for i, k in enumerate(batch) if i not in named)
    bad = [(k,) for i, k in enumerate(batch) if i in named]
    if not bad or not good:
        return [(k,) for k in batch]
    return [good, *bad]


def share_usages(batch: Batch, usages: Sequence[Usage]) -> dict[Kernel, list[Usage]]:
    """Which entry functions belong to which kernel: the one whose namespace is inside the mangled name."""
    if len(batch) == 1:
        return {batch[0]: list(usages)}
    return {kernel: [u for u in usages if namespace_of(kernel) in u.function] for kernel in batch}
