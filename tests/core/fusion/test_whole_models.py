"""Plans of real and built-in models."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.graph.to_onnx import to_model
from core.importer.load import load_graph
from tests.core.fusion.graphs import weight
from tests.core.fusion.oracle import run_model, run_plan
from tests.core.fusion.proof import assert_close, feeds_of

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def with_random_weights(graph: Graph) -> Graph:
    """A light model's own weights are all equal: nothing that is permuted or dropped would show."""
    constants = dict(graph.constants)
    for i, (name, value) in enumerate(constants.items()):
        if value.dtype == np.float32 and value.size > 1:
            fan_in = int(np.prod(value.shape[1:])) if value.ndim > 1 else 1
            constants[name] = weight(*value.shape, seed=i, scale=(3.0 / fan_in) ** 0.5)
    return graph.replaced(graph.nodes, constants=constants)


def test_shufflenet() -> None:
    graph = with_random_weights(prepare(load_graph(LIGHT / "light_shufflenet.onnx")))
    assert all(n.op != "Transpose" for n in graph), "every channel shuffle became an order of filters"
    # Up to the logits: behind the softmax every difference is small.
    last = next(n for n in reversed(graph.nodes) if n.op == "Gemm")
    position = graph.nodes.index(last) + 1
    graph = graph.replaced(graph.nodes[:position], outputs=(last.output,))
    feeds = feeds_of(graph)
    wanted = run_model(to_model(graph).SerializeToString(), feeds)
    assert wanted[0].std() > 1e-3
    assert_close(run_plan(graph, plan(graph), feeds), wanted)


@pytest.mark.parametrize(
    ("name", "tuned", "alone"),
    [
        ("resnet18", 21, ["GlobalAveragePool", "MaxPool", "Reshape"]),
        ("resnet50", 54, ["GlobalAveragePool", "MaxPool", "Reshape"]),
        ("repvgg-a0", 23, ["GlobalAveragePool", "Reshape"]),
    ],
)
def test_built_in_models_leave_nothing_alone_that_could_be_fused(name: str, tuned: int, alone: list[str]) -> None:
    made = plan(prepare(load_graph(name, 32)))
    assert sum(r.kind.tuned for r in made.regions) == tuned
    assert sorted(x.op for x in made.left_alone) == alone
