"""What the measuring process does with one workload: verify, screen, and the interleaved finals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from core.device import GpuIdentity, identity_of
from core.measure.args import output_shape
from core.measure.honest import COPY_L2_MULTIPLE, copy_note, finals_notes, others_note
from core.measure.kernel import KernelFailure, LoadedKernel
from core.measure.measurement import Failure, GpuState, Measurement, Outcome, Phase, Stage
from core.measure.nvml import Monitor, combine, driver_version
from core.measure.reference import Comparison, Reference
from core.measure.runtime import GpuError, Runtime
from core.measure.tensors import Tensors, WrongResult
from core.measure.timing import BadTime, Chain, Timer, launches_for
from core.vendor import WORKSPACE_BYTES, Peer, VendorContext, VendorError, peers
from templates.epilogue import EpilogueOp
from templates.family import Candidate
from templates.workload import Workload

SCREEN_TARGET_US = 300.0
SCREEN_BUDGET_US = 4_000.0
FINAL_TARGET_US = 600.0
FINAL_ROUNDS = 9
VENDOR_FINALISTS = 2  # per library
_LARGEST_WORKSPACE = 2 << 30
_COPIES = 5  # of the self-check; the fastest counts
_LEAST_US = 2.0  # no kernel starts and ends in less

T = TypeVar("T")


@dataclass
class Entrant:
    """Something that is verified and timed: a candidate or a vendor's algorithm. `launch(slot)` enqueues one run."""

    name: str
    launch: Callable[[int], None]
    workspace: int = 0
    source: str = "template"
    detail: str = ""


@dataclass
class Finalist:
    """An entrant in the finals: its chain, its verification, its samples so far."""

    entrant: Entrant
    chain: Chain
    comparison: Comparison
    samples: list[float]


class Bench:
    """One device. `announce(name)` is told what runs next, `note(text)` what the user should know.

    `fatal` names the CUDA error that made the context unusable; nothing may be asked of the bench after it.
    """

    def __init__(self, runtime: Runtime, announce: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._runtime, self._announce, self._note = runtime, announce, note
        facts = runtime.facts()
        self.identity: GpuIdentity = identity_of(facts, driver_version())
        self._monitor = Monitor(facts.pci_bus)
        if self._monitor.absent:
            note(self._monitor.absent)
        self._stream = runtime.stream()
        self._timer = Timer(runtime, self._monitor, self._stream)
        self._reference: Reference | None = None
        self._tensors: Tensors | None = None
        self._floor_us = _LEAST_US  # a lower bound of one run of the workload
        self.fatal = ""

    def prepare(self, workload: Workload, library: Path) -> None:
        """Makes the operands and their references. Raises DeviceError or ValueError when that can't be done."""
        if self._tensors is not None:
            self._tensors.free()
            self._tensors = None
        if self._reference is None:
            self._reference = Reference(library, self._runtime)
            self._check_self()
        spec = self.identity.spec
        self._tensors = Tensors(workload, self._runtime, self._reference, spec.l2_bytes, self._stream)
        products_us, bytes_us = workload.flops / (spec.tensor_tflops * 1e6), workload.bytes / (spec.dram_gbs * 1e3)
        self._floor_us = max(products_us, bytes_us, _LEAST_US)

    def _check_self(self) -> None:
        """Notes what speaks against the figures of this GPU before any is taken. Raises DeviceError."""
        spec, runtime = self.identity.spec, self._runtime
        nbytes = COPY_L2_MULTIPLE * spec.l2_bytes
        with ExitStack() as stack:
            source = runtime.alloc(nbytes)
            stack.callback(runtime.free, source)
            target = runtime.alloc(nbytes)
            stack.callback(runtime.free, target)
            runtime.memset(source, 0x5A, nbytes, self._stream)
            chain = self._timer.chain("copy", lambda slot: runtime.copy(target, source, nbytes, self._stream), 1, 4)
            stack.callback(self._timer.free, chain)
            try:
                self._timer.warm_up(chain)
                us = min(self._timer.sample(chain) for _ in range(_COPIES))
            except BadTime as error:
                self._note(f"self-check: {error}")
                return
        notes = copy_note(2 * nbytes / us / 1e3, spec.dram_gbs), others_note(self._monitor.processes())
        for text in filter(None, notes):
            self._note(text)

    def screen(self, candidate: Candidate, library: Path) -> Outcome:
        """Verifies, times briefly, verifies again under load."""

        def work() -> Measurement:
            entrant = self._entrant(candidate, library)
            finalist = self._enter(entrant, SCREEN_TARGET_US)
            try:
                us = self._timer.warm_up(finalist.chain)
                repeats = int(SCREEN_BUDGET_US / (2 * us * finalist.chain.launches))
                finalist.samples = [self._timer.sample(finalist.chain) for _ in range(max(3, min(10, repeats)))]
                state = self._monitor.state()
                return self._finish(finalist, Phase.SCREEN, [state])
            finally:
                self._drop(finalist)

        self._announce(candidate.name)
        return self._attempt(candidate.name, work)

    def final(self, items: Sequence[tuple[Candidate, Path]], vendor: bool) -> list[Outcome]:
        """Times the candidates and the vendor's best algorithms interleaved, A B C A B C."""
        outcomes: list[Outcome] = []
        entrants: list[Entrant] = []
        self._take_workspaces(items, vendor, entrants, outcomes)
        finalists: list[Finalist] = []
        for entrant in entrants:
            self._announce(entrant.name)
            entered = self._attempt(entrant.name, partial(self._enter, entrant, FINAL_TARGET_US))
            if isinstance(entered, Finalist):
                finalists.append(entered)
            else:
                outcomes.append(entered)
            if self.fatal:
                return outcomes
        if vendor:
            finalists += self._vendor_finalists()
        if not self.fatal:
            outcomes += self._rounds(finalists)
        if not self.fatal:
            for finalist in finalists:
                self._drop(finalist)
        held = [o for o in outcomes if isinstance(o, Measurement)]
        for text in finals_notes(self._bench.workload.key, held):
            self._note(text)
        return outcomes

    def _take_workspaces(
        self, items: Sequence[tuple[Candidate, Path]], vendor: bool, entrants: list[Entrant], outcomes: list[Outcome]
    ) -> None:
        """Loads every candidate and makes one scratch for all, before any graph remembers its address."""
        loaded: list[tuple[LoadedKernel, int]] = []
        for candidate, library in items:
            self._announce(candidate.name)
            got = self._attempt(candidate.name, partial(self._load, candidate, library))
            if isinstance(got, tuple):
                loaded.append(got)
            else:
                outcomes.append(got)
        self._bench.reserve(max([WORKSPACE_BYTES * vendor, *(nbytes for _, nbytes in loaded)]))
        entrants += [self._bound(kernel, nbytes) for kernel, nbytes in loaded]

    @property
    def _bench(self) -> Tensors:
        assert self._tensors is not None, "prepare comes first"
        return self._tensors

    def _load(self, candidate: Candidate, library: Path) -> tuple[LoadedKernel, int]:
        workload = self._bench.workload
        kernel = LoadedKernel(candidate, library, workload, self.identity.sm_count)
        nbytes = kernel.workspace_bytes(self._bench.slots[0])
        if nbytes > min(_LARGEST_WORKSPACE, self._runtime.free_bytes() // 2):
            raise KernelFailure(Stage.REFUSED, f"it asks for {nbytes >> 20} MiB of workspace")
        return kernel, nbytes

    def _bound(self, kernel: LoadedKernel, nbytes: int) -> Entrant:
        kernel.bind(self._bench.slots, self._bench.workspace(nbytes), nbytes)

        def launch(slot: int) -> None:
            kernel.launch(slot, self._stream)
            if kernel.rest:
                self._run_steps(kernel.rest, slot)

        return Entrant(kernel.name, launch, nbytes)

    def _run_steps(self, steps: Sequence[EpilogueOp], slot: int) -> None:
        """Steps that a kernel does not fuse, as one pointwise kernel behind it."""
        workload, at = self._bench.workload, self._bench.slots[slot]
        rows, columns = output_shape(workload)
        assert self._reference is not None, "prepare comes first"
        self._reference.elementwise(
            at.d, workload.epilogue.output, at.bias, workload.dtype, at.source, rows, columns, steps, self._stream
        )

    def _entrant(self, candidate: Candidate, library: Path) -> Entrant:
        kernel, nbytes = self._load(candidate, library)
        self._bench.reserve(nbytes)
        return self._bound(kernel, nbytes)

    def _enter(self, entrant: Entrant, target_us: float) -> Finalist:
        """Verifies the entrant and captures its chain."""

        def once() -> None:
            for slot in self._bench.checked:
                entrant.launch(slot)

        self._bench.workspace(entrant.workspace)
        comparison = self._bench.verify(once)
        launches = launches_for(target_us, self._floor_us, self._bench.count)
        chain = self._timer.chain(entrant.name, entrant.launch, self._bench.count, launches)
        return Finalist(entrant, chain, comparison, [])

    def _finish(self, finalist: Finalist, phase: Phase, states: list[GpuState]) -> Measurement:
        """Verifies once more, with the launches back to back as they were timed: a race shows here."""
        entrant = finalist.entrant
        self._bench.workspace(entrant.workspace)
        again = self._bench.verify(lambda: self._timer.run(finalist.chain))
        worst = max(finalist.comparison, again, key=lambda c: c.relative_l2)
        return Measurement(
            workload=self._bench.workload.key,
            candidate=entrant.name,
            phase=phase,
            samples_us=tuple(finalist.samples),
            relative_l2=worst.relative_l2,
            max_abs=worst.max_abs,
            source=entrant.source,
            detail=entrant.detail,
            state=combine(states),
        )

    def _rounds(self, finalists: list[Finalist]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        running = list(finalists)
        states: list[GpuState] = []

        def record(finalist: Finalist, outcome: Outcome) -> None:
            if isinstance(outcome, Failure) and finalist.entrant.source != "template":
                self._note(f"{outcome.candidate} not counted: {outcome.reason}")
            else:
                outcomes.append(outcome)

        for number in range(-1, FINAL_ROUNDS):  # round -1 warms up
            for finalist in list(running):
                self._announce(finalist.entrant.name)
                timed = self._attempt(finalist.entrant.name, partial(self._sample, finalist, number))
                if isinstance(timed, Failure):
                    record(finalist, timed)
                    running.remove(finalist)
                if self.fatal:
                    return outcomes
            states.append(self._monitor.state())
        for finalist in running:
            self._announce(finalist.entrant.name)
            finish = partial(self._finish, finalist, Phase.FINAL, states[1:])
            record(finalist, self._attempt(finalist.entrant.name, finish))
            if self.fatal:
                break
        return outcomes

    def _sample(self, finalist: Finalist, number: int) -> float:
        if number < 0:
            return self._timer.warm_up(finalist.chain)
        us = self._timer.sample(finalist.chain)
        finalist.samples.append(us)
        return us

    def _vendor_finalists(self) -> list[Finalist]:
        """The vendor's algorithms, each verified and screened; the best few of each library."""
        tensors = self._bench
        workload = tensors.workload
        self._announce("vendor")
        assert self._reference is not None
        context = VendorContext(
            workload, self._runtime, self._reference, tensors.slots, self._stream, tensors.workspace(WORKSPACE_BYTES),
            self._vendor_time,
        )  # fmt: skip
        found = peers(context)
        for note in found.notes:
            self._note(note)
        screened: list[tuple[float, Finalist]] = []
        for peer in found.found:
            got = self._vendor_screen(peer)
            if self.fatal:
                break
            if isinstance(got, Failure):
                self._note(f"{got.candidate} not counted: {got.reason}")
            else:
                screened.append(got)
        screened.sort(key=lambda pair: pair[0])
        taken: dict[str, int] = {}
        best = []
        for _, finalist in screened:
            source = finalist.entrant.source
            taken[source] = taken.get(source, 0) + 1
            if taken[source] <= VENDOR_FINALISTS:
                best.append(finalist)
            else:
                self._drop(finalist)
        return best

    def _vendor_time(self, launch: Callable[[int, int], None]) -> float:
        """Microseconds of one vendor algorithm, unverified; infinite if it does not run."""

        def work() -> float:
            launches = launches_for(SCREEN_TARGET_US, self._floor_us, self._bench.count)
            chain = self._timer.chain("vendor", lambda slot: launch(self._stream, slot), self._bench.count, launches)
            try:
                return self._middle_us(chain)
            finally:
                if not self._runtime.broken():
                    self._timer.free(chain)

        timed = math.inf if self.fatal else self._attempt("vendor", work)
        return math.inf if isinstance(timed, Failure) else timed

    def _vendor_screen(self, peer: Peer) -> tuple[float, Finalist] | Failure:
        name = f"{peer.source} {peer.detail}"
        entrant = Entrant(name, lambda slot: peer.launch(self._stream, slot), WORKSPACE_BYTES, peer.source, peer.detail)

        def work() -> tuple[float, Finalist]:
            finalist = self._enter(entrant, FINAL_TARGET_US)
            try:
                return self._middle_us(finalist.chain), finalist
            except (BadTime, GpuError):
                self._drop(finalist)
                raise

        self._announce(name)
        return self._attempt(name, work)

    def _middle_us(self, chain: Chain) -> float:
        """Microseconds of a run, the middle one of three."""
        self._timer.warm_up(chain)
        return median(self._timer.sample(chain) for _ in range(3))

    def _drop(self, finalist: Finalist) -> None:
        if not self.fatal and not self._runtime.broken():
            self._timer.free(finalist.chain)

    def _attempt(self, name: str, work: Callable[[], T]) -> T | Failure:
        """Runs one step; what goes wrong in it becomes the candidate's failure."""

        def failure(stage: Stage, reason: str) -> Failure:
            return Failure(self._bench.workload.key, name, stage, reason)

        try:
            return work()
        except KernelFailure as error:
            failed = failure(error.stage, str(error))
        except WrongResult as error:
            failed = failure(Stage.VERIFY, str(error))
        except (BadTime, VendorError) as error:
            failed = failure(Stage.LAUNCH, str(error))
        except GpuError as error:
            failed = failure(Stage.LAUNCH, error.what)
        broken = self._runtime.broken()
        if broken:
            self.fatal = broken
            failed = failure(Stage.CRASH, f"{failed.reason} (the GPU context is lost: {broken})")
        return failed
