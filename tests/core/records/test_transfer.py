"""Records of other GPUs and of other activations give kernels a place among the candidates, and nothing more."""

from dataclasses import replace

import pytest

from core.measure.measurement import GpuState, Measurement, Phase
from core.records.rows import Identity
from core.records.store import Records
from core.records.transfer import promising
from core.search.rank import rank
from core.tuner.job import Options, TuningJob
from core.tuner.prepare import make_tasks
from templates.epilogue import Epilogue, EpilogueOp
from templates.family import Candidate
from templates.gpu import KNOWN_GPUS
from tests.core.tuning_stubs import (
    H200,
    SimulatedBuilder,
    SimulatedMeasurer,
    StubFamily,
    gemm,
    gpu_identity,
    kernels_of,
)

FAMILY = StubFamily(tiles=tuple(range(8, 200, 3)))
FAMILIES = {"stub": FAMILY}
HERE = Identity(gpu_identity(), "13.0.88", "4.2.0")
THERE = Identity(gpu_identity(KNOWN_GPUS["a100"]), "13.0.88", "4.2.0")
WORK = gemm()
GELU = replace(WORK, epilogue=Epilogue((EpilogueOp("bias"), EpilogueOp("gelu_erf"))))
KERNELS = kernels_of(FAMILY)
UNLIKELY = sorted(KERNELS, key=lambda k: FAMILY.score(Candidate(k), WORK, H200).us)[-6:]


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records.sqlite", shipped=[], families=FAMILIES)


def add(records, kernel, us, identity, workload=WORK, run="r", taken="2026-01-01"):
    kernel = replace(kernel, epilogue=workload.epilogue)
    outcome = Measurement(workload.key, Candidate(kernel).name, Phase.FINAL, (us,), 1e-4, 1e-3, state=GpuState(1980))
    records.add(outcome, identity, Candidate(kernel), run=run, taken=taken)


def test_the_nearest_evidence_comes_first(records):
    add(records, UNLIKELY[0], 3.0, HERE, GELU)
    add(records, UNLIKELY[1], 9.0, THERE)
    add(records, UNLIKELY[2], 5.0, THERE)
    add(records, UNLIKELY[3], 7.0, HERE)
    add(records, UNLIKELY[4], 1.0, THERE, GELU)  # another GPU and another activation: too far
    wanted = [UNLIKELY[3], UNLIKELY[2], UNLIKELY[1], UNLIKELY[0]]
    assert promising(records, WORK, "NVIDIA H200") == tuple((k.family, k.stem) for k in wanted)


def test_only_the_newest_run_and_todays_templates_speak(records, tmp_path):
    add(records, UNLIKELY[0], 1.0, THERE, run="old", taken="2025-01-01")
    add(records, UNLIKELY[1], 5.0, THERE, run="new", taken="2026-01-01")
    assert promising(records, WORK, "NVIDIA H200") == ((UNLIKELY[1].family, UNLIKELY[1].stem),)
    newer = Records(tmp_path / "records.sqlite", shipped=[], families={"stub": replace(FAMILY, version=2)})
    assert promising(newer, WORK, "NVIDIA H200") == ()


def test_seeds_have_a_place_but_not_all_places():
    seeds = [(k.family, k.stem) for k in UNLIKELY]
    plain = rank(WORK, H200, FAMILIES, 4)
    seeded = rank(WORK, H200, FAMILIES, 4, seeds=seeds)
    stems = [r.kernel.stem for r in seeded.candidates]
    assert stems[:2] == [r.kernel.stem for r in plain.candidates[:2]]
    assert set(stems[2:]) == {s for _, s in seeds[:2]}
    assert len(rank(WORK, H200, FAMILIES, 16, seeds=seeds).candidates) == 16


def test_a_seed_that_is_not_legal_here_is_passed_over():
    assert rank(WORK, H200, FAMILIES, 4, seeds=[("stub", "t7"), ("gone", "x")]) == rank(WORK, H200, FAMILIES, 4)


def test_a_job_tries_what_won_on_another_gpu(records):
    """And measures it: the record from elsewhere is no result here."""
    add(records, UNLIKELY[0], 1e-3, THERE)
    job = TuningJob([WORK], HERE, SimulatedBuilder(), [SimulatedMeasurer()], records, Options(limit=4), FAMILIES)
    events = []
    result = job.run(events.append)[WORK.key]
    tried = {e.measurement.candidate for e in events if hasattr(e, "measurement")}
    assert any(name.startswith(UNLIKELY[0].name) for name in tried)
    assert result.best.us > 1e-3
    assert make_tasks([WORK], HERE, FAMILIES, SimulatedBuilder(), 4, None)[0].ranking == rank(WORK, H200, FAMILIES, 4)
