"""What comes back from the GPU, and what comes back instead."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import median


class Stage(StrEnum):
    """Where a candidate failed."""

    COMPILE = "compile"
    LOAD = "load"
    REFUSED = "refused"  # the kernel's own check said no
    LAUNCH = "launch"
    VERIFY = "verify"
    TIMEOUT = "timeout"
    CRASH = "crash"


class Phase(StrEnum):
    """Screening is quick and ranks; finals are interleaved with the other finalists and the vendor, and decide."""

    SCREEN = "screen"
    FINAL = "final"


@dataclass(frozen=True)
class GpuState:
    """What the GPU said of itself around a measurement. `throttled`: its clocks were held back by power or heat."""

    sm_mhz: int = 0
    memory_mhz: int = 0
    temperature_c: int = 0
    power_w: float = 0.0
    throttled: bool = False


@dataclass(frozen=True)
class Measurement:
    """Times of one candidate (or vendor kernel) on one workload, microseconds per run, verified.

    `source` is "template" or the vendor library's name ("cublasLt 13.0.2", "cudnn 9.19.0"); `detail` is the vendor's
    algorithm or plan name. `relative_l2` and `max_abs` compare with the fp32-accumulating reference kernel.
    """

    workload: str
    candidate: str
    phase: Phase
    samples_us: tuple[float, ...]
    relative_l2: float
    max_abs: float
    source: str = "template"
    detail: str = ""
    state: GpuState = GpuState()

    @cached_property
    def us(self) -> float:
        return median(self.samples_us)

    @property
    def spread_us(self) -> tuple[float, float]:
        """(lowest, highest) sample."""
        return min(self.samples_us), max(self.samples_us)


@dataclass(frozen=True)
class Failure:
    """A candidate that can't be used, with the reason in one line and, where there is one, the log."""

    workload: str
    candidate: str
    stage: Stage
    reason: str
    log: str = ""


Outcome = Measurement | Failure
