"""One candidate measured again: whom it is measured beside, what is kept, and who wins."""

from pathlib import Path

import pytest

from core.errors import DeviceError, RecordError
from core.measure.measurement import Failure, Phase
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.again import AgainJob
from core.tuner.events import CandidateFailed, CandidateMeasured, JobFinished, JobStarted, WorkloadFinished
from core.tuner.job import TuningJob
from templates.family import Candidate
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gemm, gpu_identity

FAMILY = StubFamily(tiles=tuple(range(16, 272, 16)))
FAMILIES = {FAMILY.name: FAMILY}
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
WORKLOAD = gemm()


def records(folder: Path) -> Records:
    return Records(folder / "records.sqlite", shipped=[], families=FAMILIES)


def again(folder: Path, name: str, measurer: SimulatedMeasurer | None = None) -> AgainJob:
    measurer = measurer or SimulatedMeasurer()
    return AgainJob(
        WORKLOAD, name, IDENTITY, SimulatedBuilder(), measurer, records(folder), families=FAMILIES, model="m"
    )


@pytest.fixture
def tuned(tmp_path: Path) -> WorkloadFinished:
    job = TuningJob(
        [WORKLOAD], IDENTITY, SimulatedBuilder(), [SimulatedMeasurer()], records(tmp_path), families=FAMILIES
    )
    return job.run(lambda event: None)[WORKLOAD.key]


def other_than(name: str, folder: Path) -> str:
    return next(n for n in records(folder).known(WORKLOAD.key, IDENTITY) if n.partition("@")[0] not in name)


def test_it_is_measured_beside_the_winner_and_the_vendor(tmp_path: Path, tuned: WorkloadFinished) -> None:
    assert tuned.best is not None
    name, measurer, events = other_than(tuned.best.candidate, tmp_path), SimulatedMeasurer(), []
    before = len([r for r in records(tmp_path).all(WORKLOAD.key) if r.outcome.candidate == name])
    found = again(tmp_path, name, measurer).run(events.append)[WORKLOAD.key]
    assert measurer.finals == [(WORKLOAD.key, (name, tuned.best.candidate))]
    assert isinstance(events[0], JobStarted) and isinstance(events[-1], JobFinished) and not events[-1].error
    assert {e.measurement.candidate for e in events if isinstance(e, CandidateMeasured)} >= {name, "cublasLt#3"}
    assert found.best is not None and found.best.candidate == tuned.best.candidate  # it still is the fastest
    after = [r for r in records(tmp_path).all(WORKLOAD.key) if r.outcome.candidate == name]
    assert len(after) == before + 1 and after[-1].outcome.phase is Phase.FINAL  # type: ignore[union-attr]


def test_the_faster_one_of_the_new_finals_is_the_winner_on_record(
    tmp_path: Path, tuned: WorkloadFinished, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned.best is not None
    name = other_than(tuned.best.candidate, tmp_path)

    def us(candidate: Candidate, workload: object) -> float:
        return 1.0 if candidate.name == name else 2.0

    monkeypatch.setattr("tests.core.tuning_stubs.true_us", us)
    again(tmp_path, name).run(lambda event: None)
    best = records(tmp_path).best(WORKLOAD.key, IDENTITY)
    assert best is not None and best.outcome.candidate == name


def test_a_candidate_nobody_recorded_is_found_in_its_family(tmp_path: Path) -> None:
    kernel = next(FAMILY.kernels(WORKLOAD, IDENTITY.gpu.spec))
    name = Candidate(kernel, FAMILY.launches(kernel, WORKLOAD, IDENTITY.gpu.spec)[1]).name
    found = again(tmp_path, name).run(lambda event: None)[WORKLOAD.key]
    assert found.best is not None and found.best.candidate == name and found.measured == 1


def test_one_that_no_family_makes_is_a_line(tmp_path: Path) -> None:
    events: list[object] = []
    with pytest.raises(RecordError, match=r"no template family makes stub_gone .* tune the region anew"):
        again(tmp_path, "stub_gone").run(events.append)
    assert isinstance(events[-1], JobFinished) and "stub_gone" in events[-1].error


def test_one_that_does_not_compile_fails_as_a_record(tmp_path: Path) -> None:
    family = StubFamily(tiles=(13,))
    kernel = next(family.kernels(WORKLOAD, IDENTITY.gpu.spec))
    store = Records(tmp_path / "records.sqlite", shipped=[], families={family.name: family})
    job = AgainJob(
        WORKLOAD, kernel.name, IDENTITY, SimulatedBuilder(), SimulatedMeasurer(), store,
        families={family.name: family},
    )  # fmt: skip
    events: list[object] = []
    found = job.run(events.append)[WORKLOAD.key]
    assert found.best is None and found.failed == 1
    assert any(isinstance(e, CandidateFailed) and "unlucky" in e.failure.reason for e in events)
    assert isinstance(store.all(WORKLOAD.key)[-1].outcome, Failure)


def test_a_cancelled_one_leaves_the_records_as_they_were(tmp_path: Path, tuned: WorkloadFinished) -> None:
    assert tuned.best is not None
    count, events = records(tmp_path).count(), []
    job = again(tmp_path, tuned.best.candidate)
    job.cancel()
    assert job.run(events.append) == {}
    assert events[-1].cancelled and records(tmp_path).count() == count


def test_a_lost_gpu_keeps_the_winner(tmp_path: Path, tuned: WorkloadFinished) -> None:
    class Lost(SimulatedMeasurer):
        def final(self, *args: object) -> list:  # type: ignore[override,type-arg]
            raise DeviceError("the GPU is lost", "look at nvidia-smi")

    assert tuned.best is not None
    with pytest.raises(DeviceError):
        again(tmp_path, tuned.best.candidate, Lost()).run(lambda event: None)
    best = records(tmp_path).best(WORKLOAD.key, IDENTITY)
    assert best is not None and best.outcome == tuned.best
