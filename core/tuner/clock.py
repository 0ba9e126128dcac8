"""How long a tuning job will still take, from what it has done so far."""

import time
from collections.abc import Callable


class Clock:
    """Counts what was built and measured, and extrapolates.

    Building and measuring run side by side, so the longer of the two decides. `now` is a monotonic clock in seconds;
    `gpus` of them measure side by side.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._limit_s: float | None = None
        self._planned_build_s = 0.0
        self.kernels = 0
        self.built_kernels = 0
        self._compiled = 0
        self._screens: list[float] = []
        self._finals: list[float] = []
        self.gpus = 1

    def start(self, kernels: int, build_s: float, limit_s: float | None) -> None:
        """`build_s` is the builder's own estimate for all kernels, `limit_s` the time that the job may take."""
        self._started = self._now()
        self.kernels, self._planned_build_s, self._limit_s = kernels, build_s, limit_s

    def built(self, cached: bool) -> None:
        self.built_kernels += 1
        self._compiled += not cached

    def screened(self, seconds: float) -> None:
        self._screens.append(seconds)

    def finished(self, seconds: float) -> None:
        """A workload's finals took so long."""
        self._finals.append(seconds)

    def paused(self, seconds: float) -> None:
        """Time in which nothing was meant to happen does not count."""
        self._started += seconds

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._started

    def _measure_left_s(self, left: tuple[int, int]) -> float:
        """Seconds for (candidates to screen, finals to hold) at the mean pace so far."""
        screen = sum(self._screens) / len(self._screens) if self._screens else 0.0
        final = sum(self._finals) / len(self._finals) if self._finals else 4 * screen
        return (left[0] * screen + left[1] * final) / self.gpus

    def eta_s(self, left: tuple[int, int]) -> float | None:
        """Seconds to the end, or None while nothing was built nor measured."""
        if not self.built_kernels and not self._screens:
            return None
        waiting = self.kernels - self.built_kernels
        build = 0.0
        if waiting > 0:
            pace = self.elapsed_s / self._compiled if self._compiled else self._planned_build_s / max(1, self.kernels)
            build = max(pace * waiting, self._planned_build_s - self.elapsed_s if not self._compiled else 0.0)
        return max(build, self._measure_left_s(left))

    def out_of_time(self, left: tuple[int, int]) -> bool:
        """Whether what remains of the budget is needed for the finals that are still to be held."""
        if self._limit_s is None:
            return False
        return self.elapsed_s + self._measure_left_s((0, left[1])) >= self._limit_s
