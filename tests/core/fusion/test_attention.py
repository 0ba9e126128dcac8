"""Attention is found in every spelling, computes what ONNX Runtime does, and where it is none the reason is told."""

import numpy as np
import onnx
import pytest

from core.fusion.edit import check, split
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.importer.load import load_graph
from templates.attention import AttentionWorkload
from templates.types import DType
from tests.core.export.models import Model
from tests.core.fusion.attention_models import FORMS, WIDTH, B, D, H, S, dense, join_heads, projections, scalar
from tests.core.fusion.oracle import run_model, run_plan


def feeds_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        t: random.random(graph.shape(t)) < 0.7
        if graph.types[t].dtype == DType.BOOL
        else random.uniform(-1, 1, graph.shape(t)).astype(np.float32)
        for t in graph.inputs
    }


def planned(model: onnx.ModelProto, dtype: DType = DType.F16) -> tuple[Graph, FusionPlan]:
    graph = prepare(load_graph(model.SerializeToString()))
    return graph, plan(graph, dtype)


def of_attention(made: FusionPlan) -> list[AttentionWorkload]:
    return [r.workload for r in made.regions if isinstance(r.workload, AttentionWorkload)]


@pytest.mark.parametrize("name", FORMS)
def test_every_spelling_is_one_region_that_computes_the_same(name: str) -> None:
    build, begin, end, _ = FORMS[name]
    model = build()
    graph, made = planned(model)
    [work] = of_attention(made)
    assert work.key.startswith(f"attention {begin}") and work.key.endswith(end), work.key
    assert not any(graph.node(r.nodes[0]).op in ("Softmax", "IsNaN") for r in made.regions)
    feeds = feeds_of(graph)
    wanted = run_model(model.SerializeToString(), feeds)
    for ours, theirs in zip(run_plan(graph, made, feeds), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_region_of_attention_can_be_taken_apart_and_put_together() -> None:
    graph, made = planned(FORMS["bert"][0]())
    region = next(r for r in made.regions if r.kind is Kind.ATTENTION)
    apart = split(made, graph, region.id)
    assert not of_attention(apart) and len(apart.regions) == len(made.regions) + len(region.nodes) - 1
    verdict = check(graph, apart, region.nodes)
    assert verdict.legal and verdict.kind is Kind.ATTENTION and verdict.workload == region.workload
    assert plan(graph, overrides=[r.nodes for r in made.regions]) == made
    assert not check(graph, made, region.nodes[1:]).legal


def spelled(between: object = None, behind: object = None, outputs: bool = False) -> onnx.ModelProto:
    """Plain attention with something done to the scores, or to the weights."""
    m = Model()
    q, k, v = projections(m, m.input(B, S, WIDTH))
    scores = m.op("MatMul", q, k)
    scores = between(m, scores) if between else scores  # type: ignore[operator]
    p = m.op("Softmax", scores, axis=-1)
    p = behind(m, p) if behind else p  # type: ignore[operator]
    return m.build(join_heads(m, m.op("MatMul", p, v)), *([p] if outputs else []))


LEFT = {
    "two masks": (spelled(lambda m, s: m.op("Add", m.op("Add", s, m.input(S, S)), m.input(B, 1, 1, S))), "two masks"),
    "mask times": (spelled(lambda m, s: m.op("Mul", m.op("Add", s, m.input(S, S)), scalar(m, 0.5))), "scales the mask"),
    "one value a query": (spelled(lambda m, s: m.op("Add", s, m.input(B, H, S, 1))), "no tensor over batch"),
    "another function": (spelled(lambda m, s: m.op("Tanh", s)), ""),
    "a low number that is none": (spelled(lambda m, s: m.op("Where", m.input(S, S, dtype=9), s, scalar(m, -5.0))), ""),
    "weights that leave": (spelled(outputs=True), ""),
    "weights that are changed": (spelled(behind=lambda m, p: m.op("Mul", p, scalar(m, 0.5))), ""),
    "a guard against other values": (
        spelled(behind=lambda m, p: m.op("Where", m.op("IsNaN", p), scalar(m, 1.0), p)), ""
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_attention_is_left_with_its_reason(name: str) -> None:
    model, reason = LEFT[name]
    graph, made = planned(model)
    assert not of_attention(made)
    if reason:
        softmax = next(n.name for n in graph if n.op == "Softmax")
        said = [x.reason for x in made.refusals if x.node == softmax]
        assert said and reason in said[0] and said[0].startswith("no fused attention"), said
    feeds = feeds_of(graph)
    wanted = run_model(model.SerializeToString(), feeds)
    np.testing.assert_allclose(run_plan(graph, made, feeds)[0], wanted[0], atol=1e-4)


def test_other_types_than_the_kernels_have_are_left() -> None:
    assert not of_attention(planned(FORMS["bert"][0](), DType.TF32)[1])
    assert of_attention(planned(FORMS["bert"][0](), DType.BF16)[1])[0].dtype == DType.BF16


def operator(**attributes: float) -> onnx.ModelProto:
    m = Model()
    q, k, v = (dense(m, m.input(B, S, WIDTH)) for _ in range(3))
    return m.build(m.op("Attention", q, k, v, q_num_heads=H, kv_num_heads=H, **attributes), opset=23)


def test_the_operator_is_unsupported_where_no_kernel_computes_it() -> None:
    for model, reason, dtype in (
        (operator(softcap=2.0), "softcap", DType.F16),
        (operator(), "computes in f16 or bf16, the plan in tf32", DType.TF32),
    ):
        graph, made = planned(model, dtype)
        region = made.region_of(next(n.name for n in graph if n.op == "Attention"))
        assert region is not None and not region.supported and reason in region.reason
    assert planned(operator())[1].supported


def test_a_mask_of_nothing_is_no_mask() -> None:
    for between in (
        lambda m, s: m.op("Add", s, m.const(np.zeros((1, 1, 1, S), np.float32))),
        lambda m, s: m.op("Where", m.const(np.ones((S, S), bool)), s, scalar(m, -np.inf)),
    ):
        [work] = of_attention(planned(spelled(between))[1])
        assert work.mask == "none" and not work.causal and work.scale == 1.0 and work.head_dim == D
