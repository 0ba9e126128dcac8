"""A plan is proven by running it: prepared and planned graphs against ONNX Runtime on the model."""

import numpy as np
import onnx

from core.fusion.plan import FusionPlan
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.graph.to_onnx import to_model
from tests.core.fusion.graphs import graph_of, weight
from tests.core.fusion.oracle import run_model, run_plan


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    return {t: weight(*graph.shape(t), seed=i, scale=2.0) for i, t in enumerate(graph.inputs)}


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(theirs).max(initial=0))))


def proven(model: onnx.ModelProto) -> tuple[Graph, FusionPlan]:
    """The prepared graph and its plan, after showing that both compute what the model computes."""
    raw = graph_of(model)
    feeds = feeds_of(raw)
    wanted = run_model(model.SerializeToString(), feeds)
    graph = prepare(raw)
    assert_close(run_model(to_model(graph).SerializeToString(), feeds), wanted)
    made = plan(graph)
    assert_close(run_plan(graph, made, feeds), wanted)
    return graph, made


def epilogues(made: FusionPlan) -> list[str]:
    return [str(r.epilogue) for r in made.regions if r.workload]
