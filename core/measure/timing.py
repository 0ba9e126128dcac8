"""How a kernel is timed: as a CUDA graph of back-to-back launches over rotating operands.

A graph of one kernel's own launches is how the kernel runs in an exported library, programmatic dependent launch
included, and it keeps the host's launch cost out of the figure. Long kernels are timed the same way, with fewer
launches in the graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from core.measure.nvml import Monitor
from core.measure.runtime import Runtime
from core.measure.tensors import CHECKED_SLOTS

MAX_LAUNCHES = 1024
_STEADY_STEP_US = 5_000.0  # of work between two looks at the clock
_STEADY_STEPS = 12
_STEADY_CHANGE = 0.01
_IDLE_S = 0.3  # a GPU that was idle longer than this is warmed up again


class BadTime(Exception):
    """A time that can't be one; the text is the reason for the user."""


def launches_for(target_us: float, floor_us: float, slots: int) -> int:
    """Launches in one graph: about `target_us` of work, and each operand set at least once unless that is long.

    `floor_us` is a lower bound of one run. A kernel that takes more than 20 ms to go once round the sets is so slow
    that the cache does not decide its time: it goes round in part, over the sets that are verified at least.
    """
    wanted = math.ceil(target_us / max(floor_us, 0.5))
    round_trip = slots if slots * floor_us < 20_000.0 else math.ceil(20_000.0 / floor_us)
    return max(min(slots, CHECKED_SLOTS), min(MAX_LAUNCHES, max(wanted, round_trip)))


@dataclass
class Chain:
    """A captured graph of `launches` runs of one kernel."""

    name: str
    graph: int
    launches: int


class Timer:
    """Captures chains and times them on one stream."""

    def __init__(self, runtime: Runtime, monitor: Monitor, stream: int) -> None:
        self._runtime, self._monitor, self._stream = runtime, monitor, stream
        self._start, self._stop = runtime.event(), runtime.event()
        self._last_work = -math.inf

    def chain(self, name: str, launch: Callable[[int], None], slots: int, launches: int) -> Chain:
        """Captures `launch(slot)` for rotating slots. Raises GpuError when the kernel can't be captured."""

        def work() -> None:
            for i in range(launches):
                launch(i % slots)

        return Chain(name, self._runtime.capture(self._stream, work), launches)

    def run(self, chain: Chain) -> None:
        """Enqueues the chain once."""
        self._runtime.launch(chain.graph, self._stream)

    def sample(self, chain: Chain) -> float:
        """Microseconds per launch. The chain runs once before, untimed, so the start event finds the GPU busy.

        Raises BadTime on a figure that is not a positive number.
        """
        self._runtime.launch(chain.graph, self._stream)
        self._runtime.record(self._start, self._stream)
        self._runtime.launch(chain.graph, self._stream)
        self._runtime.record(self._stop, self._stream)
        us = self._runtime.elapsed_us(self._start, self._stop) / chain.launches
        self._last_work = time.monotonic()
        if not (math.isfinite(us) and us > 0):
            raise BadTime(f"the GPU's clock gave {us} us")
        return us

    def warm_up(self, chain: Chain) -> float:
        """Runs the chain until the SM clock is steady if the GPU was idle. Gives a first estimate, us per launch."""
        idle = time.monotonic() - self._last_work > _IDLE_S
        us = self.sample(chain)
        if idle:
            repeats = max(1, math.ceil(_STEADY_STEP_US / (2 * us * chain.launches)))
            before = -1
            for _ in range(_STEADY_STEPS):
                for _ in range(repeats):
                    us = self.sample(chain)
                clock = self._monitor.sm_mhz()
                if before > 0 and abs(clock - before) <= _STEADY_CHANGE * before:
                    break
                before = clock
        return us

    def free(self, chain: Chain) -> None:
        self._runtime.free_graph(chain.graph)
