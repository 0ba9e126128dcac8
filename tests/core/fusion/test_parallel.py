"""Products of one input as one kernel: what is proposed, what is refused and why; the plan computes the model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.errors import PlanError
from core.fusion.edit import allow, check, forbid, fuse, pin, split
from core.fusion.files import load_plan, save_plan
from core.fusion.parallel import parts_of
from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.propose import Proposal, propose, refusals
from core.graph.ir import Graph
from templates.types import DType
from templates.workload import GemmWorkload
from tests.core.fusion.graphs import Net, weight
from tests.core.fusion.oracle import run_model, run_plan


def linear(net: Net, name: str, x: str, k: int, n: int, bias: bool = True) -> str:
    y = net.op("MatMul", x, net.const(weight(k, n, seed=n)), name=name)
    return net.op("Add", y, net.const(weight(n, seed=1)), name=f"{name}.bias") if bias else y


def projections(bias_of_keys: bool = True) -> tuple[Net, tuple[str, ...]]:
    """Three projections of one tensor, each read by a pointwise node of its own."""
    net = Net(x=(2, 7, 16))
    made = [
        net.op("Exp", linear(net, n, "x", 16, width, bias_of_keys or n != "k"), name=f"{n}.exp")
        for n, width in (("q", 24), ("k", 24), ("v", 8))
    ]
    return net, tuple(made)


def branches() -> tuple[Net, tuple[str, ...]]:
    """Two 1x1 convolutions of one image with ReLU, their results multiplied."""
    net = Net(x=(2, 16, 5, 3))
    left = net.op("Relu", net.conv("x", 8, 16, r=1, name="left"), name="left.relu")
    right = net.op("Relu", net.conv("x", 8, 16, r=1, name="right"), name="right.relu")
    return net, (net.op("Div", net.op("Exp", left, name="exp"), right, name="div"),)


def the_parallel_one(graph: Graph) -> Proposal:
    (found,) = [p for p in propose(graph, plan(graph)) if p.kind is Kind.PARALLEL]
    return found


@pytest.mark.parametrize("make", [projections, lambda: projections(False), branches])
def test_products_of_one_input_compute_the_model_as_one(
    make: Callable[[], tuple[Net, tuple[str, ...]]], tmp_path: Path
) -> None:
    net, outputs = make()
    graph = net.graph(*outputs)
    unfused = plan(graph)
    found = the_parallel_one(graph)
    assert isinstance(found.workload, GemmWorkload) and found.workload.n == (56 if "q.exp" in outputs[0] else 16)
    assert check(graph, unfused, found.nodes).kind is Kind.PARALLEL
    fused = fuse(unfused, graph, found.nodes)
    region = fused.region_of(found.nodes[0])
    assert region is not None and region.workload == found.workload and len(region.outputs) == len(found.regions)
    assert tuple(w.key for w in parts_of(region)) == found.parts
    feeds = {"x": np.random.default_rng(1).standard_normal(graph.shape("x")).astype(np.float32)}
    wanted = run_model(net.model(*outputs).SerializeToString(), feeds)
    for ours, right in zip(run_plan(graph, fused, feeds), wanted, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)
    save_plan(fused, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json", graph) == fused
    apart = split(fused, graph, region.id)
    assert all(r.kind is not Kind.PARALLEL for r in apart.regions)
    again = fuse(apart, graph, found.nodes).region_of(found.nodes[0])
    assert again is not None and (again.nodes, again.workload) == (region.nodes, region.workload)


def test_a_forbidden_or_pinned_product_stays_apart_and_says_so() -> None:
    net, outputs = projections()
    graph = net.graph(*outputs)
    made = plan(graph)
    banned = forbid(made, graph, ["q", "v"])
    assert propose(graph, banned) == []
    assert any(r.reason == "the plan forbids fusing q + v" for r in refusals(graph, banned))
    with pytest.raises(PlanError, match="forbids fusing q"):
        fuse(banned, graph, the_parallel_one(graph).nodes)
    assert the_parallel_one(graph).nodes in [p.nodes for p in propose(graph, allow(banned, graph, ["q"]))]
    held = pin(made, made.region_of("k").id)  # type: ignore[union-attr]
    assert [r.reason for r in refusals(graph, held)] == [f"{made.region_of('k').id} is pinned"]  # type: ignore[union-attr]


def reasons(graph: Graph, dtype: DType = DType.F16) -> list[str]:
    made = plan(graph, dtype)
    assert propose(graph, made) == []
    return [r.reason for r in refusals(graph, made)]


def test_other_epilogues_and_other_products_are_refused() -> None:
    net = Net(x=(8, 16))
    y = net.op("Relu", linear(net, "a", "x", 16, 24), name="relu")
    z = net.op("Tanh", linear(net, "b", "x", 16, 24), name="tanh")
    graph = net.graph(net.op("Exp", y, name="e1"), net.op("Exp", z, name="e2"))
    assert reasons(graph) == ["b has the epilogue bias+tanh, a has bias+relu"]
    net = Net(x=(1, 16, 8, 8))
    y, z = net.conv("x", 8, 16, r=1, name="a"), net.conv("x", 8, 16, r=3, name="b", pads=[1, 1, 1, 1])
    graph = net.graph(net.op("Exp", y, name="e1"), net.op("Exp", z, name="e2"))
    assert reasons(graph) == ["b is another product of its input than a"]


def test_slices_that_would_begin_unaligned_are_refused() -> None:
    net = Net(x=(8, 16))
    made = [net.op("Exp", linear(net, n, "x", 16, 20), name=f"{n}.exp") for n in "ab"]
    assert reasons(net.graph(*made)) == ["a makes 20 columns, no multiple of 8: what lies behind them starts unaligned"]


def test_readers_of_dense_tensors_are_refused() -> None:
    net = Net(x=(1, 16, 8, 8))
    y, z = net.conv("x", 8, 16, r=1, name="a"), net.conv("x", 8, 16, r=1, name="b")
    out = net.conv(y, 8, 8, r=3, name="next"), net.op("Exp", z, name="exp")
    _, why = reasons(net.graph(*out))
    assert why.startswith("its result would have to be copied out of the joint one: next (Conv) reads a dense tensor")
    net = Net(x=(8, 16), dtype="float16")
    graph = net.graph(*(net.op("MatMul", "x", net.const(weight(16, 8, dtype="float16")), name=n) for n in "ab"))
    assert "is an output of the model, which is dense" in reasons(graph)[0]


def test_weights_made_at_run_time_and_sources_are_refused() -> None:
    net = Net(x=(8, 16), w=(16, 8))
    out = [net.op("Exp", net.op("MatMul", "x", w, name=n), name=f"{n}.exp") for n, w in (("a", "w"), ("b", "w"))]
    assert "w of a is computed at run time" in reasons(net.graph(*out))[0]
    net = Net(x=(8, 16), s=(8, 24))
    y = net.op("Add", net.op("MatMul", "x", net.const(weight(16, 24)), name="a"), "s", name="add")
    z = net.op("MatMul", "x", net.const(weight(16, 24)), name="b")
    graph = net.graph(net.op("Exp", y, name="e1"), net.op("Exp", z, name="e2"))
    assert reasons(graph) == ["the epilogue of a reads s, which the other products do not"]


@pytest.mark.parametrize("activation", ["silu", "Gelu", "Relu"])
def test_a_gate_and_what_it_scales_are_told_apart_from_products_that_could_join(activation: str) -> None:
    """act(x W) * (x V): two kernels with the activation in one epilogue and the multiplication in the other."""
    net = Net(x=(8, 16))
    gate, up = linear(net, "gate", "x", 16, 24, bias=False), linear(net, "up", "x", 16, 24, bias=False)
    if activation == "silu":
        gate = net.op("Mul", gate, net.op("Sigmoid", gate, name="sigmoid"), name="act")
    else:
        gate = net.op(activation, gate, name="act")
    graph = net.graph(net.op("MatMul", net.op("Mul", gate, up, name="mul"), net.const(weight(24, 16)), name="down"))
    made = plan(graph)
    assert sorted(r.kind for r in made.regions) == [Kind.GEMM] * 3
    told = [r.reason for r in refusals(graph, made) if "dual GEMM" in r.reason]
    assert len(told) == 1 and "stores one value for two columns" in told[0]
    inside = [n.name for n in graph if n.name != "down"]
    verdict = check(graph, made, inside)
    assert not verdict.legal and "dual GEMM" in verdict.reason
