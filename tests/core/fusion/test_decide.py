"""A pair is fused only when it was measured faster than the best of its parts in the same run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.fusion.decide import decide
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.fusion.propose import Proposal, propose
from core.graph.ir import Graph
from core.measure.measurement import Measurement, Phase
from core.records.rows import Identity
from core.records.store import Records
from templates.family import Candidate
from tests.core.fusion.graphs import Net, weight
from tests.core.tuning_stubs import StubFamily, gpu_identity, kernels_of

FAMILY = StubFamily()
CANDIDATE = Candidate(kernels_of(FAMILY)[0])
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
Case = tuple[Graph, FusionPlan, list[Proposal]]


@pytest.fixture
def tower() -> Case:
    """fc1 - fc2 - fc3: two proposals that share fc2, and one of all three."""
    net = Net(x=(24, 16))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    y = net.op("MatMul", y, net.const(weight(64, 32)), name="fc2")
    graph = net.graph(net.op("MatMul", y, net.const(weight(32, 8)), name="fc3"))
    made = plan(graph)
    return graph, made, propose(graph, made)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    store = Records(tmp_path / "r.sqlite", shipped=[], families={"stub": FAMILY})
    yield store
    store.close()


def tell(records: Records, key: str, us: float, run: str = "a", vendor: bool = False) -> None:
    source = "cublasLt 13" if vendor else "template"
    name = source if vendor else CANDIDATE.name
    found = Measurement(key, name, Phase.FINAL, (us,), 1e-4, 1e-3, source)
    records.add(found, IDENTITY, None if vendor else CANDIDATE, run=run, taken=f"2026-01-0{1 + (run == 'b')}")


def kinds(made: FusionPlan) -> list[Kind]:
    return [r.kind for r in made.regions]


def test_the_faster_form_is_taken(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    first = proposals[0]
    for key, us in zip((*first.parts, first.workload.key), (5.0, 4.0, 8.0), strict=True):
        tell(records, key, us)
    made, decisions = decide(graph, unfused, proposals, records, IDENTITY)
    assert kinds(made) == [Kind.B2B_GEMM, Kind.GEMM]
    assert decisions[0].fused and decisions[0].gain_us == pytest.approx(1.0)
    assert decisions[0].reason == "8.00 us in one kernel, faster than 5.00 + 4.00 us in two"
    assert not decisions[1].fused and decisions[1].reason == "no kernel of them all was measured"


def test_a_slower_pair_stays_apart(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    for key, us in zip((*proposals[0].parts, proposals[0].workload.key), (5.0, 4.0, 9.0), strict=True):
        tell(records, key, us)
    made, decisions = decide(graph, unfused, proposals, records, "NVIDIA H200")
    assert made == unfused and "no faster than" in decisions[0].reason


def test_the_vendor_is_a_form_only_where_it_is_allowed(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    for key, us in zip((*proposals[0].parts, proposals[0].workload.key), (5.0, 4.0, 8.0), strict=True):
        tell(records, key, us)
    tell(records, proposals[0].parts[0], 3.0, vendor=True)
    assert decide(graph, unfused, proposals, records, IDENTITY)[1][0].fused
    assert not decide(graph, unfused, proposals, records, IDENTITY, allow_vendor=True)[1][0].fused


def test_figures_of_other_runs_do_not_compare(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    for key, us, run in zip((*proposals[0].parts, proposals[0].workload.key), (5.0, 4.0, 1.0), "aab", strict=True):
        tell(records, key, us, run)
    made, decisions = decide(graph, unfused, proposals, records, IDENTITY)
    assert made == unfused and "measured in another run" in decisions[0].reason


def test_of_two_that_share_a_region_the_one_that_saves_more_is_made(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    parts = (*proposals[0].parts, proposals[1].parts[1])
    for key, us in zip((*parts, *(p.workload.key for p in proposals[:2])), (5.0, 4.0, 6.0, 8.0, 5.0), strict=True):
        tell(records, key, us)
    made, decisions = decide(graph, unfused, proposals, records, IDENTITY)
    assert kinds(made) == [Kind.GEMM, Kind.B2B_GEMM]
    assert [d.fused for d in decisions] == [False, True, False]
    assert decisions[0].reason.endswith("but r1 with r2 saves more")


def test_a_chain_of_three_that_saves_most_is_made(tower: Case, records: Records) -> None:
    graph, unfused, proposals = tower
    whole = proposals[2]
    assert len(whole.parts) == 3
    for key, us in zip((*whole.parts, *(p.workload.key for p in proposals)), (5, 4, 6, 8, 5, 9), strict=True):
        tell(records, key, float(us))
    made, decisions = decide(graph, unfused, proposals, records, IDENTITY)
    assert len(made.regions) == 1 and made.regions[0].workload == whole.workload
    assert [d.fused for d in decisions] == [False, False, True]
    assert decisions[2].reason == "9.00 us in one kernel, faster than 5.00 + 4.00 + 6.00 us in three"
    assert decisions[0].reason.endswith("but r0 with r1 with r2 saves more")
