"""What a tuning run has told so far, as the panels read it. No Qt: it is fed events and answers what changed."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from core.measure.measurement import GpuState, Measurement
from core.tuner.events import (
    BuildFinished,
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    Event,
    JobFinished,
    JobStarted,
    Note,
    Progress,
    WorkloadFinished,
    WorkloadStarted,
)


class State(StrEnum):
    """Of a candidate or of a workload; the value is what the user reads."""

    QUEUED = "queued"
    BUILDING = "building"
    BUILT = "built"
    RUNNING = "running"
    MEASURED = "measured"
    FINAL = "final"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Row:
    """One candidate (or vendor kernel) on one workload."""

    workload: str
    name: str
    family: str
    state: State = State.QUEUED
    rank: int = 0  # 0: the ranking's first
    measurement: Measurement | None = None
    reason: str = ""
    log: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None  # static shared memory a block
    build_s: float | None = None
    cached: bool = False

    @property
    def us(self) -> float | None:
        return self.measurement.us if self.measurement else None


@dataclass
class WorkloadRun:
    """One workload: its rows and its verdict."""

    key: str
    state: State = State.QUEUED
    rows: list[int] = field(default_factory=list)
    best: Measurement | None = None
    vendor: Measurement | None = None
    best_so_far: list[tuple[int, float]] = field(default_factory=list)  # (measurements of the job so far, us)
    samples: list[tuple[int, float]] = field(default_factory=list)
    measured: int = 0
    failed: int = 0
    skipped: int = 0
    illegal: int = 0
    from_records: bool = False
    age: int = 0  # runs since its figures were taken; those of different runs do not compare

    @property
    def speedup(self) -> float | None:
        """Vendor time over ours; above 1 is faster than the vendor."""
        return self.vendor.us / self.best.us if self.best and self.vendor else None


@dataclass
class Changes:
    """What one batch of events touched."""

    started: bool = False
    first_new_row: int | None = None
    rows: set[int] = field(default_factory=set)
    workloads: set[str] = field(default_factory=set)
    log: bool = False
    progress: bool = False
    finished: bool = False


class Run:
    """One tuning run, live or replayed. `apply` takes events in order."""

    def __init__(self, replayed: bool = False) -> None:
        self.replayed = replayed
        self.model = self.gpu = ""
        self.measured_here = not replayed
        self.told = False  # whether its job has begun to tell
        self.file: Path | None = None  # the run file that it was played from
        self.rows: list[Row] = []
        self.workloads: dict[str, WorkloadRun] = {}
        self.region_workload: dict[str, str] = {}
        self.log: list[tuple[str, str]] = []  # (level, text)
        self.progress: Progress | None = None
        self.state: GpuState | None = None
        self.result: JobFinished | None = None
        self.measurements = 0
        self._row_of: dict[tuple[str, str], int] = {}
        self._rows_of_kernel: dict[str, list[int]] = {}

    @property
    def provenance(self) -> str:
        """What stands beside every number: "measured", "replayed" or "from records"."""
        if self.replayed:
            return "replayed"
        return "measured" if self.measured_here else "from records"

    @property
    def running(self) -> bool:
        return bool(self.workloads) and self.result is None

    def of_region(self, region: str) -> WorkloadRun | None:
        return self.workloads.get(self.region_workload.get(region, ""))

    def carry(self, before: "Run", without: Collection[str]) -> None:
        """Keep the figures of an earlier run, but for the workloads that are measured anew."""
        self.model, self.gpu, self.measured_here = before.model, before.gpu, before.measured_here
        self.measurements = before.measurements
        for key, known in before.workloads.items():
            if known.best is not None and key not in without:
                samples, best_so_far = [*known.samples], [*known.best_so_far]
                self.workloads[key] = replace(
                    known, rows=[], samples=samples, best_so_far=best_so_far, age=known.age + 1
                )
                for row in (before.rows[i] for i in known.rows):
                    at = self._row(key, row.name, row.family)
                    self.rows[at] = replace(row)

    def apply(self, events: "list[Event]") -> Changes:
        changes = Changes()
        rows_before = len(self.rows)
        for event in events:
            self._apply(event, changes)
        if len(self.rows) > rows_before:
            changes.first_new_row = rows_before
        return changes

    def _apply(self, event: Event, changes: Changes) -> None:
        match event:
            case CandidateMeasured(measurement):
                self._measured(measurement, changes)
            case CandidateFailed(failure):
                row = self._row(failure.workload, failure.candidate)
                self.rows[row].state = State.FAILED
                self.rows[row].reason = f"{failure.stage}: {failure.reason}"
                self.rows[row].log = failure.log
                self._workload(failure.workload).failed += 1
                changes.rows.add(row)
                changes.workloads.add(failure.workload)
            case BuildStarted(kernels):
                for kernel in kernels:
                    self._kernel_state(kernel, State.BUILDING, changes)
            case BuildFinished():
                self._built(event, changes)
            case WorkloadStarted(key, candidates, skipped, illegal):
                self._started(key, candidates, skipped, illegal, changes)
            case WorkloadFinished():
                self._finished(event, changes)
            case Progress():
                self.progress = event
                self.state = event.state or self.state
                changes.progress = True
            case Note(level, text):
                self.log.append((level, text))
                changes.log = True
            case JobStarted():
                self._job_started(event)
                changes.started = changes.progress = changes.log = True
            case JobFinished():
                self._job_finished(event)
                changes.finished = changes.progress = changes.log = True

    def _job_started(self, event: JobStarted) -> None:
        self.told, self.model, self.gpu = True, event.model, event.gpu
        self.measured_here = event.measured and not self.replayed
        self.region_workload = dict(event.regions)
        for key in event.workloads:
            self._workload(key)
        self.log.append(("info", f"{event.model}: {len(event.workloads)} workloads on {event.gpu}, {self.provenance}"))

    def _job_finished(self, event: JobFinished) -> None:
        self.result = event
        for run in self.workloads.values():
            if run.state is State.RUNNING:
                run.state = State.QUEUED
        for row in self.rows:
            if row.state is State.BUILDING:
                row.state = State.QUEUED
        if event.error:
            self.log.append(("error", event.error))
        else:
            self.log.append(("info", f"{'stopped' if event.cancelled else 'finished'} after {event.seconds:.1f} s"))

    def _workload(self, key: str) -> WorkloadRun:
        if key not in self.workloads:
            self.workloads[key] = WorkloadRun(key)
        return self.workloads[key]

    def _row(self, workload: str, candidate: str, family: str = "") -> int:
        at = self._row_of.get((workload, candidate))
        if at is None:
            at = len(self.rows)
            kernel = candidate.partition("@")[0]
            run = self._workload(workload)
            self.rows.append(Row(workload, candidate, family or family_of(candidate), rank=len(run.rows)))
            self._row_of[workload, candidate] = at
            self._rows_of_kernel.setdefault(kernel, []).append(at)
            run.rows.append(at)
        return at

    def _started(self, key: str, candidates: tuple[str, ...], skipped: int, illegal: int, changes: Changes) -> None:
        run = self._workload(key)
        run.state, run.skipped, run.illegal = State.RUNNING, skipped, illegal
        for name in candidates:
            changes.rows.add(self._row(key, name))
        changes.workloads.add(key)

    def _kernel_state(self, kernel: str, state: State, changes: Changes) -> None:
        for at in self._rows_of_kernel.get(kernel, ()):
            if self.rows[at].state in (State.QUEUED, State.BUILDING):
                self.rows[at].state = state
                changes.rows.add(at)

    def _built(self, event: BuildFinished, changes: Changes) -> None:
        for at in self._rows_of_kernel.get(event.kernel, ()):
            row = self.rows[at]
            row.build_s, row.cached = event.seconds, event.cached
            row.registers, row.spill_bytes, row.smem_bytes = event.registers, event.spill_bytes, event.smem_bytes
            changes.rows.add(at)
        self._kernel_state(event.kernel, State.BUILT, changes)

    def _measured(self, m: Measurement, changes: Changes) -> None:
        at = self._row(m.workload, m.candidate, "" if m.source == "template" else m.source)
        row, run = self.rows[at], self._workload(m.workload)
        row.measurement = m
        row.state = State.FINAL if m.phase == "final" else State.MEASURED
        row.reason = ""
        self.measurements += 1
        run.measured += 1
        if m.source == "template":
            run.samples.append((self.measurements, m.us))
            if not run.best_so_far or m.us < run.best_so_far[-1][1]:
                run.best_so_far.append((self.measurements, m.us))
        elif run.vendor is None or m.us < run.vendor.us:
            run.vendor = m
        if m.state.sm_mhz:
            self.state = m.state
            changes.progress = True
        changes.rows.add(at)
        changes.workloads.add(m.workload)

    def _finished(self, event: WorkloadFinished, changes: Changes) -> None:
        run = self._workload(event.workload)
        run.best, run.vendor = event.best, event.vendor or run.vendor
        run.measured, run.failed = event.measured, event.failed
        run.from_records, run.age = event.from_records, 0
        run.state = State.DONE if event.best or event.vendor else State.FAILED
        changes.workloads.add(event.workload)


def family_of(candidate: str) -> str:
    """The family in a candidate's procedural name: what stands before the types ("sm90_gemm_f16f32_...")."""
    parts = candidate.partition("@")[0].split("_")
    types = next((i for i, p in enumerate(parts) if p.startswith(("f16", "bf16", "tf32", "f32"))), 1)
    return "_".join(parts[:types])
