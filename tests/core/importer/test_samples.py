"""The built-in models: they load, at any batch, and the passes leave them the same function."""

import numpy as np
import onnx
import pytest

from core.graph.ir import Graph
from core.importer.load import load_graph
from core.importer.samples import build_sample, sample_names
from tests.core.graph.equivalence import assert_same, feeds_for, run_model


@pytest.mark.parametrize("name", sample_names())
def test_is_valid_and_loads_at_any_batch(name: str) -> None:
    onnx.checker.check_model(build_sample(name))
    graph = load_graph(name, batch=2)
    assert isinstance(graph, Graph)
    assert all(graph.shape(t)[0] == 2 for t in (*graph.inputs, *graph.outputs))


@pytest.mark.parametrize("name", ["mlp", "resnet18"])
def test_simplified_is_the_same_function(name: str) -> None:
    assert_same(build_sample(name), load_graph(name), rtol=1e-3, atol=1e-4)


def test_resnet50_has_one_conv_per_layer_and_no_batch_norm() -> None:
    graph = load_graph("resnet50")
    ops = [n.op for n in graph]
    assert (ops.count("Conv"), ops.count("Add"), ops.count("Gemm")) == (53, 16, 1)
    assert "BatchNormalization" not in ops
    assert graph.absorbed["bn1"] == "folded into conv1"


def test_weights_are_the_same_every_time() -> None:
    first, second = build_sample("mlp"), build_sample("mlp")
    assert first.SerializeToString() == second.SerializeToString()
    out = run_model(first, feeds_for(load_graph("mlp", batch=4)))["softmax"]
    assert np.unique(out.argmax(axis=1)).size >= 1 and np.isfinite(out).all()
