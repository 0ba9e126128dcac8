"""A lane: one GPU's measuring thread. It runs one step at a time and hands each outcome to the job's thread.

The job's thread decides and keeps; a lane only measures. It waits until an outcome is kept before it goes on, so that
what was measured before a sudden end is on record, whatever the number of GPUs.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Any

from core.build.artifact import BuiltKernel
from core.measure.measurement import GpuState, Measurement, Outcome
from core.tuner.ports import Measurer
from core.tuner.task import Task, sane
from templates.family import Candidate


class Step(Enum):
    """What a lane is doing. `READY` prepares what measuring needs beside kernels, see ports.Measurer.get_ready."""

    SCREEN = "screen"
    FINAL = "final"
    READY = "ready"


@dataclass(frozen=True)
class Measured:
    """An outcome; `seconds` since the one before. The lane waits for `Lane.reply`."""

    lane: "Lane"
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class StepEnded:
    """`more`: something is left to do; of a screening because the job's reply ended it, of READY another step."""

    lane: "Lane"
    seconds: float
    more: bool
    error: Exception | None = None


@dataclass
class Usage:
    """What a GPU's time went to, in seconds, and what it said of itself in the finals and screenings.

    `waiting_s`: nothing was ready for it while kernels were still compiled; `idle_s`: nothing was left for it.
    """

    gpu: str
    measuring_s: float = 0.0
    preparing_s: float = 0.0
    waiting_s: float = 0.0
    idle_s: float = 0.0
    states: list[GpuState] = field(default_factory=list)

    @property
    def clocks_mhz(self) -> tuple[int, int, int]:
        """(lowest, median, highest) SM clock of the measurements; zeros where the GPU does not tell."""
        told = sorted(s.sm_mhz for s in self.states if s.sm_mhz)
        return (told[0], round(median(told)), told[-1]) if told else (0, 0, 0)

    @property
    def throttled(self) -> int:
        """Measurements during which power or heat held the clocks back."""
        return sum(s.throttled for s in self.states)

    def __str__(self) -> str:
        low, middle, high = self.clocks_mhz
        clocks = f"; SM clock {low} to {high} MHz, median {middle}" if high else ""
        held = f", {self.throttled} of {len(self.states)} measurements throttled" if self.throttled else ""
        return (
            f"{self.gpu}: {self.measuring_s:.1f} s measuring, {self.preparing_s:.1f} s preparing, "
            f"{self.waiting_s:.1f} s waiting for the compilers, {self.idle_s:.1f} s with nothing left{clocks}{held}"
        )


class Lane:
    """Everything but the thread's own work is called on the job's thread.

    Args:
        number: tells lanes apart for the life of a job.
        messages: where Measured and StepEnded go.
    """

    def __init__(self, number: int, measurer: Measurer, messages: "queue.Queue[Any]") -> None:
        self.number, self.measurer = number, measurer
        self.usage = Usage(measurer.name)
        self.step: Step | None = None
        self.task: Task | None = None  # of the step, None for READY
        self.rested = False  # the last READY step found nothing left to do
        self._messages = messages
        self._steps: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stopped = False
        self._since = time.monotonic()  # when it became idle, or was last counted so
        self._thread = threading.Thread(target=self._work, name=f"tuner-{measurer.name}", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self.step is not None

    # -- steps

    def screen(self, task: Task, entries: Sequence[tuple[Candidate, BuiltKernel]], building: bool) -> None:
        self._start(Step.SCREEN, task, building, lambda: self._hand(self.measurer.screen(task.workload, entries)))

    def final(
        self, task: Task, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool, building: bool
    ) -> None:
        def work() -> bool:
            return self._hand(iter(self.measurer.final(task.workload, finalists, vendor)))

        self._start(Step.FINAL, task, building, work)

    def get_ready(self, tasks: Sequence[Task], vendor: bool) -> None:
        """The first step that is left for one of the tasks."""
        workloads = [t.workload for t in tasks]
        self._start(Step.READY, None, True, lambda: any(self.measurer.get_ready(w, vendor) for w in workloads))

    def reply(self, message: Measured, go_on: bool) -> None:
        """The outcome is kept; `go_on` False ends a screening, finals are handed over to their end."""
        if isinstance(message.outcome, Measurement):
            self.usage.states.append(message.outcome.state)
        self._replies.put(go_on or self.step is Step.FINAL)

    def ended(self, message: StepEnded) -> None:
        """Counts the step's time; the lane is free again."""
        if self.step is Step.READY:
            self.usage.preparing_s += message.seconds
            self.rested = not message.more
        else:
            self.usage.measuring_s += message.seconds
        self.step = self.task = None
        self._since = time.monotonic()

    def count_idle(self, building: bool) -> None:
        """Counts the idle time up to now as waiting for the compilers, or as nothing left to do."""
        if self.busy:
            return
        moment = time.monotonic()
        if building:
            self.usage.waiting_s += moment - self._since
        else:
            self.usage.idle_s += moment - self._since
        self._since = moment

    def close(self) -> None:
        """Waits for the step on the GPU, whose outcomes nobody takes any more. Safe to call twice."""
        self._stopped = True
        self._replies.put(False)
        self._steps.put(None)
        self._thread.join()

    def _start(self, step: Step, task: Task | None, building: bool, work: Callable[[], bool]) -> None:
        self.count_idle(building)
        self.step, self.task = step, task
        if task is not None:
            self.rested = False
        self._steps.put(work)

    # -- the lane's own thread

    def _work(self) -> None:
        while (work := self._steps.get()) is not None:
            began = time.monotonic()
            more, error = False, None
            try:
                more = work()
            except Exception as failure:  # noqa: BLE001 - raised again, or borne, on the job's own thread
                error = failure
            self._messages.put(StepEnded(self, time.monotonic() - began, more, error))

    def _hand(self, outcomes: Iterator[Outcome]) -> bool:
        """Hands outcomes over one by one; whether the job stopped it before the last."""
        began = time.monotonic()
        for outcome in map(sane, outcomes):
            if self._stopped:
                return True
            self._messages.put(Measured(self, outcome, time.monotonic() - began))
            if not self._replies.get():
                return True
            began = time.monotonic()
        return False
