"""Plan files and edits: what is legal comes back unchanged, what is not is refused with the reason and the node."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import PlanError
from core.fusion.edit import check, fuse, reset, split
from core.fusion.files import load_plan, save_plan
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.graph.ir import Graph
from templates.types import DType
from tests.core.fusion.graphs import Net


@pytest.fixture
def graph() -> Graph:
    """conv1 - relu1 - conv2 - add1(relu1) - relu2 - pool1 - exp1 - sqrt1."""
    net = Net(x=(1, 64, 8, 8))
    y = net.op("Relu", net.conv("x", 64, 64, name="conv1"), name="relu1")
    z = net.op("Add", net.conv(y, 64, 64, name="conv2"), y, name="add1")
    z = net.op("GlobalAveragePool", net.op("Relu", z, name="relu2"), name="pool1")
    return net.graph(net.op("Sqrt", net.op("Exp", z, name="exp1"), name="sqrt1"))


def nodes_of(found: FusionPlan) -> list[tuple[str, ...]]:
    return [r.nodes for r in found.regions]


def written(tmp_path: Path, *groups: object, **head: object) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": "bolt-plan", "version": 1, "groups": list(groups)} | head))
    return path


def test_saved_plan_loads_as_it_was(graph: Graph, tmp_path: Path) -> None:
    made = plan(graph, DType.BF16)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json", graph) == made
    assert json.loads((tmp_path / "plan.json").read_text())["groups"][0] == {
        "kind": "conv",
        "nodes": ["conv1", "relu1"],
    }


def test_edited_plan_survives_saving(graph: Graph, tmp_path: Path) -> None:
    edited = fuse(split(plan(graph), graph, "r1"), graph, ["conv2", "add1"])
    assert nodes_of(edited) == [("conv1", "relu1"), ("conv2", "add1"), ("relu2",), ("pool1",), ("exp1", "sqrt1")]
    save_plan(edited, tmp_path / "plan.json")
    assert nodes_of(load_plan(tmp_path / "plan.json", graph)) == nodes_of(edited)
    assert reset(edited, graph) == plan(graph)


def test_node_kept_alone_says_so(graph: Graph, tmp_path: Path) -> None:
    found = load_plan(written(tmp_path, {"nodes": ["relu1"]}), graph)
    assert nodes_of(found)[:2] == [("conv1",), ("relu1",)]
    alone = next(x for x in found.left_alone if x.node == "relu1")
    assert alone.reason == "the plan keeps it alone"
    assert next(r for r in found.refusals if r.anchor == "conv1").reason == "the plan keeps relu1 alone"


def test_taking_a_node_replans_what_is_left_of_its_region(graph: Graph) -> None:
    edited = fuse(plan(graph), graph, ["conv2"])
    assert nodes_of(edited) == [("conv1", "relu1"), ("conv2",), ("add1", "relu2"), ("pool1",), ("exp1", "sqrt1")]
    assert edited.region_of("add1") is not None and edited.region_of("add1").kind is Kind.POINTWISE  # type: ignore[union-attr]


def test_reasons_are_those_of_the_edited_plan() -> None:
    net = Net(x=(1, 64, 8, 8))
    y = net.op("Add", net.conv("x", 64, 64, name="main"), net.conv("x", 64, 64, r=1, name="side"), name="add1")
    graph = net.graph(y)
    made = plan(graph)
    assert made.region_of("side").reason.endswith("add1 already runs with main")  # type: ignore[union-attr]
    edited = split(made, graph, made.region_of("main").id)  # type: ignore[union-attr]
    assert edited.region_of("side").reason.endswith("the plan leaves add1 out")  # type: ignore[union-attr]
    assert all("already runs" not in r.reason for r in (*edited.refusals, *edited.left_alone, *edited.regions))


@pytest.mark.parametrize(
    ("nodes", "reason", "offending"),
    [
        (["conv1", "nothing"], "the model has no node named nothing", "nothing"),
        (["conv1", "conv1"], "conv1 is named twice", "conv1"),
        (["conv1", "conv2"], "conv2 does not take the result of conv1 as its left operand", "conv2"),
        (["relu1", "conv2"], "relu1 comes before conv2", "relu1"),
        (["conv2", "relu2"], "relu2 does not follow directly on conv2", "relu2"),
        (["conv2", "add1", "relu2", "pool1"], "GlobalAveragePool has no epilogue form", "pool1"),
        (["conv1", "relu1", "add1"], "the output of relu1 is read by two nodes: conv2 and add1", "add1"),
        (["pool1", "exp1"], "pool1 (GlobalAveragePool) is a pool node", "pool1"),
        (["relu1", "exp1"], "the results of relu1 and exp1 leave the region", "relu1"),
        ([], "a region needs at least one node", ""),
    ],
)
def test_illegal_groups(graph: Graph, nodes: list[str], reason: str, offending: str) -> None:
    verdict = check(graph, plan(graph), nodes)
    assert not verdict.legal and reason in verdict.reason and verdict.offending_node == offending
    with pytest.raises(PlanError):
        fuse(plan(graph), graph, nodes)


def test_legal_group_tells_its_kind(graph: Graph) -> None:
    assert check(graph, plan(graph), ["relu2", "conv2", "add1"]).kind is Kind.CONV
    assert check(graph, plan(graph), ["sqrt1", "exp1"]).kind is Kind.POINTWISE


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"nodes": ["conv9"]}], "no node named conv9"),
        ([{"nodes": ["conv1"]}, {"nodes": ["conv1", "relu1"]}], "conv1 is in two regions"),
        ([{"kind": "gemm", "nodes": ["conv1"]}], "the group of conv1 says gemm, but its nodes form conv"),
        ([{"kind": "mystery", "nodes": ["conv1"]}], "unknown kind 'mystery'"),
        ([{"nodes": []}], "group 1 has no list of nodes"),
        ([{"nodes": [3]}], "group 1 holds 3, which is no node name"),
        ([{"nodes": ["conv1", None]}], "group 1 holds None, which is no node name"),
        (["conv1"], "group 1 has no list of nodes"),
        ([{"nodes": ["conv1"], "pinned": "yes"}], "group 1 is pinned 'yes'"),
        ([{"nodes": ["conv1"], "residence": "l2"}], "group 1 has the unknown residence 'l2'"),
        ([{"nodes": ["conv1", "relu1"], "residence": "rf"}], "r0 (conv) has no intermediate to place"),
    ],
)
def test_illegal_files(graph: Graph, tmp_path: Path, groups: list[object], message: str) -> None:
    with pytest.raises(PlanError, match="plan file") as caught:
        load_plan(written(tmp_path, *groups), graph)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "\x00", '{"format": "bolt-plan", "version": 3, "groups": []}', "[" * 99999]
)
def test_files_that_are_no_plan(graph: Graph, tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError):
        load_plan(path, graph)
    with pytest.raises(PlanError, match="can't read"):
        load_plan(tmp_path / "missing.json", graph)


def test_bytes_that_are_no_text(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(PlanError, match="not a plan file"):
        load_plan(path, graph)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["conv1", "relu1", "conv"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["nodes", "kind", "pinned", "residence"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=JSON | st.lists(JSON, max_size=4), dtype=JSON, forbidden=JSON)
def test_any_json_is_a_plan_or_a_plan_error(
    graph: Graph, tmp_path: Path, groups: object, dtype: object, forbidden: object
) -> None:
    path = tmp_path / "plan.json"
    head = {"format": "bolt-plan", "version": 2, "dtype": dtype, "forbidden": forbidden}
    path.write_text(json.dumps({**head, "groups": groups}))
    try:
        found = load_plan(path, graph)
    except PlanError as error:
        assert "\n" not in str(error)
    else:
        assert sorted(n for r in found.regions for n in r.nodes) == sorted(n.name for n in graph)
