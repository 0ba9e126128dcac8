"""Persistent fusion: what is proposed, what is refused and why, and that a fused plan computes the model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.errors import PlanError
from core.fusion.edit import check, fuse, place, split
from core.fusion.files import load_plan, save_plan
from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.propose import propose, refusals
from core.fusion.residence import places
from core.graph.ir import Graph
from templates.gpu import KNOWN_GPUS
from templates.types import Residence
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    ConvWorkload,
    GemmWorkload,
    TowerWorkload,
    parse_workload,
)
from tests.core.fusion.graphs import Net, weight
from tests.core.fusion.oracle import run_model, run_plan

H200 = KNOWN_GPUS["h200"]


def repvgg_like() -> Net:
    """conv1 3x3 - relu1 - conv2 1x1 - relu2 - conv3 3x3."""
    net = Net(x=(2, 16, 9, 7))
    y = net.op("Relu", net.conv("x", 32, 16, name="conv1", strides=[2, 2]), name="relu1")
    z = net.op("Relu", net.conv(y, 48, 32, r=1, name="conv2"), name="relu2")
    net.conv(z, 8, 48, name="conv3")
    return net


def tower() -> Net:
    """fc1 - relu1 - fc2 - relu2 - fc3, DLRM's bottom."""
    net = Net(x=(24, 16))
    y = net.op(
        "Relu",
        net.op("Gemm", "x", net.const(weight(64, 16)), net.const(weight(64)), name="fc1", transB=1),
        name="relu1",
    )
    z = net.op("Relu", net.op("MatMul", y, net.const(weight(64, 32)), name="fc2"), name="relu2")
    net.op("Gemm", z, net.const(weight(32, 8)), net.const(weight(8)), name="fc3")
    return net


def test_a_convolution_and_the_pointwise_one_after_it_are_proposed() -> None:
    graph = repvgg_like().graph("conv3.out")
    made = plan(graph)
    (found,) = propose(graph, made, H200)
    assert (found.kind, found.regions) == (Kind.B2B_CONV, ("r0", "r1"))
    assert found.nodes == ("conv1", "relu1", "conv2", "relu2")
    assert isinstance(found.workload, B2bConvWorkload) and parse_workload(found.workload.key) == found.workload
    assert found.parts == tuple(r.workload.key for r in made.regions[:2] if r.workload)
    assert all(r.kind is not Kind.B2B_CONV for r in made.regions), "never without being asked"


def test_a_stems_channels_are_filled_up_for_a_pair() -> None:
    """Alone the stem reads four channels, a pair reads eight; the copy into its layout writes either."""
    net = Net(x=(2, 3, 12, 12))
    y = net.op("Relu", net.conv("x", 48, 3, name="conv1", strides=[2, 2]), name="relu1")
    out = net.conv(y, 48, 48, r=1, name="conv2")
    graph = net.graph(out)
    made = plan(graph)
    (found,) = propose(graph, made, H200)
    assert found.workload.first.c == 8 and " 2x12x12x4 " in f" {found.parts[0]} "
    fused = fuse(made, graph, found.nodes)
    feeds = {"x": np.random.default_rng(2).standard_normal(graph.shape("x")).astype(np.float32)}
    wanted = run_model(net.model(out).SerializeToString(), feeds)
    for ours, right in zip(run_plan(graph, fused, feeds), wanted, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)


def test_a_tower_gives_proposals_that_share_a_region() -> None:
    graph = tower().graph("fc3.out")
    found = propose(graph, plan(graph))
    assert [p.name for p in found] == ["r0+r1", "r1+r2", "r0+r1+r2"]
    assert {p.kind for p in found} == {Kind.B2B_GEMM}
    assert isinstance(found[0].workload, B2bGemmWorkload) and str(found[0].workload.first.epilogue) == "bias+relu"


@pytest.mark.parametrize(("make", "out"), [(repvgg_like, "conv3.out"), (tower, "fc3.out")])
@pytest.mark.parametrize("at", [0, -1])
def test_a_fused_plan_computes_the_model_and_survives_saving(
    make: Callable[[], Net], out: str, at: int, tmp_path: Path
) -> None:
    net = make()
    graph = net.graph(out)
    proposal = propose(graph, plan(graph))[at]
    assert check(graph, plan(graph), proposal.nodes).kind is proposal.kind
    fused = fuse(plan(graph), graph, proposal.nodes)
    region = fused.region_of(proposal.nodes[0])
    assert region is not None and region.workload == proposal.workload and "in the kernel" in region.reason
    assert region.operands is not None and region.operands.b1 and region.operands.b1 != region.operands.b
    feeds = {"x": np.random.default_rng(1).standard_normal(graph.shape("x")).astype(np.float32)}
    wanted = run_model(net.model(out).SerializeToString(), feeds)
    for ours, right in zip(run_plan(graph, fused, feeds), wanted, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)
    save_plan(fused, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json", graph) == fused
    assert propose(graph, fused) == [p for p in propose(graph, fused) if not set(p.nodes) & set(proposal.nodes)]
    assert fuse(split(fused, graph, region.id), graph, proposal.nodes).region_of(proposal.nodes[0]) is not None


def two_convs(r: int = 1, **second: object) -> Graph:
    net = Net(x=(1, 16, 8, 8))
    y = net.op("Relu", net.conv("x", 32, 16, name="conv1"), name="relu1")
    return net.graph(net.conv(y, 32, 32, r=r, name="conv2", **second))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"r": 3}, "its 3x3 filter reads a halo of the intermediate"),
        ({"pads": [1, 1, 1, 1]}, "pads the intermediate"),
        ({"strides": [2, 2]}, "has stride 2x2"),
        ({"group": 4}, "4 groups"),
    ],
)
def test_a_second_convolution_that_moves_is_refused(second: dict[str, object], reason: str) -> None:
    graph = two_convs(**second)  # type: ignore[arg-type]
    made = plan(graph)
    assert propose(graph, made) == []
    (refused,) = refusals(graph, made)
    assert (refused.anchor, refused.node) == ("conv1", "conv2") and reason in refused.reason
    verdict = check(graph, made, ["conv1", "relu1", "conv2"])
    assert not verdict.legal and reason in verdict.reason
    with pytest.raises(PlanError, match=reason[:10]):
        fuse(made, graph, ["conv1", "relu1", "conv2"])


def refused_reason(graph: Graph) -> str:
    made = plan(graph)
    assert propose(graph, made, H200) == []
    return refusals(graph, made, H200)[0].reason


def test_an_intermediate_with_another_reader_is_refused() -> None:
    net = repvgg_like()
    both = net.op("Add", net.conv("relu1.out", 48, 32, r=1, name="side"), "relu2.out", name="add1")
    assert "read by two nodes" in refused_reason(net.graph("conv3.out", both))
    net = repvgg_like()
    assert "is an output of the model" in refused_reason(net.graph("conv3.out", "relu1.out"))


def test_weights_and_biases_must_be_constants() -> None:
    net = Net(x=(24, 16), w=(64, 32), c=(32,))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    assert "computed at run time" in refused_reason(net.graph(net.op("MatMul", y, "w", name="fc2")))
    net = Net(x=(24, 16), c=(32,))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    assert "adds the bias c" in refused_reason(net.graph(net.op("Gemm", y, net.const(weight(64, 32)), "c", name="fc2")))


def test_a_source_in_the_middle_is_refused_and_one_at_the_end_is_not() -> None:
    net = Net(x=(24, 16), s=(24, 64))
    y = net.op("Add", net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1"), "s", name="add1")
    assert "reads s" in refused_reason(net.graph(net.op("MatMul", y, net.const(weight(64, 32)), name="fc2")))
    net = Net(x=(24, 16), s=(24, 32))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    graph = net.graph(net.op("Add", net.op("MatMul", y, net.const(weight(64, 32)), name="fc2"), "s", name="add1"))
    (found,) = propose(graph, plan(graph), H200)
    assert found.nodes == ("fc1", "fc2", "add1") and found.workload.epilogue.has_source


def test_widths_that_no_block_covers_are_refused_on_the_gpu() -> None:
    net = Net(x=(24, 16))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    graph = net.graph(net.op("MatMul", y, net.const(weight(64, 1032)), name="fc2"))
    assert propose(graph, plan(graph)), "without a GPU only the graph decides"
    assert "residence: a block covers N1 up to" in refused_reason(graph)


def test_a_chain_of_three_is_one_region() -> None:
    graph = tower().graph("fc3.out")
    made = plan(graph)
    found = next(p for p in propose(graph, made, H200) if len(p.regions) == 3)
    assert isinstance(found.workload, TowerWorkload) and [p.n for p in found.workload.parts] == [64, 32, 8]
    assert found.parts == tuple(r.workload.key for r in made.regions if r.workload)
    assert parse_workload(found.workload.key) == found.workload and found.workload.key.count("then n") == 2
    verdict = check(graph, made, found.nodes, H200)
    assert verdict.legal and verdict.workload == found.workload
    fused = fuse(made, graph, found.nodes)
    assert propose(graph, fused) == [] and fused.regions[0].residence is None
    with pytest.raises(PlanError, match="is no pair"):
        place(fused, "r0", Residence.SMEM)
    assert "no kernel for this chain on" in check(graph, made, found.nodes, KNOWN_GPUS["a100"]).reason


def test_dlrms_bottom_is_filled_up_to_eight_columns() -> None:
    net = Net(x=(64, 13))
    y = net.op("Relu", net.op("Gemm", "x", net.const(weight(13, 64)), net.const(weight(64)), name="fc1"), name="relu1")
    z = net.op("Relu", net.op("MatMul", y, net.const(weight(64, 32)), name="fc2"), name="relu2")
    graph = net.graph(net.op("Sigmoid", net.op("MatMul", z, net.const(weight(32, 1)), name="fc3"), name="click"))
    found = next(p for p in propose(graph, plan(graph), H200) if len(p.regions) == 3)
    assert isinstance(found.workload, TowerWorkload) and found.workload.first.k == 16 and " 64x64x13 " in found.parts[0]


def test_a_chain_of_three_has_no_source_in_between() -> None:
    net = Net(x=(24, 16), s=(24, 64))
    y = net.op("MatMul", "x", net.const(weight(16, 64)), name="fc1")
    y = net.op("Add", net.op("MatMul", y, net.const(weight(64, 64)), name="fc2"), "s", name="add")
    graph = net.graph(net.op("MatMul", y, net.const(weight(64, 8)), name="fc3"))
    verdict = check(graph, plan(graph), ["fc1", "fc2", "add", "fc3"])
    assert not verdict.legal and "reads s, which would have to be loaded" in verdict.reason


def test_a_region_has_three_anchors_at_most() -> None:
    net, y = Net(x=(24, 16)), "x"
    for i in range(4):
        y = net.op("MatMul", y, net.const(weight(16, 16)), name=f"fc{i}")
    graph = net.graph(y)
    verdict = check(graph, plan(graph), [f"fc{i}" for i in range(4)])
    assert not verdict.legal and "a region has three at most" in verdict.reason and verdict.offending_node == "fc3"
    assert [p.name for p in propose(graph, plan(graph))] == ["r0+r1", "r1+r2", "r0+r1+r2", "r2+r3", "r1+r2+r3"]


def test_where_an_intermediate_can_stay_depends_on_widths_stride_and_gpu() -> None:
    rf, smem = Residence.RF, Residence.SMEM
    narrow = B2bGemmWorkload(GemmWorkload(16384, 64, 256), 64)
    assert places(narrow, H200) == places(narrow, KNOWN_GPUS["a100"]) == (rf, smem)
    assert places(B2bGemmWorkload(GemmWorkload(16384, 512, 256), 256), H200) == (smem,)
    assert places(B2bGemmWorkload(GemmWorkload(16384, 512, 256), 256), KNOWN_GPUS["a100"]) == ()
    strided = B2bConvWorkload(ConvWorkload(32, 28, 28, 96, 192, 3, 3, (1, 1, 1, 1), (2, 2)), 192)
    assert places(strided, H200) == (rf,)
    assert places(B2bConvWorkload(ConvWorkload(32, 14, 14, 192, 192, 3, 3, (1, 1, 1, 1)), 192)) == (rf, smem)
    assert places(B2bGemmWorkload(GemmWorkload(16384, 64, 13), 64)) == ()
