"""What a run becomes for the panels, from its events alone."""

from app.document import Document
from app.run import Changes, Run, State, family_of
from app.status import progress_text
from core.measure.measurement import Failure, Phase, Stage
from core.tuner.events import (
    BuildFinished,
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    JobFinished,
    JobStarted,
    Progress,
    WorkloadFinished,
    WorkloadStarted,
)
from tests.app import simulated

KEY = "gemm 64x64x64 f16.f32 row.col identity"
NAME = "sm90_gemm_f16f32_128x128x64_al8x8x8_identity"


def started(replayed: bool = False, measured: bool = True) -> Run:
    run = Run(replayed)
    run.apply([JobStarted("m", "NVIDIA H200", (KEY,), (("r0", KEY),), measured)])
    return run


def test_a_candidate_goes_through_its_states() -> None:
    run = started()
    run.apply([WorkloadStarted(KEY, (NAME, NAME + "@pdl"), 3, 2)])
    assert [r.state for r in run.rows] == [State.QUEUED, State.QUEUED]
    run.apply([BuildStarted((NAME,))])
    assert [r.state for r in run.rows] == [State.BUILDING, State.BUILDING]
    run.apply([BuildFinished(NAME, 4.0, False, registers=168, spill_bytes=0)])
    assert [(r.state, r.registers) for r in run.rows] == [(State.BUILT, 168)] * 2
    run.apply([CandidateMeasured(simulated.measurement(KEY, NAME, 10.0, Phase.SCREEN))])
    run.apply([CandidateMeasured(simulated.measurement(KEY, NAME, 9.0, Phase.FINAL))])
    assert run.rows[0].state is State.FINAL
    assert run.rows[0].us == 9.0
    assert run.workloads[KEY].best_so_far == [(1, 10.0), (2, 9.0)]


def test_a_failure_keeps_its_stage_and_reason() -> None:
    run = started()
    changes = run.apply([CandidateFailed(Failure(KEY, NAME, Stage.VERIFY, "relative error 0.4", "log"))])
    assert run.rows[0].reason == "verify: relative error 0.4"
    assert run.rows[0].log == "log"
    assert changes.workloads == {KEY}
    assert changes.first_new_row == 0


def test_speedup_is_vendor_over_ours_and_only_with_both() -> None:
    run = started()
    ours = simulated.measurement(KEY, NAME, 8.0, Phase.FINAL)
    vendor = simulated.measurement(KEY, "cublaslt", 12.0, Phase.FINAL, "cublasLt 13.0")
    run.apply([WorkloadFinished(KEY, ours, None, 1, 0, False)])
    assert run.workloads[KEY].speedup is None
    run.apply([WorkloadFinished(KEY, ours, vendor, 1, 0, False)])
    assert run.workloads[KEY].speedup == 1.5


def test_a_vendor_kernel_has_the_library_as_its_family() -> None:
    run = started()
    run.apply([CandidateMeasured(simulated.measurement(KEY, "heuristic 3", 12.0, Phase.FINAL, "cublasLt 13.0"))])
    assert run.rows[0].family == "cublasLt 13.0"
    assert run.workloads[KEY].samples == []


def test_provenance_is_said_by_who_measured() -> None:
    assert started().provenance == "measured"
    assert started(measured=False).provenance == "from records"
    assert started(replayed=True).provenance == "replayed"


def test_a_cancelled_run_leaves_no_workload_running() -> None:
    run = started()
    run.apply([WorkloadStarted(KEY, (NAME,), 0, 0), JobFinished(1.0, cancelled=True)])
    assert run.workloads[KEY].state is State.QUEUED
    assert not run.running
    assert progress_text(run).startswith("stopped: 0 of 1")


def test_progress_tells_only_what_is_known() -> None:
    run = started(replayed=True)
    run.apply([Progress(0, 1, 3, 10, 2, 8, 1, None)])
    assert progress_text(run) == "workload 1 of 1, 3 of 10 built, 2 measured, 1 failed (replayed)"
    run.apply([Progress(0, 1, 3, 10, 2, 8, 1, 100.4)])
    assert "about 1 min 40 s left" in progress_text(run, paused=True)
    assert progress_text(run, paused=True).startswith("paused, ")


def test_a_whole_run_counts_rows_and_workloads(document: Document) -> None:
    run = Run()
    events = list(simulated.events(document.plan))
    changes = Changes()
    for at in range(0, len(events), 5):
        changes = run.apply(events[at : at + 5])
    assert changes.finished
    assert set(run.workloads) == set(document.plan.workloads)
    assert all(w.state is State.DONE for w in run.workloads.values())
    assert len(run.rows) == len(run.workloads) * 13
    assert {r.family for r in run.rows} == {"sm90_conv", "sm90_gemm", "cudnn 9.19.0"}


def test_the_family_stands_before_the_types() -> None:
    assert family_of("sm90_gemm_f16f32_128x128x64_al8x8x8_relu@pdl") == "sm90_gemm"
    assert family_of("direct_conv_bf16f32_8x8") == "direct_conv"
    assert family_of("odd") == "odd"
