"""The arithmetic of timing, on a runtime whose clock the test holds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.measure.measurement import GpuState
from core.measure.nvml import Monitor, combine
from core.measure.timing import MAX_LAUNCHES, BadTime, Timer, launches_for
from tests.core.measure.host_runtime import HostRuntime


class Clock(HostRuntime):
    """Every launch of a graph's kernel takes `us` on this clock."""

    def __init__(self, us: float) -> None:
        super().__init__()
        self.us, self.now, self.runs = us, 0.0, list[int]()

    def run(self, slot: int) -> None:
        self.runs.append(slot)
        self.now += self.us

    def record(self, event: int, stream: int) -> None:
        self._events[event] = self.now / 1e6


class Silent(Monitor):
    def __init__(self) -> None:
        self.absent = "a test"


def timer(clock: Clock) -> Timer:
    return Timer(clock, Silent(), 1)


@given(st.floats(1, 1e5), st.floats(0.01, 1e7), st.integers(1, 512))
def test_launches(target: float, floor: float, slots: int) -> None:
    count = launches_for(target, floor, slots)
    assert 1 <= count <= MAX_LAUNCHES
    if slots * floor < 20_000:
        assert count >= min(slots, MAX_LAUNCHES)
    assert count >= min(slots, 2)
    if count > max(slots, 2):
        assert (count - 1) * floor < max(target, 20_000)


def test_a_short_kernel_is_launched_many_times_and_a_long_one_once_round() -> None:
    assert launches_for(400, 2.0, 64) == 200
    assert launches_for(400, 500.0, 2) == 2
    assert launches_for(400, 50_000.0, 64) == 2, "the verified sets are always passed over"


def test_sample_is_per_launch_over_rotating_slots() -> None:
    clock = Clock(7.5)
    made = timer(clock)
    chain = made.chain("k", clock.run, slots=3, launches=7)
    assert clock.runs == [], "capturing runs nothing"
    assert made.sample(chain) == pytest.approx(7.5)
    assert clock.runs == [0, 1, 2, 0, 1, 2, 0] * 2


@pytest.mark.parametrize("us", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_can_not_be_is_refused(us: float) -> None:
    clock = Clock(us)
    made = timer(clock)
    with pytest.raises(BadTime):
        made.sample(made.chain("k", clock.run, 1, 4))


def test_warm_up_runs_until_the_clock_is_steady_and_only_after_a_pause() -> None:
    clock, readings = Clock(100.0), iter([500, 900, 1500, 1505, 1505, 1505])

    class Rising(Silent):
        def sm_mhz(self) -> int:
            return next(readings)

    made = Timer(clock, Rising(), 1)
    chain = made.chain("k", clock.run, 1, 10)
    assert made.warm_up(chain) == pytest.approx(100.0)
    assert next(readings) == 1505, "four looks: the third and the fourth agree"
    before = len(clock.runs)
    made.warm_up(chain)
    assert len(clock.runs) == before + 20, "the GPU was busy just now: one sample"


def test_states_combine_to_the_worst() -> None:
    assert combine([]) == GpuState()
    found = combine([GpuState(1980, 3201, 40, 300.0, False), GpuState(1700, 3201, 55, 650.0, True)])
    assert found == GpuState(1700, 3201, 55, 650.0, True)


def test_without_nvml_the_state_is_zero_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.measure import nvml

    monkeypatch.setattr(nvml, "_library", lambda: None)
    monitor = Monitor("0000:00:00.0")
    assert monitor.state() == GpuState() and monitor.sm_mhz() == 0 and "NVML" in monitor.absent
