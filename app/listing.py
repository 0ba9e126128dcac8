"""PTX and machine code of candidates, made in the background on request and kept once made."""

from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QObject, Signal

from app.background import Background, Job
from app.exporting import gpu_title
from app.format import nbytes, seconds
from core.build.cache import Entry
from core.build.listing import Mix
from core.errors import BoltError
from templates.family import Kernel
from templates.gpu import known_gpu


class Form(StrEnum):
    """What of a candidate is shown; the value is what the user reads."""

    CUDA = "CUDA source"
    PTX = "PTX"
    SASS = "Machine code (SASS)"


@dataclass(frozen=True)
class Listing:
    """`text`, or `why_not` there is none; `offer` says that compiling gives it. `facts` is what ptxas said."""

    text: str = ""
    facts: str = ""
    why_not: str = ""
    offer: bool = False


Key = tuple[Kernel, str, Form]  # kernel, GPU, form


class Listings(QObject):
    """`ready` comes after something asked for is there, or can't be."""

    ready = Signal()

    def __init__(self, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.background = background
        self._known: dict[Key, Listing] = {}
        self._jobs: dict[Key, Job] = {}
        self._compiling: set[Key] = set()

    def listing(self, kernel: Kernel, gpu: str, form: Form) -> Listing | None:
        """What is known, without compiling anything; None while it is looked for or compiled."""
        key = kernel, gpu, form
        if key not in self._known and key not in self._jobs:
            self._start(key, compiling=False)
        return self._known.get(key)

    def compiling(self, kernel: Kernel, gpu: str, form: Form) -> bool:
        return (kernel, gpu, form) in self._compiling

    def compile(self, kernel: Kernel, gpu: str, form: Form) -> None:
        key = kernel, gpu, form
        if key not in self._jobs:
            self._known.pop(key, None)
            self._compiling.add(key)
            self._start(key, compiling=True)
            self.ready.emit()

    def stop(self, kernel: Kernel, gpu: str, form: Form) -> None:
        """End a compilation; nothing is kept of it."""
        key = kernel, gpu, form
        job = self._jobs.pop(key, None)
        if job is not None:
            job.cancel()
            self._compiling.discard(key)
            self.ready.emit()

    def look_again(self) -> None:
        """A job may have compiled what was not there."""
        self._known = {key: found for key, found in self._known.items() if found.text}

    def _start(self, key: Key, compiling: bool) -> None:
        self._jobs[key] = self.background.start(
            f"{'compiling' if compiling else 'looking for'} {key[0].name}",
            lambda job: _look(*key, compiling, job),
            lambda found: self._take(key, found),
            lambda error: self._take(key, Listing(why_not=_sentence(error))),
        )

    def _take(self, key: Key, found: Listing) -> None:
        self._jobs.pop(key, None)
        self._compiling.discard(key)
        self._known[key] = found
        self.ready.emit()


def _look(kernel: Kernel, gpu: str, form: Form, compiling: bool, job: Job) -> Listing:
    """Raises ToolchainError without compiler or disassembler, DeviceError for a GPU that is neither known nor here."""
    from core.build.builder import Builder
    from core.build.listing import find_cuobjdump, mix_of, ptx_of, sass_of
    from core.build.toolchain import find_toolchain
    from core.device import detect_gpu
    from core.measure.measurement import Failure
    from templates import families

    spec = known_gpu(gpu) or detect_gpu().spec
    toolchain, family = find_toolchain(), families()[kernel.family]
    builder = Builder(toolchain, spec, stop=job.stop)
    entry = builder.cache.find(builder.key(kernel), verify=False)
    takes = f"about {seconds(family.compile_seconds(kernel)[0])}"
    if form is Form.PTX:
        facts = facts_line(entry)
        if not compiling:
            return Listing("", facts, f"PTX is made on request: nvcc takes {takes} or less.", offer=True)
        return Listing(ptx_of(kernel, family.source(kernel), family.flags(kernel, spec), toolchain, job.stop), facts)
    tool = find_cuobjdump(toolchain.nvcc)
    if entry is None and not compiling:
        return Listing("", "", f"It is not compiled for {gpu_title(gpu)} yet. That takes {takes}.", offer=True)
    results = [result for _, result in builder.build([kernel])]
    job.check()
    if isinstance(results[0], Failure):
        return Listing(why_not=f"It does not compile for {gpu_title(gpu)}: {results[0].reason}")
    text = sass_of(results[0].library, kernel, tool, job.stop)
    entry = builder.cache.find(builder.key(kernel), verify=False)
    return Listing(text, facts_line(entry, mix_of(text)))


def facts_line(entry: Entry | None, mix: Mix | None = None) -> str:
    """Registers, spills, static shared memory, and the instructions that matter; "" where nothing is known."""
    parts = []
    if entry is not None and entry.registers is not None:
        parts.append(f"{entry.registers} registers a thread")
        parts.append(f"{entry.spill_bytes} bytes spilled" if entry.spill_bytes else "nothing spilled")
    if entry is not None and entry.smem_bytes:
        parts.append(f"{nbytes(entry.smem_bytes)} of static shared memory")
    if mix is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in mix.kinds)
        parts.append(f"{mix.instructions:,} instructions{f' ({kinds})' if kinds else ''}")
    return ", ".join(parts)


def _sentence(error: BoltError) -> str:
    remedy = f" {error.remedy[:1].upper()}{error.remedy[1:]}." if error.remedy else ""
    return f"{error.what[:1].upper()}{error.what[1:]}.{remedy}"
