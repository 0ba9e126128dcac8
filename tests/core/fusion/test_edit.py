"""What a user decides of a plan: pins, forbidden fusions and residences hold through every other edit and on disk."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import PlanError
from core.fusion import edit
from core.fusion.files import load_plan, save_plan
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.fusion.propose import propose, refusals
from core.graph.ir import Graph
from templates import families
from templates.gpu import KNOWN_GPUS
from templates.types import Residence
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    ConvWorkload,
    GemmWorkload,
    Pair,
    parse_workload,
)
from tests.core.fusion.graphs import Net, weight

H200 = KNOWN_GPUS["h200"]


def residual() -> Graph:
    """conv1 - relu1 - conv2 - add1(relu1) - relu2 - pool1 - exp1 - sqrt1."""
    net = Net(x=(1, 64, 8, 8))
    y = net.op("Relu", net.conv("x", 64, 64, name="conv1"), name="relu1")
    z = net.op("Add", net.conv(y, 64, 64, name="conv2"), y, name="add1")
    z = net.op("GlobalAveragePool", net.op("Relu", z, name="relu2"), name="pool1")
    return net.graph(net.op("Sqrt", net.op("Exp", z, name="exp1"), name="sqrt1"))


def tower(width: int = 64) -> Graph:
    """fc1 - relu1 - fc2 - fc3: two pairs could be made."""
    net = Net(x=(4096, 64))
    y = net.op("Relu", net.op("MatMul", "x", net.const(weight(64, width)), name="fc1"), name="relu1")
    y = net.op("MatMul", y, net.const(weight(width, 64)), name="fc2")
    return net.graph(net.op("MatMul", y, net.const(weight(64, 32)), name="fc3"))


def paired(graph: Graph) -> FusionPlan:
    return edit.fuse(plan(graph), graph, ["fc1", "relu1", "fc2"])


def nodes_of(made: FusionPlan) -> list[tuple[str, ...]]:
    return [r.nodes for r in made.regions]


def test_a_pinned_region_survives_reset_and_refuses_other_edits() -> None:
    graph = residual()
    split = edit.split(plan(graph), graph, "r1")
    alone = split.region_of("conv2")
    assert alone is not None
    held = edit.pin(split, alone.id)
    assert edit.reset(split, graph) == plan(graph)
    again = edit.reset(held, graph)
    assert again.region_of("conv2").nodes == ("conv2",) and again.region_of("conv2").pinned  # type: ignore[union-attr]
    assert again.region_of("relu1").nodes == ("conv1", "relu1")  # type: ignore[union-attr]
    verdict = edit.check(graph, held, ["conv2", "add1"])
    assert not verdict.legal and verdict.reason == f"{alone.id} is pinned; unpin it first"
    assert verdict.offending_node == "conv2"
    for change in (
        lambda p: edit.fuse(p, graph, ["conv2", "add1"]),
        lambda p: edit.split(p, graph, p.region_of("conv2").id),
    ):
        with pytest.raises(PlanError, match="pinned"):
            change(held)
    free = edit.pin(held, alone.id, False)
    assert free == split and edit.fuse(free, graph, ["conv2", "add1"]) != free


def test_regions_that_would_wait_for_each_other_are_refused() -> None:
    """Each alone is a region: it writes two results. Side by side each reads one of the other's."""
    net = Net(x=(4, 8))
    first, second = net.op("Softmax", "x"), net.op("Softmax", "x")
    graph = net.graph(net.op("Mul", first, second), net.op("Add", first, second))
    made = edit.fuse(plan(graph), graph, ["softmax1", "mul0"])
    verdict = edit.check(graph, made, ["softmax0", "add0"])
    assert not verdict.legal and verdict.offending_node == "softmax0"
    assert verdict.reason.startswith("softmax1 and mul0 run together, need one of its results")
    with pytest.raises(PlanError, match="take them apart first"):
        edit.fuse(made, graph, ["softmax0", "add0"])
    assert len(edit.fuse(made, graph, ["softmax0", "softmax1", "mul0", "add0"]).regions) == 1


def test_a_forbidden_fusion_is_not_made_again() -> None:
    graph = residual()
    made = edit.forbid(plan(graph), graph, ["conv2", "add1"])
    assert nodes_of(made)[1] == ("conv2",)
    assert made.region_of("conv2").reason.endswith("it ends here: the plan forbids fusing conv2 + add1")  # type: ignore[union-attr]
    assert nodes_of(edit.reset(made, graph)) == nodes_of(made)
    verdict = edit.check(graph, made, ["conv2", "add1", "relu2"])
    assert not verdict.legal and verdict.reason == "the plan forbids fusing conv2 + add1; allow it first"
    with pytest.raises(PlanError, match="forbids fusing conv2"):
        edit.fuse(made, graph, ["conv2", "add1"])
    assert edit.allow(made, graph, ["add1"]) == plan(graph)


def test_pointwise_nodes_that_may_not_fuse_say_so() -> None:
    graph = residual()
    made = edit.forbid(plan(graph), graph, ["exp1", "sqrt1"])
    assert nodes_of(made)[-2:] == [("exp1",), ("sqrt1",)]
    assert {x.reason for x in made.left_alone if x.node in ("exp1", "sqrt1")} == {
        "the plan forbids fusing exp1 + sqrt1"
    }


def test_the_lesser_of_two_bans_is_enough() -> None:
    graph = residual()
    made = edit.forbid(plan(graph), graph, ["conv2", "add1", "relu2"])
    assert made.region_of("conv2").nodes == ("conv2", "add1")  # type: ignore[union-attr]
    made = edit.forbid(made, graph, ["add1", "conv2"])
    assert made.forbidden == (("conv2", "add1"),)


@pytest.mark.parametrize(("nodes", "reason"), [(["conv1"], "two nodes or more"), (["conv1", "no"], "no node named no")])
def test_bans_that_are_none(nodes: list[str], reason: str) -> None:
    graph = residual()
    with pytest.raises(PlanError, match=reason):
        edit.forbid(plan(graph), graph, nodes)


def test_pins_and_bans_keep_pairs_from_being_proposed() -> None:
    graph = tower()
    made = plan(graph)
    assert [p.name for p in propose(graph, made)] == ["r0+r1", "r1+r2", "r0+r1+r2"]
    assert [r.reason for r in refusals(graph, edit.pin(made, "r2"))] == ["r2 is pinned"]
    apart = edit.forbid(made, graph, ["fc1", "fc2"])
    assert [p.regions[0] for p in propose(graph, apart)] == ["r1"]
    assert refusals(graph, apart)[0].reason == "the plan forbids fusing fc1 + fc2"
    assert not edit.check(graph, apart, ["fc1", "relu1", "fc2"]).legal


def test_forbidding_a_pair_takes_it_apart() -> None:
    graph = tower()
    made = edit.forbid(paired(graph), graph, ["fc1", "relu1", "fc2"])
    assert nodes_of(made) == [("fc1", "relu1"), ("fc2",), ("fc3",)]


def test_a_residence_is_part_of_what_is_tuned() -> None:
    graph = tower()
    made = paired(graph)
    chosen = edit.place(made, "r0", Residence.RF, H200)
    region = chosen.regions[0]
    assert isinstance(region.workload, Pair) and region.residence is Residence.RF
    assert region.workload.key == f"{made.regions[0].workload.key} rf"  # type: ignore[union-attr]
    assert parse_workload(region.workload.key) == region.workload
    assert edit.place(chosen, "r0", None, H200) == made


@pytest.mark.parametrize(
    ("width", "residence", "gpu", "reason"),
    [(256, "rf", "a100", "spill registers"), (52, "smem", None, "is not a multiple of")],
)
def test_a_residence_without_a_kernel_is_refused(width: int, residence: str, gpu: str | None, reason: str) -> None:
    graph = tower(width)
    made = paired(graph)
    with pytest.raises(PlanError, match="r0 can't keep its intermediate in") as caught:
        edit.place(made, "r0", Residence(residence), KNOWN_GPUS[gpu] if gpu else None)
    assert reason in str(caught.value)


def test_a_pair_that_no_kernel_runs_on_the_gpu_is_no_fusion() -> None:
    graph = tower(2048)
    nodes = ["fc1", "relu1", "fc2"]
    assert edit.check(graph, plan(graph), nodes).legal
    verdict = edit.check(graph, plan(graph), nodes, H200)
    assert not verdict.legal and "no kernel for this chain on NVIDIA H200: " in verdict.reason
    assert verdict.offending_node == "fc2"


@pytest.mark.parametrize(
    "pair",
    [
        B2bGemmWorkload(GemmWorkload(4096, 64, 64), 64),
        B2bConvWorkload(ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1)), 64),
    ],
)
@pytest.mark.parametrize("name", sorted(n for n in families() if "b2b" in n))
def test_no_kernel_of_any_family_serves_both_residences(name: str, pair: Pair) -> None:
    family = families()[name]

    def legal(residence: Residence | None) -> set[str]:
        asked = replace(pair, residence=residence)
        return {k.name for k in family.kernels(asked, H200) if family.illegal(k, asked, H200) is None}

    rf, smem = legal(Residence.RF), legal(Residence.SMEM)
    assert not rf & smem and rf | smem == legal(None)


def test_only_a_pair_has_a_residence() -> None:
    graph = residual()
    with pytest.raises(PlanError, match=r"r0 \(conv\) has no intermediate to place"):
        edit.place(plan(graph), "r0", Residence.RF)


def test_marks_survive_other_edits_and_saving(tmp_path: Path) -> None:
    graph = tower()
    made = edit.place(edit.pin(paired(graph), "r0"), "r0", Residence.SMEM)
    made = edit.forbid(made, graph, ["fc2", "fc3"])
    assert made.regions[0].kind is Kind.B2B_GEMM
    for again in (edit.reset(made, graph), made):
        assert again.regions[0].pinned and again.regions[0].residence is Residence.SMEM
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json", graph) == made
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('["fc2", "fc3"]', '["fc1", "fc2"]'))
    with pytest.raises(PlanError, match="the plan forbids fusing fc1"):
        load_plan(tmp_path / "plan.json", graph)


GRAPH = residual()
NAMES = [n.name for n in GRAPH]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("fpsba"), st.sets(st.sampled_from(NAMES), min_size=1)), max_size=6))
def test_no_order_of_edits_breaks_a_ban_or_a_pin(steps: list[tuple[str, set[str]]]) -> None:
    made = plan(GRAPH)
    for what, chosen in steps:
        names = sorted(chosen, key=NAMES.index)
        region = made.region_of(names[0])
        assert region is not None
        pins = {r.nodes for r in made.regions if r.pinned}
        try:
            match what:
                case "f":
                    made = edit.fuse(made, GRAPH, names)
                case "p":
                    made = edit.pin(made, region.id)
                case "s":
                    made = edit.split(made, GRAPH, region.id)
                case "b":
                    made = edit.forbid(made, GRAPH, names)
                case "a":
                    made = edit.allow(made, GRAPH, names)
        except PlanError:
            continue
        assert sorted(n for r in made.regions for n in r.nodes) == sorted(NAMES)
        assert pins <= {r.nodes for r in made.regions if r.pinned}
        assert not any(set(ban) <= set(r.nodes) for ban in made.forbidden for r in made.regions)
