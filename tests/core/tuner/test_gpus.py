"""Several GPUs in one job: who measures what, a GPU that is lost, and which GPUs a machine has."""

import threading
from collections import Counter
from dataclasses import replace

import pytest

from core.errors import DeviceError
from core.measure.measurement import GpuState, Phase
from core.tuner import gpus
from core.tuner.events import CandidateMeasured, Note, WorkloadFinished
from core.tuner.gpus import LocalGpu, gpus_here, visible_entry
from core.tuner.job import Options, TuningJob
from core.tuner.lanes import Usage
from core.tuner.schedule import next_task, to_prepare
from tests.core.test_device import H200 as FACTS
from tests.core.tuner.test_job import FAMILY, IDENTITY, WORKLOADS, of, records, run
from tests.core.tuner.test_parts import build, task
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, gemm


def job(folder, measurers, work=WORKLOADS, builder=None, **options) -> TuningJob:
    families = {FAMILY.name: FAMILY}
    store = records(folder)
    return TuningJob(work, IDENTITY, builder or SimulatedBuilder(), measurers, store, Options(**options), families)


def two(**fields) -> list[SimulatedMeasurer]:
    return [SimulatedMeasurer(name=f"GPU {i}", **fields) for i in range(2)]


MANY = [gemm(m=16 * i) for i in range(1, 13)]


class _Meeting(SimulatedMeasurer):
    """Its first screening waits for the other GPU's, so that both take part however fast one is."""

    def __init__(self, name: str, together: threading.Barrier) -> None:
        super().__init__(name=name)
        self.together = together

    def screen(self, workload, candidates):
        if not self.screened:
            self.together.wait(20)
        yield from super().screen(workload, candidates)


def meeting() -> list[SimulatedMeasurer]:
    together = threading.Barrier(2)
    return [_Meeting(f"GPU {i}", together) for i in range(2)]


def test_each_workload_is_screened_and_decided_on_one_gpu(tmp_path):
    measurers = meeting()
    results, _ = run(job(tmp_path, measurers, MANY))
    first, second = ({key for key, _ in m.screened} for m in measurers)
    assert first and second and not first & second and first | second == {w.key for w in MANY}
    for measurer, own in zip(measurers, (first, second), strict=True):
        assert {key for key, _ in measurer.finals} == own
    alone, _ = run(job(tmp_path / "alone", [SimulatedMeasurer()], MANY))
    assert {k: (r.best, r.vendor) for k, r in results.items()} == {k: (r.best, r.vendor) for k, r in alone.items()}


def test_each_outcome_is_recorded_once(tmp_path):
    measurers = meeting()
    _, events = run(job(tmp_path, measurers, MANY))
    asked = Counter(pair for m in measurers for pair in m.screened)
    kept = Counter(
        (r.outcome.workload, r.outcome.candidate) for r in records(tmp_path).all() if r.outcome.phase is Phase.SCREEN
    )
    told = [e.measurement for e in of(CandidateMeasured, events) if e.measurement.phase is Phase.SCREEN]
    assert kept == asked == Counter((m.workload, m.candidate) for m in told) and max(kept.values()) == 1


class _Lost(_Meeting):
    """Answers `last` times and is gone then, in the finals too."""

    last = 5

    def screen(self, workload, candidates):
        for outcome in super().screen(workload, candidates):
            self._still_there()
            yield outcome

    def final(self, workload, finalists, vendor):
        self._still_there()
        return super().final(workload, finalists, vendor)

    def _still_there(self) -> None:
        if len(self.screened) > self.last:
            raise DeviceError("the GPU fell off the bus", "restart the machine")


def test_a_lost_gpu_hands_its_workloads_over(tmp_path):
    together = threading.Barrier(2)
    lost, other = _Lost("GPU 0", together), _Meeting("GPU 1", together)
    results, events = run(job(tmp_path, [lost, other], MANY))
    assert all(results[w.key].best is not None for w in MANY)
    assert [n.text for n in of(Note, events) if n.level == "warning"] == [
        "GPU 0 is left out from here on: the GPU fell off the bus; restart the machine"
    ]
    kept = Counter((r.outcome.workload, r.outcome.candidate) for r in records(tmp_path).all() if r.candidate)
    finals = Counter((key, name) for m in (lost, other) for key, names in m.finals for name in names)
    assert kept - finals == Counter(set(kept))  # screened once each, whoever did it


def test_the_last_gpu_that_is_lost_ends_the_job(tmp_path):
    together = threading.Barrier(2)
    with pytest.raises(DeviceError, match="fell off the bus"):
        run(job(tmp_path, [_Lost(f"GPU {i}", together) for i in range(2)], MANY))
    assert len(records(tmp_path).all()) >= 10
    assert not [t for t in threading.enumerate() if t.name.startswith("tuner-")]


def test_a_bug_on_one_gpu_is_not_swallowed(tmp_path):
    class Broken(SimulatedMeasurer):
        def screen(self, workload, candidates):
            raise ZeroDivisionError("a bug")
            yield

    with pytest.raises(ZeroDivisionError):
        run(job(tmp_path, [SimulatedMeasurer(), Broken()], MANY))


def test_cancel_ends_all_gpus_and_keeps_what_they_measured(tmp_path):
    measurers = meeting()
    tuning = job(tmp_path, measurers, MANY)
    for measurer in measurers:
        measurer.on_screen = lambda m=measurer: tuning.cancel() if len(m.screened) == 3 else None
    _, events = run(tuning)
    kept = {(r.outcome.workload, r.outcome.candidate) for r in records(tmp_path).all()}
    assert events[-1].cancelled and kept == {pair for m in measurers for pair in m.screened}
    assert len(of(WorkloadFinished, events)) < len(MANY)


def test_waiting_gpus_share_what_is_to_be_prepared(tmp_path):
    measurers = two(steps=1)

    class Late(SimulatedBuilder):
        def build(self, kernels, started=None):
            enough = threading.Event()
            while sum(len(m.readied) for m in measurers) < len(MANY) and not enough.wait(0.01):
                pass
            yield from super().build(kernels, started)

    run(job(tmp_path, measurers, MANY, Late()))
    prepared = [Counter(m.readied) for m in measurers]
    assert sum(prepared, Counter()) == {(w.key, True): 1 for w in MANY}
    assert [p.total() for p in prepared] == [6, 6]


def test_a_gpu_keeps_what_it_began_and_takes_over_what_was_only_prepared():
    tasks = [task(m=m) for m in (64, 256, 1024)]
    for one in tasks:
        build(one)
    assert to_prepare(tasks, 0, 2) == tasks[:2] and to_prepare(tasks, 1, 2) == tasks[2:]
    assert next_task(tasks, 1) is tasks[2]
    tasks[2].begun = tasks[0].begun = True
    assert next_task(tasks, 2) is tasks[1]
    tasks[1].begun = True
    assert next_task(tasks, 2) is None
    tasks[0].release()
    assert next_task(tasks, 2) is tasks[0]


def test_time_is_accounted_for_and_clocks_are_told(tmp_path):
    tuning = job(tmp_path, two(), MANY)
    _, events = run(tuning)
    for usage in tuning.usages:
        parts = usage.measuring_s, usage.preparing_s, usage.waiting_s, usage.idle_s
        assert min(parts) >= 0 and sum(parts) <= events[-1].seconds
    told = [n.text for n in of(Note, events)]
    assert len(told) == 2 and told[0].startswith("GPU 0: ") and "waiting for the compilers" in told[0]


def test_clocks_of_a_gpu_in_words():
    usage = Usage("GPU 3", states=[GpuState(1980), GpuState(1755, throttled=True), GpuState(1965), GpuState(0)])
    assert usage.clocks_mhz == (1755, 1965, 1980) and usage.throttled == 1
    assert str(usage).endswith("; SM clock 1755 to 1980 MHz, median 1965, 1 of 4 measurements throttled")
    assert Usage("GPU 0").clocks_mhz == (0, 0, 0) and "MHz" not in str(Usage("GPU 0"))


# -- which GPUs there are


def _machine(monkeypatch, *names: str) -> None:
    facts = [replace(FACTS, name=n, pci_bus=f"0000:0{i}:00.0") for i, n in enumerate(names)]
    monkeypatch.setattr(gpus, "device_count", lambda: len(facts))
    monkeypatch.setattr(gpus, "read_facts", lambda ordinal: facts[ordinal])
    monkeypatch.setattr(gpus, "driver_version", lambda: "580.159")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus_of_one_kind_are_taken_together(monkeypatch):
    _machine(monkeypatch, "NVIDIA H200", "Tesla T4", "NVIDIA H200")
    found = gpus_here()
    assert [(g.ordinal, g.visible, g.name) for g in found] == [(0, "0", "GPU 0"), (2, "2", "GPU 2")]
    assert [g.pci_bus for g in found] == ["0000:00:00.0", "0000:02:00.0"]
    assert [g.ordinal for g in gpus_here("h200", 1)] == [0] and [g.ordinal for g in gpus_here("t4")] == [1]


def test_more_gpus_than_there_are(monkeypatch):
    _machine(monkeypatch, "NVIDIA H200", "Tesla T4")
    with pytest.raises(DeviceError, match="2 GPUs are asked for, this machine has 1 of NVIDIA H200"):
        gpus_here(count=2)
    with pytest.raises(DeviceError, match=r"no GPU here is a NVIDIA A100.*NVIDIA H200, Tesla T4"):
        gpus_here("a100")


def test_a_child_sees_the_gpu_that_its_parent_means():
    assert visible_entry(1, {}) == "1"
    assert visible_entry(1, {"CUDA_VISIBLE_DEVICES": "3, 5"}) == "5"
    assert visible_entry(0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}) == "GPU-8932f937-d72c"


def test_each_measuring_process_has_a_gpu_of_its_own(monkeypatch):
    from core.tuner import local

    made = [LocalGpu(i, str(4 + i), "", IDENTITY.gpu) for i in range(2)]
    monkeypatch.setattr(local, "gpus_here", lambda name, count: made)
    measurers = local._measurers("auto", "cuda-bindings", None)
    assert [m.name for m in measurers] == ["GPU 0", "GPU 1"]
    assert [m._environment["CUDA_VISIBLE_DEVICES"] for m in measurers] == ["4", "5"]
