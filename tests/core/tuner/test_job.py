import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from core.errors import DeviceError, RecordError, ToolchainError
from core.fusion.plan import FusionPlan, Kind, Region
from core.measure.measurement import Failure, Measurement, Phase, Stage
from core.records.exchange import write_file
from core.records.layer import Layer
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.events import (
    BuildFinished,
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    JobFinished,
    JobStarted,
    Note,
    Progress,
    WorkloadFinished,
    WorkloadStarted,
)
from core.tuner.job import Options, TuningJob
from templates.family import Candidate
from templates.workload import ConvWorkload
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gemm, gpu_identity, true_us

FAMILY = StubFamily(tiles=tuple(range(16, 272, 16)))
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
WORKLOADS = [gemm(m=m) for m in (64, 256, 1024, 4096)]


def records(folder: Path, family: StubFamily = FAMILY) -> Records:
    return Records(folder / "records.sqlite", shipped=[], families={family.name: family})


def job(folder: Path, work=WORKLOADS, family: StubFamily = FAMILY, builder=None, measurer=None, **options) -> TuningJob:
    return TuningJob(
        work,
        IDENTITY,
        builder or SimulatedBuilder(),
        [measurer or SimulatedMeasurer()],
        records(folder, family),
        Options(**options),
        {family.name: family},
    )


def run(tuning: TuningJob):
    events = []
    return tuning.run(events.append), events


def of(kind, events):
    return [e for e in events if isinstance(e, kind)]


def test_the_fastest_verified_candidate_wins_each_workload(tmp_path):
    results, _ = run(job(tmp_path))
    assert set(results) == {w.key for w in WORKLOADS}
    for workload in WORKLOADS:
        kernels = list(FAMILY.kernels(workload, IDENTITY.gpu.spec))
        launches = FAMILY.launches(kernels[0], workload, IDENTITY.gpu.spec)
        ideal = min(true_us(Candidate(k, launch), workload) for k in kernels for launch in launches)
        assert results[workload.key].best.us == pytest.approx(ideal)
        assert results[workload.key].vendor.source == "cublasLt 13.0.2" and not results[workload.key].from_records


def test_events_tell_the_whole_story(tmp_path):
    builder, measurer = SimulatedBuilder(), SimulatedMeasurer()
    _, events = run(job(tmp_path, builder=builder, measurer=measurer, limit=5))
    assert isinstance(events[0], JobStarted) and events[0].measured and len(events[0].regions) == 4
    assert isinstance(events[-1], JobFinished) and not events[-1].cancelled and events[-1].error == ""
    started = of(WorkloadStarted, events)
    assert [len(e.candidates) for e in started] == [5] * 4 and all(e.skipped == 11 for e in started)
    built = [e.kernel for e in of(BuildFinished, events)]
    assert sorted(built) == sorted(k.name for k in builder.compiled)
    assert sorted(n for e in of(BuildStarted, events) for n in e.kernels) == sorted(built)
    screens = [e.measurement for e in of(CandidateMeasured, events) if e.measurement.phase is Phase.SCREEN]
    assert Counter((m.workload, m.candidate) for m in screens) == Counter(measurer.screened)
    last = of(Progress, events)[-1]
    assert (last.workloads_done, last.workloads, last.built, last.to_build) == (4, 4, len(built), len(built))
    assert last.measured == last.to_measure and last.eta_s == 0.0 and last.state.sm_mhz == 1980


def test_kernels_are_shared_and_built_once(tmp_path):
    builder = SimulatedBuilder()
    run(job(tmp_path, builder=builder, limit=8))
    assert max(Counter(builder.compiled).values()) == 1
    assert len(builder.compiled) <= len(FAMILY.tiles)


def test_equal_workloads_are_tuned_once(tmp_path):
    gemms = [Region(f"r{i}", Kind.GEMM, (f"n{i}",), ("a",), ("b",), "", workload=gemm()) for i in range(3)]
    regions = (*gemms, Region("pool", Kind.POOL, ("p",), ("b",), ("c",), ""))
    measurer = SimulatedMeasurer()
    results, events = run(job(tmp_path, FusionPlan("mlp", regions), measurer=measurer))
    assert list(results) == [gemm().key] and len(measurer.finals) == 1
    assert events[0].model == "mlp" and [r for r, _ in events[0].regions] == ["r0", "r1", "r2"]


def test_finals_hold_the_best_few_and_other_launches_are_tried(tmp_path):
    measurer = SimulatedMeasurer()
    run(job(tmp_path, [gemm()], measurer=measurer, finalists=3))
    ((_, finalists),) = measurer.finals
    assert len(finalists) == 3 and all(name.endswith("@z2_pdl") for name in finalists[:1])
    screened = [name for _, name in measurer.screened]
    assert len(screened) == len(set(screened))


def test_a_second_run_measures_nothing(tmp_path):
    first, _ = run(job(tmp_path))
    builder, measurer = SimulatedBuilder(), SimulatedMeasurer()
    second, events = run(job(tmp_path, builder=builder, measurer=measurer))
    assert builder.compiled == [] and measurer.screened == [] and measurer.finals == []
    assert all(r.from_records for r in second.values())
    for key, result in second.items():
        assert (result.best, result.vendor) == (first[key].best, first[key].vendor)
        assert (result.measured, result.failed) == (first[key].measured, first[key].failed)
    assert of(Progress, events)[-1].workloads_done == 4


def test_no_vendor_of_another_run_stands_beside_a_recorded_winner(tmp_path):
    run(job(tmp_path / "elsewhere"))
    write_file(tmp_path / "x.json.gz", records(tmp_path / "elsewhere").dump())
    for from_records in (False, True):
        tuning = job(tmp_path, vendor=False)
        tuning._records = Records(tmp_path / "r.sqlite", [tmp_path / "x.json.gz"], {FAMILY.name: FAMILY})
        results, _ = run(tuning)
        assert {(r.vendor, r.from_records) for r in results.values()} == {(None, from_records)}


def test_the_gpu_is_made_ready_while_the_compilers_work(tmp_path):
    measurer = SimulatedMeasurer(steps=2)
    screened_by_then = []

    class Late(SimulatedBuilder):
        def build(self, kernels, started=None):
            deadline = time.monotonic() + 30
            while len(measurer.readied) < 8 and time.monotonic() < deadline:
                time.sleep(0.01)
            screened_by_then.append(len(measurer.screened))
            yield from super().build(kernels, started)

    run(job(tmp_path, builder=Late(), measurer=measurer, vendor=False))
    assert Counter(measurer.readied) == {(w.key, False): 2 for w in WORKLOADS} and screened_by_then == [0]


def test_retune_measures_again(tmp_path):
    run(job(tmp_path))
    measurer = SimulatedMeasurer()
    run(job(tmp_path, measurer=measurer, retune=True))
    assert len(measurer.finals) == 4 and measurer.screened


def test_a_vendor_that_was_left_out_is_measured_when_wanted(tmp_path):
    results, _ = run(job(tmp_path, vendor=False))
    assert all(r.vendor is None for r in results.values())
    measurer = SimulatedMeasurer()
    results, _ = run(job(tmp_path, measurer=measurer))
    assert all(r.vendor is not None for r in results.values()) and measurer.screened == []


def test_an_absent_vendor_is_no_figure(tmp_path):
    results, _ = run(job(tmp_path, measurer=SimulatedMeasurer(vendor_us=None)))
    assert all(r.vendor is None and r.best is not None for r in results.values())


def test_a_new_version_of_a_family_is_tuned_again(tmp_path):
    run(job(tmp_path))
    measurer = SimulatedMeasurer()
    results, _ = run(job(tmp_path, family=replace(FAMILY, version=2), measurer=measurer))
    assert len(measurer.finals) == 4 and not any(r.from_records for r in results.values())


def test_another_driver_is_tuned_again(tmp_path):
    run(job(tmp_path))
    tuning = job(tmp_path)
    tuning.identity = replace(IDENTITY, gpu=gpu_identity(driver="999"))
    results, _ = run(tuning)
    assert not any(r.from_records for r in results.values())


FAULTY = StubFamily(tiles=(13, 32, 64, 128, 998, 999))


@dataclass(frozen=True)
class _Optimist(StubFamily):
    """Thinks the bad tiles are the best."""

    def score(self, candidate, workload, gpu):
        good = super().score(candidate, workload, gpu)
        return replace(good, us=0.1) if candidate.kernel["tile"] in (13, 998, 999) else good


def test_failures_cost_only_themselves(tmp_path):
    family = _Optimist(tiles=FAULTY.tiles)
    results, events = run(job(tmp_path, family=family))
    for result in results.values():
        assert result.best is not None and result.failed >= 3
    stages = Counter(e.failure.stage for e in of(CandidateFailed, events))
    assert stages == {Stage.COMPILE: 4, Stage.VERIFY: 4, Stage.CRASH: 4}
    kept = records(tmp_path, family).failures(WORKLOADS[0].key)
    assert {r.outcome.stage for r in kept} == {Stage.COMPILE, Stage.VERIFY, Stage.CRASH}
    assert all(r.candidate is not None for r in kept)


def test_a_workload_where_everything_fails_has_no_winner(tmp_path):
    results, _ = run(job(tmp_path, family=StubFamily(tiles=(13, 999))))
    assert all(r.best is None and r.failed == 2 and r.vendor is not None for r in results.values())


class _FullGpu(SimulatedMeasurer):
    def _outcome(self, workload, candidate, phase):
        return Failure(workload.key, candidate.name, Stage.LAUNCH, "out of memory")


def test_a_failure_that_may_pass_is_tried_again(tmp_path):
    results, _ = run(job(tmp_path, measurer=_FullGpu()))
    assert not any(r.best for r in results.values())
    results, _ = run(job(tmp_path))
    assert all(r.best and not r.from_records for r in results.values())


def test_pruned_records_are_tuned_again(tmp_path):
    run(job(tmp_path))
    store = records(tmp_path)
    for table in ("measurements", "failures"):
        store._own.delete(table, [r["id"] for r in store._own.rows(table)])
    results, _ = run(job(tmp_path))
    assert all(r.best and not r.from_records for r in results.values())


def test_a_workload_that_no_family_serves_has_no_winner(tmp_path):
    results, events = run(job(tmp_path, [ConvWorkload(1, 8, 8, 8, 8, 3, 3)]))
    (result,) = results.values()
    assert result.best is None and result.measured == 0 and of(WorkloadStarted, events)[0].candidates == ()


class _ZeroTimes(SimulatedMeasurer):
    def _outcome(self, workload, candidate, phase):
        found = super()._outcome(workload, candidate, phase)
        return replace(found, samples_us=(0.0, 1.0)) if candidate.kernel["tile"] == 64 else found


def test_a_time_of_zero_is_a_failure_and_never_wins(tmp_path):
    results, events = run(job(tmp_path, [gemm(m=256)], measurer=_ZeroTimes()))
    assert "t64_" not in results[gemm(m=256).key].best.candidate
    assert any("can't be true" in e.failure.reason for e in of(CandidateFailed, events))


class _FailsFinals(SimulatedMeasurer):
    def final(self, workload, finalists, vendor):
        outcomes = super().final(workload, finalists, vendor)
        if len(self.finals) > 1:
            return outcomes
        return [
            Failure(o.workload, o.candidate, Stage.CRASH, "gone") if o.source == "template" else o for o in outcomes
        ]


def test_finalists_that_fail_give_way_to_the_next(tmp_path):
    measurer = _FailsFinals()
    results, _ = run(job(tmp_path, [gemm()], measurer=measurer, finalists=2))
    assert len(measurer.finals) == 2 and not set(measurer.finals[0][1]) & set(measurer.finals[1][1])
    assert results[gemm().key].best.candidate in measurer.finals[1][1]


class _Forgetful(SimulatedMeasurer):
    def screen(self, workload, candidates):
        yield from list(super().screen(workload, candidates))[:-1]


def test_a_candidate_without_an_outcome_is_a_failure(tmp_path):
    results, events = run(job(tmp_path, measurer=_Forgetful()))
    assert len(results) == 4
    assert any("no outcome" in e.failure.reason for e in of(CandidateFailed, events))


# -- stopping and going on


def test_cancel_keeps_everything_and_the_next_run_repeats_nothing(tmp_path):
    first = SimulatedMeasurer()
    tuning = job(tmp_path, measurer=first)
    first.on_screen = lambda: tuning.cancel() if len(first.screened) == 9 else None
    results, events = run(tuning)
    assert events[-1].cancelled and len(results) < 4 and len(first.screened) == 10
    kept = {(r.outcome.workload, r.outcome.candidate) for r in records(tmp_path).all() if _screen(r)}
    assert kept == set(first.screened)
    second = SimulatedMeasurer()
    results, events = run(job(tmp_path, measurer=second))
    assert len(results) == 4 and not set(second.screened) & set(first.screened)
    whole, _ = run(job(tmp_path / "whole"))
    assert {k: r.best.candidate for k, r in results.items()} == {k: r.best.candidate for k, r in whole.items()}


def _screen(record) -> bool:
    return isinstance(record.outcome, Measurement) and record.outcome.phase is Phase.SCREEN


def test_cancel_stops_the_builder(tmp_path):
    builder = SimulatedBuilder(delay_s=0.2)
    tuning = job(tmp_path, builder=builder)
    threading.Timer(0.3, tuning.cancel).start()
    _, events = run(tuning)
    assert builder.closed.is_set() and events[-1].cancelled
    assert not [t for t in threading.enumerate() if t.name == "tuner-build"]


def test_pause_starts_nothing_new_and_resume_goes_on(tmp_path):
    measurer = SimulatedMeasurer()
    tuning = job(tmp_path, measurer=measurer)
    measurer.on_screen = lambda: tuning.pause() if len(measurer.screened) == 4 else None
    thread = threading.Thread(target=run, args=(tuning,))
    thread.start()
    deadline = time.monotonic() + 20
    while len(measurer.screened) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.4)
    assert len(measurer.screened) == 5
    tuning.resume()
    thread.join(20)
    assert not thread.is_alive() and len(measurer.finals) == 4


def test_a_budget_leaves_the_least_promising_kernels_out(tmp_path):
    builder = SimulatedBuilder()
    _, events = run(job(tmp_path, builder=builder, limit=8, budget_minutes=4))
    assert len(builder.compiled) <= 4 * 60 * 0.6 / 20
    assert any("the budget leaves" in n.text for n in of(Note, events))
    assert all(e.best is not None for e in of(WorkloadFinished, events))


def test_what_a_budget_left_out_is_tried_by_the_next_run(tmp_path):
    first, measurer = SimulatedBuilder(), SimulatedMeasurer()
    run(job(tmp_path, builder=first, limit=8, budget_minutes=4))
    second = SimulatedBuilder(built=set(first.built))
    results, _ = run(job(tmp_path, builder=second, measurer=measurer, limit=8))
    assert second.compiled and not set(second.compiled) & set(first.compiled)
    assert not any(r.from_records for key, r in results.items() if key in dict(measurer.finals))
    third = SimulatedMeasurer()
    results, _ = run(job(tmp_path, measurer=third, limit=8))
    assert all(r.from_records for r in results.values()) and not third.finals


def test_when_the_time_is_over_finals_are_held_of_what_was_screened(tmp_path):
    builder = SimulatedBuilder(delay_s=0.15)
    builder.built.update(FAMILY.kernels(gemm(), IDENTITY.gpu.spec))
    results, events = run(job(tmp_path, builder=builder, budget_minutes=1 / 60))
    assert any("time is over" in n.text for n in of(Note, events))
    assert len(results) == 4 and any(r.best for r in results.values())
    assert records(tmp_path).finished(WORKLOADS[0].key, IDENTITY) is None  # the next run goes on


def test_a_compiler_that_goes_away_stops_the_job_but_not_the_measuring(tmp_path):
    builder = SimulatedBuilder(error_after=(5, ToolchainError("nvcc is gone", "run setup")))
    tuning = job(tmp_path, builder=builder)
    events = []
    with pytest.raises(ToolchainError, match="nvcc is gone"):
        tuning.run(events.append)
    assert events[-1] == replace(events[-1], error="nvcc is gone; run setup")
    assert any(e.best is not None for e in of(WorkloadFinished, events))
    results, _ = run(job(tmp_path))
    assert len(results) == 4 and not any(r.from_records for r in results.values())


def test_a_compiler_that_was_never_there_measures_no_vendor_alone(tmp_path):
    measurer = SimulatedMeasurer()
    builder = SimulatedBuilder(error_after=(0, ToolchainError("nvcc is gone")))
    with pytest.raises(ToolchainError):
        run(job(tmp_path, builder=builder, measurer=measurer))
    assert measurer.finals == []


def test_a_bug_in_the_builder_is_not_swallowed(tmp_path):
    builder = SimulatedBuilder(error_after=(2, ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        run(job(tmp_path, builder=builder))


def test_a_lost_gpu_stops_the_job(tmp_path):
    class Lost(SimulatedMeasurer):
        def screen(self, workload, candidates):
            raise DeviceError("the GPU is gone", "reset it")
            yield

    events = []
    with pytest.raises(DeviceError):
        job(tmp_path, measurer=Lost()).run(events.append)
    assert "the GPU is gone" in events[-1].error


def test_records_that_cannot_be_written_stop_the_job(tmp_path):
    tuning = job(tmp_path)
    (measurer,) = tuning._measurers

    def fill() -> None:
        if len(measurer.screened) == 3:
            connection = tuning._records._own._database.conn
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count={pages}")

    measurer.on_screen = fill
    with pytest.raises(RecordError, match="disk is full"):
        for _ in range(50):
            run(tuning)
    assert len(records(tmp_path).all()) >= 3


def _tune_slowly(folder: Path) -> None:
    measurer = SimulatedMeasurer(delay_s=0.02)

    def log() -> None:
        with (folder / "screened").open("a") as file:
            file.write("x\n")

    measurer.on_screen = log
    run(job(folder, measurer=measurer))


def test_kill_9_in_the_middle_loses_nothing_and_repeats_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_tune_slowly, args=(tmp_path,))
    process.start()
    log = tmp_path / "screened"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("x") > 12) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    started = log.read_text().count("x")
    kept = {(r.outcome.workload, r.outcome.candidate) for r in records(tmp_path).all() if _screen(r)}
    assert started > 12 and len(kept) >= started - 1  # the one on the GPU at that moment may be lost
    measurer = SimulatedMeasurer()
    results, _ = run(job(tmp_path, measurer=measurer))
    assert len(results) == 4 and not set(measurer.screened) & kept
    whole, _ = run(job(tmp_path / "whole"))
    assert {k: r.best.candidate for k, r in results.items()} == {k: r.best.candidate for k, r in whole.items()}


def test_a_search_of_more_kernels_goes_on_where_a_smaller_one_ended(tmp_path):
    run(job(tmp_path, limit=3))
    second = SimulatedMeasurer()
    results, _ = run(job(tmp_path, measurer=second, limit=8))
    assert not any(r.from_records for r in results.values())
    assert Counter(w for w, _ in second.screened) and len(second.finals) == len(WORKLOADS)
    assert all(r.measured > 3 for r in results.values())
    third = SimulatedMeasurer()
    for limit in (8, 3):
        results, _ = run(job(tmp_path, measurer=third, limit=limit))
        assert all(r.from_records for r in results.values()) and not third.screened


def test_finals_are_kept_as_a_whole(tmp_path, monkeypatch):
    """A process that ends between two outcomes of the finals leaves none of them: half would name another winner."""
    tuning = job(tmp_path, WORKLOADS[:1], limit=4)
    insert = Layer.insert

    def ends(self, rows):
        rows = list(rows)
        finals = [i for i, (table, row) in enumerate(rows) if table == "measurements" and row["phase"] == "final"]
        if finals:
            rows.insert(finals[1], ("measurements", {"no such column": 1}))
        return insert(self, rows)

    monkeypatch.setattr(Layer, "insert", ends)
    with pytest.raises(RecordError):
        run(tuning)
    monkeypatch.undo()
    store = records(tmp_path)
    assert store.best(WORKLOADS[0].key, IDENTITY) is None and store.known(WORKLOADS[0].key, IDENTITY)
    results, _ = run(job(tmp_path, WORKLOADS[:1], limit=4))
    assert results[WORKLOADS[0].key].best is not None
