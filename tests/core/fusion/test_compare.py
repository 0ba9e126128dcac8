"""Plan A against B: what both have cancels out, what was not measured is never counted as if it were."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fusion import edit
from core.fusion.compare import Figure, compare
from core.fusion.plan import FusionPlan, Kind, Region
from core.fusion.planner import plan
from core.graph.ir import Graph
from templates.types import Residence
from tests.core.fusion.graphs import Net, weight


@pytest.fixture
def tower() -> Graph:
    """fc1 - relu1 - fc2 - fc3."""
    net = Net(x=(4096, 64))
    y = net.op("Relu", net.op("MatMul", "x", net.const(weight(64, 64)), name="fc1"), name="relu1")
    y = net.op("MatMul", y, net.const(weight(64, 64)), name="fc2")
    return net.graph(net.op("MatMul", y, net.const(weight(64, 32)), name="fc3"))


def figures(*times: tuple[Region, float], measured: bool = True) -> dict[str, Figure]:
    source = "measured" if measured else "estimated"
    return {r.workload.key: Figure(us, source, measured) for r, us in times if r.workload}


def test_a_pair_against_its_parts(tower: Graph) -> None:
    apart = plan(tower)
    pair = edit.fuse(apart, tower, ["fc1", "relu1", "fc2"])
    known = figures((apart.regions[0], 5.0), (apart.regions[1], 4.0), (pair.regions[0], 7.5))
    found = compare(apart, pair, known)
    (difference,) = found.differences
    assert [r.id for r in difference.a.regions] == ["r0", "r1"] and [r.id for r in difference.b.regions] == ["r0"]
    assert difference.gain_us == found.gain_us == pytest.approx(1.5)
    assert found.same == 1 and [r.nodes for r in found.b.unknown] == [("fc3",)]
    assert (found.a.measured_us, found.b.measured_us) == (9.0, 7.5)
    assert compare(pair, apart, known).gain_us == pytest.approx(-1.5)


def test_an_estimate_gives_no_gain_and_stands_apart(tower: Graph) -> None:
    apart = plan(tower)
    pair = edit.fuse(apart, tower, ["fc1", "relu1", "fc2"])
    known = figures((apart.regions[0], 5.0), (apart.regions[1], 4.0)) | figures((pair.regions[0], 7.5), measured=False)
    found = compare(apart, pair, known)
    assert found.gain_us is None and found.differences[0].gain_us is None
    assert (found.b.measured_us, found.b.estimated_us) == (0.0, 7.5)
    assert found.differences[0].b.estimated == (pair.regions[0],)


def test_what_is_not_tuned_is_not_measured(tower: Graph) -> None:
    whole = plan(tower)
    split = edit.split(whole, tower, "r0")
    found = compare(whole, split, figures((whole.regions[0], 5.0), (split.regions[0], 4.9)))
    assert [r.nodes for r in found.differences[0].b.unknown] == [("relu1",)]
    assert found.gain_us is None


def test_a_pin_is_no_difference_and_a_residence_is_one(tower: Graph) -> None:
    made = edit.fuse(plan(tower), tower, ["fc1", "relu1", "fc2"])
    assert compare(made, edit.pin(made, "r0"), {}).differences == ()
    assert compare(made, edit.pin(made, "r0"), {}).gain_us == 0
    assert len(compare(made, edit.place(made, "r0", Residence.SMEM), {}).differences) == 1


def cut(lengths: list[int], total: int) -> FusionPlan:
    """A plan of a chain of `total` nodes, cut after each of these lengths."""
    places = sorted({0, total, *(p % total for p in lengths)})
    groups = [tuple(f"n{i}" for i in range(a, b)) for a, b in pairwise(places)]
    return FusionPlan("chain", tuple(Region(f"r{i}", Kind.POINTWISE, g, (), (), "") for i, g in enumerate(groups)))


@given(st.lists(st.integers(0, 99), max_size=12), st.lists(st.integers(0, 99), max_size=12), st.integers(1, 40))
def test_differences_cover_the_same_nodes_and_are_least(one: list[int], two: list[int], total: int) -> None:
    a, b = cut(one, total), cut(two, total)
    found = compare(a, b, {})
    for d in found.differences:
        nodes = [{n for r in s.regions for n in r.nodes} for s in (d.a, d.b)]
        assert nodes[0] == nodes[1]
        inner = [{r.nodes[0] for r in s.regions[1:]} for s in (d.a, d.b)]
        assert not inner[0] & inner[1], "a cut that both plans have parts two differences"
    same = {r.nodes for r in a.regions} & {r.nodes for r in b.regions}
    assert found.same == len(same)
    assert sum(len(d.b.regions) for d in found.differences) == len(b.regions) - len(same)
