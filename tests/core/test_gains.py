"""Fused kernels against their parts: which figures compare, and which parts a fusion has."""

from pathlib import Path

from core.fusion.planner import plan as make_plan
from core.gains import Timed, Way, gains, recorded_times, unfused
from core.measure.measurement import Measurement, Phase
from core.records.rows import Identity
from core.records.store import Records
from core.search.rank import rank
from core.session import open_model
from templates.epilogue import parse_epilogue
from templates.gpu import KNOWN_GPUS
from templates.workload import B2bGemmWorkload, GemmWorkload
from tests.core.tuning_stubs import gemm, gpu_identity

RELU = parse_epilogue("bias+relu")


def test_an_epilogue_is_taken_off_step_by_step_the_least_fused_first() -> None:
    w = GemmWorkload(64, 64, 64, epilogue=parse_epilogue("bias+add+relu->f32"))
    found = [(parts[0].epilogue, left) for parts, left in unfused(w)]
    assert [(str(e), left) for e, left in found] == [
        ("identity->f32", "bias+add+relu"), ("bias->f32", "add+relu"), ("bias+add->f32", "relu"),
    ]  # fmt: skip
    assert unfused(GemmWorkload(64, 64, 64)) == []


def test_a_pair_has_two_parts_that_do_all_it_does() -> None:
    pair = B2bGemmWorkload(gemm(64, 16, 32), 8, RELU)
    assert unfused(pair) == [(pair.parts, "")]


def test_only_figures_of_one_run_compare_and_the_rest_is_counted() -> None:
    session = open_model("mlp")
    keys = {r.id: r.workload for r in session.plan.regions if r.workload}
    first, second, *_ = keys.values()
    assert isinstance(first, GemmWorkload) and isinstance(second, GemmWorkload)
    bare, other = unfused(first)[0][0][0].key, unfused(second)[0][0][0].key
    known = {
        first.key: Timed(10.0, 9.0, "a"), bare: Timed(9.5, 9.25, "a"),
        second.key: Timed(10.0, 9.0, "a"), other: Timed(9.5, 9.25, "b"),
    }  # fmt: skip
    found = gains(session.graph, session.plan, [("this run", known.get)])
    (gain,) = found.found
    assert gain.way is Way.EPILOGUE and gain.made and gain.source == "this run"
    assert gain.fused_us == 10.0 and gain.parts == ((bare, 9.25),) and gain.saved_us == -0.75
    assert gain.left_out == str(first.epilogue)
    assert found.unknown >= 1
    later = {**known, second.key: Timed(8.0, 8.0, "b")}
    assert len(gains(session.graph, session.plan, [("x", known.get), ("y", later.get)]).found) == 2


def test_a_pair_that_could_be_made_is_compared_with_its_parts() -> None:
    session = open_model("repvgg-a0-aug")
    plan = make_plan(session.graph, session.plan.dtype)
    times = {}

    def all_known(key: str) -> Timed:
        return times.setdefault(key, Timed(7.0 if key.startswith("b2b") else 4.0, 3.0, "r"))

    pairs = [g for g in gains(session.graph, plan, [("r", all_known)]).found if g.way is Way.PERSISTENT]
    assert pairs
    for gain in pairs:
        assert len(gain.parts) == 2 and gain.parts_us == 6.0 and gain.saved_us == -1.0


def test_records_give_ours_and_the_better_of_ours_and_the_vendors(tmp_path: Path) -> None:
    records = Records(tmp_path / "r.sqlite", shipped=[])
    identity = Identity(gpu_identity(), "13.0.88", "4.2.0")
    key = gemm().key
    assert recorded_times(records, identity.gpu.name)(key) is None
    candidate = rank(gemm(), KNOWN_GPUS["h200"]).candidates[0].candidate
    ours = Measurement(key, candidate.name, Phase.FINAL, (8.0,), 1e-4, 1e-3)
    vendor = Measurement(key, "v", Phase.FINAL, (6.0,), 1e-4, 1e-3, "cublasLt 13")
    records.add(ours, identity, candidate, run="r1")
    records.add(vendor, identity, None, run="r1")
    assert recorded_times(records, identity.gpu.name)(key) == Timed(8.0, 6.0, "r1")
