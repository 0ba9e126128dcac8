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


@pytest.mark.parametrize("name", ["mlp", "resnet18", "mobilenet-v2"])
def test_simplified_is_the_same_function(name: str) -> None:
    assert_same(build_sample(name), load_graph(name), rtol=1e-3, atol=1e-4)


def test_resnet50_has_one_conv_per_layer_and_no_batch_norm() -> None:
    graph = load_graph("resnet50")
    ops = [n.op for n in graph]
    assert (ops.count("Conv"), ops.count("Add"), ops.count("Gemm")) == (53, 16, 1)
    assert "BatchNormalization" not in ops
    assert graph.absorbed["bn1"] == "folded into conv1"


def parameters(name: str) -> int:
    return sum(int(np.prod(t.dims)) for t in build_sample(name).graph.initializer if t.data_type == 1)


@pytest.mark.parametrize(("name", "published"), [("mobilenet-v2", 3.50e6), ("vit-b16", 86.6e6), ("gpt2", 124.4e6)])
def test_has_the_published_number_of_parameters(name: str, published: float) -> None:
    extra = {"gpt2": 512 * 512 - 512 * 768, "mobilenet-v2": 34112}.get(name, 0)  # mask, half the positions; statistics
    assert abs(parameters(name) - extra - published) < 5e-3 * published


@pytest.mark.parametrize(("name", "inner"), [("bert-base", 40), ("bert-base-128", 128), ("gpt2", 512)])
def test_transformers_have_their_sequence_length(name: str, inner: int) -> None:
    graph = load_graph(name)
    assert [graph.shape(n.output) for n in graph if n.op == "Softmax"] == [(1, 12, inner, inner)] * 12


def test_weights_are_the_same_every_time() -> None:
    first, second = build_sample("mlp"), build_sample("mlp")
    assert first.SerializeToString() == second.SerializeToString()
    out = run_model(first, feeds_for(load_graph("mlp", batch=4)))["softmax"]
    assert np.unique(out.argmax(axis=1)).size >= 1 and np.isfinite(out).all()
