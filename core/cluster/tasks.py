"""What runs on a worker. A worker process keeps a builder for each GPU model and one measurer between tasks.

Arguments and results are plain values, pickled by Dask. A library travels by name, its checksum; its bytes follow only
to a worker that does not have it, so a kernel cache that machines share is used as it is.
"""

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from core.build.artifact import BuiltKernel
from core.build.batches import Batch
from core.build.builder import Builder
from core.build.cache import Entry, KernelCache, own_headers
from core.build.toolchain import Toolchain, find_toolchain
from core.device import GpuIdentity
from core.errors import ToolchainError
from core.measure.measurement import Outcome
from core.paths import INCLUDE, cache_dir
from core.tuner.ports import Measurer
from templates import families
from templates.family import Candidate
from templates.gpu import GpuSpec
from templates.workload import Workload


@dataclass(frozen=True)
class Parts:
    """How a worker makes what it works with. Tests bring their own."""

    runtime: str = "cuda-bindings"

    def toolchain(self) -> Toolchain:
        return find_toolchain()

    def builder(self, gpu: GpuSpec) -> Builder:
        return Builder(self.toolchain(), gpu)

    def measurer(self) -> Measurer:
        from core.measure.process import ProcessMeasurer

        return ProcessMeasurer(self.runtime)


@dataclass(frozen=True)
class Code:
    """What must be equal on all machines of a job, for a kernel to be the same kernel everywhere."""

    nvcc: str
    host_compiler: str
    host_version: str
    cutlass: str
    headers: str
    families: tuple[tuple[str, int], ...]

    def toolchain(self) -> Toolchain:
        """A value with these versions, for kernel keys and records; it compiles nothing."""
        nowhere = Path()
        return Toolchain(nowhere, self.nvcc, Path(self.host_compiler), self.host_version, nowhere, self.cutlass, ())

    def difference(self, other: "Code") -> str:
        """The first field that differs, in words; "" if none does."""
        for name in ("nvcc", "host_compiler", "host_version", "cutlass"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name.replace('_', ' ')} {theirs}, not {mine}"
        same = (self.headers, self.families) == (other.headers, other.families)
        return "" if same else "another version of this program"


@dataclass(frozen=True)
class Description:
    host: str
    code: Code
    gpu: GpuIdentity | None


@dataclass(frozen=True)
class BuiltBatch:
    """`entries`: key, entry, and whether the worker's cache keeps it; `libraries` by name. Or the `smaller` batches."""

    entries: tuple[tuple[str, Entry, bool], ...] = ()
    libraries: tuple[tuple[str, bytes], ...] = ()
    smaller: tuple[Batch, ...] = ()


@dataclass(frozen=True)
class Item:
    """A candidate and its library: by name, with the bytes if the worker does not have them."""

    candidate: Candidate
    library: str
    data: bytes | None = None


@dataclass(frozen=True)
class Answer:
    """What measuring came to. `missing`: libraries the worker does not have; nothing was done then."""

    outcomes: tuple[Outcome, ...] = ()
    more: bool = False
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def code_of(toolchain: Toolchain) -> Code:
    """What compiles and measures in this process."""
    found = families()
    includes = "\n".join(f"#include <bolt/{path.name}>" for path in sorted((INCLUDE / "bolt").iterdir()))
    versions = tuple(sorted((name, family.version) for name, family in found.items()))
    return Code(
        toolchain.nvcc_version, toolchain.host_compiler.name, toolchain.host_version, toolchain.cutlass_version,
        own_headers(includes), versions,
    )  # fmt: skip


@dataclass
class _State:
    """Of this worker process. `gpu` is held while its GPU is used: Dask's resource promises it, this makes sure."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    gpu: threading.Lock = field(default_factory=threading.Lock)
    builders: dict[tuple[Parts, GpuSpec], Builder] = field(default_factory=dict)
    measurers: dict[Parts, Measurer] = field(default_factory=dict)


_state = _State()


def describe(parts: Parts, gpu: bool) -> Description:
    """What this worker is. Raises ToolchainError, and DeviceError when it should have a GPU and can't use it."""
    identity = None
    if gpu:
        with _state.gpu:
            identity = _measurer(parts).identity()
    return Description(socket.gethostname(), code_of(parts.toolchain()), identity)


def build_batch(parts: Parts, batch: Batch, gpu: GpuSpec, keys: Sequence[str]) -> BuiltBatch:
    """Compiles kernels, or takes them from this machine's cache. `keys` are what the client calls them.

    Raises ToolchainError when this worker would compile other code than the client means, or can't compile.
    """
    builder = _builder(parts, gpu)
    if [builder.key(k) for k in batch] != list(keys):
        raise ToolchainError(
            f"the worker on {socket.gethostname()} would compile other code than is meant",
            "start it from the same version of this program",
        )
    entries = {k: e for k in batch if (e := builder.cache.find(builder.key(k))) is not None}
    if len(entries) < len(batch):
        made = builder.compile_batch(batch, threading.Event())
        if isinstance(made, list):
            return BuiltBatch(smaller=tuple(made))
        entries = made
    by_library = {e.library: builder.cache.library(e) for e in entries.values() if e.library}
    return BuiltBatch(
        tuple((builder.key(k), e, builder.cache.find(builder.key(k)) is not None) for k, e in entries.items()),
        tuple((name, path.read_bytes()) for name, path in by_library.items()),
    )


def get_ready(parts: Parts, workload: Workload, vendor: bool) -> Answer:
    with _state.gpu:
        measurer = _measurer(parts)
        more = measurer.get_ready(workload, vendor)
        return Answer(more=more, notes=_notes(measurer))


def screen(parts: Parts, workload: Workload, item: Item) -> Answer:
    with _state.gpu:
        built = _received([item])
        if isinstance(built, Answer):
            return built
        measurer = _measurer(parts)
        return Answer(tuple(measurer.screen(workload, built)), notes=_notes(measurer))


def final(parts: Parts, workload: Workload, items: Sequence[Item], vendor: bool) -> Answer:
    with _state.gpu:
        built = _received(items)
        if isinstance(built, Answer):
            return built
        measurer = _measurer(parts)
        return Answer(tuple(measurer.final(workload, built, vendor)), notes=_notes(measurer))


def leave_gpu(parts: Parts) -> None:
    """Ends the measuring process, which would hold memory of the GPU; the next task starts another."""
    with _state.gpu:
        if parts in _state.measurers:
            _state.measurers[parts].close()


def _builder(parts: Parts, gpu: GpuSpec) -> Builder:
    with _state.lock:
        if (parts, gpu) not in _state.builders:
            _state.builders[parts, gpu] = parts.builder(gpu)
        return _state.builders[parts, gpu]


def _measurer(parts: Parts) -> Measurer:
    if parts not in _state.measurers:
        _state.measurers[parts] = parts.measurer()
    return _state.measurers[parts]


def _notes(measurer: Measurer) -> tuple[str, ...]:
    found = tuple(measurer.notes)
    measurer.notes.clear()
    return found


def _received(items: Sequence[Item]) -> list[tuple[Candidate, BuiltKernel]] | Answer:
    """The candidates with their libraries on this machine, or the answer that some are missing."""
    found = {item.library: _cache(cache_dir()).take_in(item.library, item.data) for item in items}
    missing = tuple(name for name, path in found.items() if path is None)
    if missing:
        return Answer(missing=missing)
    here = {name: path for name, path in found.items() if path is not None}
    return [(i.candidate, BuiltKernel(i.candidate.kernel, here[i.library], 0.0, True)) for i in items]


@cache
def _cache(folder: Path) -> KernelCache:
    """Kept, since it proves each library's checksum once."""
    return KernelCache(folder)
