"""The parts of a job on their own: its tasks, its order of kernels, its clock, its build thread."""

import queue
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.build.artifact import BuiltKernel
from core.errors import DeviceError
from core.measure.measurement import Failure, Measurement, Phase, Stage
from core.search.rank import rank
from core.tuner import local
from core.tuner.building import BuildThread, Built, Ended, Started
from core.tuner.clock import Clock
from core.tuner.prepare import make_task
from core.tuner.schedule import Chosen, fit_budget, kernel_order
from core.tuner.task import Task, sane
from templates.family import Candidate
from tests.core.tuning_stubs import H200, SimulatedBuilder, StubFamily, gemm, gpu_identity, kernels_of, true_us

FAMILY = StubFamily(tiles=tuple(range(16, 272, 16)))
FAMILIES = {"stub": FAMILY}


def task(m: int = 256, regions: int = 1, limit: int = 8) -> Task:
    return make_task(gemm(m=m), regions, H200, FAMILIES, limit, frozenset())


def build(one: Task) -> None:
    for kernel in list(one.waiting):
        one.kernel_built(kernel, BuiltKernel(kernel, Path("x.so"), 1.0, False))


def measured(one: Task, candidate: Candidate, us: float | None = None) -> Measurement:
    us = us or true_us(candidate, one.workload)
    return Measurement(one.key, candidate.name, Phase.SCREEN, (us,), 1e-4, 1e-3)


def test_a_candidate_without_a_chance_is_dropped_once_its_family_has_shown_how_its_estimates_err():
    one = Task(gemm(m=16), rank(gemm(m=16), H200, FAMILIES, 16))
    for ranked in one.ranking.candidates:
        one.await_kernel(ranked.candidate)
    build(one)
    ready = list(one.ready)
    one.ready = []
    for candidate in ready[:3]:
        one.keep(measured(one, candidate, 2.0))
    one.ready = ready[3:]
    taken = one.take_ready()
    assert one.hopeless > 0 and len(taken) + one.hopeless == len(ready) - 3
    slowest = max(r.score.us for r in one.ranking.candidates)
    assert slowest not in [r.score.us for r in one.ranking.candidates if r.candidate in [c for c, _ in taken]]


def test_nothing_is_dropped_before_a_family_has_been_seen():
    one = task(m=16)
    build(one)
    count = len(one.ready)
    one.keep(measured(one, one.ready[0], 0.01))
    assert len(one.take_ready()) == count and one.hopeless == 0


def test_finalists_are_near_the_best_and_have_not_failed():
    one = task()
    build(one)
    for i, candidate in enumerate(list(one.ready)):
        one.keep(measured(one, candidate, 10.0 + i))
    names = [c.name for c in one.ready]
    assert [c.name for c in one.best_screened(9)] == names[:4]  # 10, 11, 12 and 13 us are within 1.3 times the best
    one.keep(Failure(one.key, names[0], Stage.CRASH, "it died"))
    assert one.best_screened(1)[0].name == names[1]
    assert names[1] not in [c.name for c in one.best_screened(3, beside=[names[1]])]


def test_a_kernel_that_fails_fails_all_that_wait_for_it():
    one = task()
    kernel = next(iter(one.waiting))
    ((candidate, failure),) = one.kernel_failed(kernel, Failure("", kernel.name, Stage.COMPILE, "bad", "log"))
    assert candidate.kernel == kernel and failure.workload == one.key and failure.log == "log"
    assert kernel not in one.waiting and one.failed == {candidate.name: failure}


@pytest.mark.parametrize(
    "change",
    [
        {"samples_us": ()}, {"samples_us": (0.0,)}, {"samples_us": (1.0, float("nan"))}, {"samples_us": (-1.0,)},
        {"samples_us": (float("inf"),)}, {"relative_l2": float("nan")}, {"max_abs": float("inf")},
    ],
)  # fmt: skip
def test_figures_that_cannot_be_true_are_failures(change):
    good = Measurement("w", "c", Phase.SCREEN, (1.0,), 1e-4, 1e-3)
    assert sane(good) is good
    assert isinstance(sane(replace(good, **change)), Failure)


def test_shared_and_heavy_kernels_come_first():
    tasks = [task(m=64, regions=1), task(m=256, regions=1), task(m=256 + 8, regions=20)]
    order = kernel_order(tasks)
    assert sorted(k.name for k in order) == sorted({k.name for t in tasks for k in t.waiting})
    assert order[0] == tasks[2].ranking.candidates[0].kernel


@given(minutes=st.floats(0, 20), limit=st.integers(1, 12))
def test_a_budget_keeps_each_workloads_first_and_no_more_than_fit(minutes, limit):
    tasks = [task(m=m, limit=limit) for m in (16, 256, 4096)]
    order, builder = kernel_order(tasks), SimulatedBuilder()
    kept = fit_budget(order, tasks, builder, minutes * 60)
    firsts = {t.ranking.candidates[0].kernel for t in tasks}
    assert firsts <= set(kept) and kept == [k for k in order if k in set(kept)]
    assert builder.seconds(kept) <= minutes * 60 or set(kept) == firsts


def test_built_and_taken_kernels_are_cheap():
    builder = SimulatedBuilder()
    first, second, third, *_ = kernels_of(FAMILY)
    builder.built.add(first)
    chosen = Chosen(builder)
    chosen.take([second])
    assert first in chosen and second in chosen and third not in chosen


class Ticking:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_the_eta_is_none_until_there_is_something_to_go_by():
    now = Ticking()
    clock = Clock(now)
    clock.start(10, 200.0, None)
    assert clock.eta_s((40, 4)) is None
    now.time = 50.0
    for _ in range(5):
        clock.built(cached=False)
    assert clock.eta_s((0, 0)) == pytest.approx(50.0)  # five more at the pace of the first five
    for _ in range(4):
        clock.screened(2.0)
    assert clock.eta_s((40, 4)) == pytest.approx(40 * 2.0 + 4 * 8.0)  # measuring takes longer than building now
    clock.finished(1.0)
    assert clock.eta_s((40, 4)) == pytest.approx(84.0)


def test_cached_kernels_say_nothing_of_the_pace():
    now = Ticking()
    clock = Clock(now)
    clock.start(4, 100.0, None)
    now.time = 1.0
    clock.built(cached=True)
    clock.built(cached=True)
    assert clock.eta_s((0, 0)) == pytest.approx(99.0)


def test_the_time_for_finals_is_kept_back_and_pauses_do_not_count():
    now = Ticking()
    clock = Clock(now)
    clock.start(1, 1.0, 60.0)
    clock.finished(5.0)
    now.time = 49.0
    assert not clock.out_of_time((9, 2))
    now.time = 50.0
    assert clock.out_of_time((9, 2)) and not clock.out_of_time((9, 1))
    clock.paused(10.0)
    assert not clock.out_of_time((9, 2))


def test_the_build_thread_tells_all_and_ends():
    told = queue.Queue()
    thread = BuildThread(SimulatedBuilder(), threading.Event(), told)
    thread.start(kernels_of(FAMILY)[:2])
    thread._thread.join(10)
    messages = [told.get_nowait() for _ in range(5)]
    assert [type(m) for m in messages] == [Started, Built, Started, Built, Ended] and messages[-1].error is None
    thread.join()


def test_the_gpu_that_is_named_must_be_here(monkeypatch):
    monkeypatch.setattr(local, "resolve_gpu", lambda name: gpu_identity() if name in ("auto", "h200") else _named(name))
    assert local.gpu_here("auto") == local.gpu_here("h200") == gpu_identity()
    with pytest.raises(DeviceError, match=r"the GPU here is NVIDIA H200, not t4.*--replay"):
        local.gpu_here("t4")


def _named(name: str):
    return replace(gpu_identity(), name="Tesla T4")


def test_without_a_gpu_the_replay_is_offered(monkeypatch):
    def none(name: str) -> None:
        raise DeviceError("no NVIDIA driver on this machine", "install it")

    monkeypatch.setattr(local, "resolve_gpu", none)
    with pytest.raises(DeviceError, match=r"no NVIDIA driver.*--replay"):
        local.gpu_here()
