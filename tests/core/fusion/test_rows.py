"""Passes over rows: which pointwise nodes a reduction takes along, and that plans with them compute the model."""

import numpy as np
import pytest

from core.errors import PlanError
from core.export.rows import space_of
from core.fusion.edit import check
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from tests.core.export.models import Model, reference
from tests.core.fusion.graphs import graph_of
from tests.core.fusion.oracle import run_plan


def proven(m: Model, *outputs: str) -> tuple[Graph, FusionPlan]:
    """The prepared graph and its plan, which computes what ONNX Runtime says."""
    model = m.build(*outputs)
    graph = prepare(graph_of(model))
    made = plan(graph)
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, graph.shape(t)).astype(np.float32) for t in graph.inputs]
    for mine, wanted in zip(run_plan(graph, made, dict(zip(graph.inputs, inputs, strict=True))),
                            reference(model, inputs), strict=True):  # fmt: skip
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    return graph, made


def rows_of(made: FusionPlan) -> list[int]:
    return [len(r.nodes) for r in made.regions if r.kind is Kind.REDUCTION]


def spelled_rms(m: Model, x: str, width: int) -> str:
    mean = m.op("ReduceMean", m.op("Pow", x, m.const(np.float32(2))), m.const(np.array([-1])))
    root = m.op("Sqrt", m.op("Add", mean, m.const(np.float32(1e-6))))
    return m.op("Mul", m.op("Div", x, root), m.weight(width))


def test_rms_norm_in_six_nodes_is_one_region():
    m = Model()
    _, made = proven(m, spelled_rms(m, m.input(3, 5, 16), 16))
    assert rows_of(made) == [6] and len(made.regions) == 1


def test_the_residual_sum_before_a_norm_is_a_second_result():
    m = Model()
    x, branch = m.input(4, 8), m.input(4, 8)
    total = m.op("Add", m.op("Relu", x), branch)
    norm = m.op("LayerNormalization", total, m.weight(8), m.weight(8))
    _, made = proven(m, m.op("Add", m.op("MatMul", norm, m.weight(8, 8)), total))
    region = next(r for r in made.regions if r.kind is Kind.REDUCTION)
    assert region.outputs == (total, norm) and len(region.nodes) == 3


def test_no_region_waits_for_what_it_makes():
    """The last sum reads the norm and works on the same rows, but the product lies between."""
    m = Model()
    norm = m.op("LayerNormalization", m.input(4, 8), m.weight(8), m.weight(8))
    weights = m.op("Softmax", m.op("MatMul", norm, m.input(8, 8)))
    _, made = proven(m, m.op("Add", weights, norm), m.op("Tanh", norm))
    assert [r.nodes for r in made.regions] == [("n0", "n4"), ("n1",), ("n2", "n3")]


def test_two_groups_do_not_wait_for_each_other():
    """a1 -> b1, b2 -> a2 with no path inside: each group alone is fine, both together are a circle."""
    m = Model()
    x, y = m.input(4, 8), m.input(4, 8)
    a1, b2 = m.op("Softmax", x), m.op("LogSoftmax", y)
    b1 = m.op("Add", b2, m.op("Expand", m.op("ReduceSum", a1, m.const(np.array([0]))), m.const(np.array([4, 8]))))
    a2 = m.op("Add", a1, m.op("Expand", m.op("ReduceSum", b2, m.const(np.array([0]))), m.const(np.array([4, 8]))))
    proven(m, b1, a2)


@pytest.mark.parametrize("why", ["other rows", "dropped", "broadcast", "integers"])
def test_what_works_on_other_rows_stays_apart(why):
    m = Model()
    x = m.op("Softmax", m.input(4, 6, 8))
    if why == "other rows":
        y = m.op("ReduceSum", x, m.const(np.array([1])))
    elif why == "dropped":
        y = m.op("Exp", m.op("ReduceSum", x, m.const(np.array([2])), keepdims=0))
    elif why == "broadcast":
        y = m.op("Add", x, m.weight(3, 4, 6, 8))
    else:
        y = m.op("ArgMax", x, axis=2)
    _, made = proven(m, y)
    assert len(made.regions) == 2


def test_a_few_long_rows_keep_their_pointwise_work_spread():
    m = Model()
    _, made = proven(m, m.op("ReduceMean", m.op("Exp", m.input(2, 40000)), m.const(np.array([1]))))
    assert len(made.regions) == 2


def test_a_users_group_is_judged_alike():
    m = Model()
    x = m.input(4, 6, 8)
    soft = m.op("Softmax", m.op("Add", x, m.weight(6, 8)))
    graph = graph_of(m.build(m.op("Tanh", soft), m.op("ReduceSum", soft, m.const(np.array([1])))))
    kept = plan(graph, overrides=[["n0", "n1"]])
    assert kept.region_of("n0") is kept.region_of("n1") and kept.region_of("n0").kind is Kind.REDUCTION
    with pytest.raises(PlanError, match=r"n3 \(ReduceSum\) reduces other rows, n1 works on rows of \(4, 6, 8\)"):
        plan(graph, overrides=[["n0", "n1", "n3"]])


def test_a_forbidden_fusion_is_not_made():
    m = Model()
    graph = graph_of(m.build(m.op("Softmax", m.op("Exp", m.input(4, 8)))))
    assert len(plan(graph).regions) == 1
    assert len(plan(graph, forbidden=[["n0", "n1"]]).regions) == 2


def test_group_norms_rows_are_of_the_split_channels():
    m = Model()
    y = m.op("GroupNormalization", m.input(2, 6, 5), m.weight(6), m.weight(6), num_groups=3)
    graph = graph_of(m.build(y))
    space = space_of(graph, graph.node("n0"))
    assert space is not None
    assert (space.shape, space.axes, space.whole, space.reduced) == (
        (2, 3, 2, 5), (2, 3), (2, 6, 5), (2, 3, 1, 1)
    )  # fmt: skip
    assert space.view((6, 1)) == (1, 3, 2, 1) and space.view((5,)) == (1, 1, 1, 5) and space.view((4, 1)) is None


def test_a_group_around_what_it_waits_for_is_refused():
    """Two softmaxes of one shape with a product between them."""
    m = Model()
    first = m.op("Softmax", m.input(2, 3, 8))
    graph = prepare(graph_of(m.build(m.op("Softmax", m.op("MatMul", first, m.weight(8, 8))))))
    verdict = check(graph, plan(graph), ["n0", "n2"])
    assert not verdict.legal and "makes what another node of it reads" in verdict.reason
