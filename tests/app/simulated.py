"""A simulated tuning run for the window's tests: made-up times, the real tuner's order of events. Never shipped."""

import random
from collections.abc import Iterator

from core.fusion.plan import FusionPlan
from core.measure.measurement import Failure, GpuState, Measurement, Phase, Stage
from core.tuner.events import (
    BuildFinished,
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    Event,
    JobFinished,
    JobStarted,
    Listener,
    Note,
    Progress,
    WorkloadFinished,
    WorkloadStarted,
)

STATE = GpuState(1980, 3201, 54, 612.0)


def events(plan: FusionPlan, per_workload: int = 12, seed: int = 7) -> Iterator[Event]:
    """Every kind of event, for every workload of the plan."""
    rng = random.Random(seed)
    keys = list(plan.workloads)
    regions = tuple((r.id, r.workload.key) for r in plan.regions if r.workload)
    yield JobStarted(plan.model, "NVIDIA H200", tuple(keys), regions, measured=True)
    measured = failed = 0
    for done, key in enumerate(keys):
        family = "sm90_conv" if key.startswith("conv") else "sm90_gemm"
        mine = mine_failed = 0
        names = [
            f"{family}_f16f32_{64 * (1 + i % 4)}x{64 * (1 + i // 4)}x64_pingpong_al8x8x8" for i in range(per_workload)
        ]
        yield WorkloadStarted(key, tuple(names), skipped=40, illegal=9)
        base = rng.uniform(6, 60)
        best: Measurement | None = None
        for i, name in enumerate(names):
            yield BuildStarted((name,))
            yield BuildFinished(name, rng.uniform(2, 9), cached=i % 3 == 0, registers=rng.randrange(96, 232))
            if i % 7 == 5:
                failed, mine_failed = failed + 1, mine_failed + 1
                yield CandidateFailed(
                    Failure(key, name, Stage.REFUSED, "needs 240 KiB of shared memory, 227 are there")
                )
                continue
            us = base * rng.uniform(1.0, 1.7)
            m = measurement(key, name, us, Phase.SCREEN if i < per_workload - 4 else Phase.FINAL)
            measured, mine = measured + 1, mine + 1
            yield CandidateMeasured(m)
            best = m if best is None or m.us < best.us else best
            left = (len(keys) - done) * 2.0
            yield Progress(done, len(keys), measured, 0, measured, 0, failed, left, STATE)
        vendor = measurement(key, "cudnn", base * rng.uniform(0.85, 1.6), Phase.FINAL, "cudnn 9.19.0")
        yield CandidateMeasured(vendor)
        yield WorkloadFinished(key, best, vendor, mine, mine_failed, from_records=False)
    yield Note("warning", "clocks were not steady for the first 2 s")
    yield Progress(len(keys), len(keys), measured, measured, measured, measured, failed, 0.0, STATE)
    yield JobFinished(31.5)


def measurement(key: str, name: str, us: float, phase: Phase, source: str = "template") -> Measurement:
    detail = "" if source == "template" else "plan 3: implicit GEMM, fused bias and ReLU"
    return Measurement(key, name, phase, (us * 0.98, us, us * 1.03), 3.1e-4, 0.0156, source, detail, STATE)


class Job:
    """Stands for the tuner's job: plays events, can be held and stopped in between."""

    def __init__(self, played: "list[Event]", hold_after: int | None = None) -> None:
        import threading

        self.played, self.hold_after = played, hold_after
        self.cancelled, self.paused, self.released = threading.Event(), threading.Event(), threading.Event()

    def pause(self) -> None:
        self.paused.set()

    def resume(self) -> None:
        self.paused.clear()

    def cancel(self) -> None:
        self.cancelled.set()
        self.released.set()

    def run(self, listener: Listener) -> None:
        for i, event in enumerate(self.played):
            if i == self.hold_after:
                self.released.wait()
            if self.cancelled.is_set():
                listener(JobFinished(1.0, cancelled=True))
                return
            listener(event)
