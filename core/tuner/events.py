"""What a tuning job tells its listeners. The command line prints them, the window shows them, a run file keeps them.

Every event is a frozen dataclass of plain values, so a recorded run is its events as JSON lines, and replaying a run
is emitting them again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from core.measure.measurement import Failure, GpuState, Measurement


@dataclass(frozen=True)
class JobStarted:
    model: str
    gpu: str
    workloads: tuple[str, ...]
    regions: tuple[tuple[str, str], ...]  # (region id, workload key)
    measured: bool  # False when the figures come from records


@dataclass(frozen=True)
class WorkloadStarted:
    workload: str
    candidates: tuple[str, ...]  # ranked, best first
    skipped: int  # legal candidates the ranking left out
    illegal: int


@dataclass(frozen=True)
class BuildStarted:
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class BuildFinished:
    """`registers` and `spill_bytes` a thread, `smem_bytes` static shared memory a block; None where ptxas said none."""

    kernel: str
    seconds: float
    cached: bool
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None


@dataclass(frozen=True)
class CandidateMeasured:
    measurement: Measurement


@dataclass(frozen=True)
class CandidateFailed:
    failure: Failure


@dataclass(frozen=True)
class WorkloadFinished:
    """`best` is the fastest verified candidate of the finals, `vendor` the fastest vendor kernel beside it."""

    workload: str
    best: Measurement | None
    vendor: Measurement | None
    measured: int
    failed: int
    from_records: bool


@dataclass(frozen=True)
class Progress:
    """Counts of what is known so far; `eta_s` is None while there is nothing to extrapolate from."""

    workloads_done: int
    workloads: int
    built: int
    to_build: int
    measured: int
    to_measure: int
    failed: int
    eta_s: float | None
    state: GpuState | None = None


@dataclass(frozen=True)
class Note:
    """One line for the log: level is "info", "warning" or "error"."""

    level: str
    text: str


@dataclass(frozen=True)
class JobFinished:
    seconds: float
    cancelled: bool = False
    error: str = ""


Event = (
    JobStarted
    | WorkloadStarted
    | BuildStarted
    | BuildFinished
    | CandidateMeasured
    | CandidateFailed
    | WorkloadFinished
    | Progress
    | Note
    | JobFinished
)
Listener = Callable[[Event], None]
