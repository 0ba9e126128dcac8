"""Graphs whose activations leave float16: brought back by powers of two, and still the same function."""

import numpy as np
import pytest

from core.graph.passes.rescale import fit_half_range
from core.graph.proto import INPUT_SCALE
from core.graph.ranges import LARGEST_HALF, beyond_half, peaks
from core.graph.to_onnx import to_model
from core.importer.load import load_graph
from tests.core.graph.equivalence import feeds_for, run_model
from tests.core.graph.test_light import FOLDER
from tests.core.graph.test_passes import graph_of
from tests.core.importer.models import node, weights


def growing_net(last: str) -> tuple:
    """Convolutions that each multiply the magnitude by hundreds, a residual sum, a shortcut, pooling, a classifier."""
    values = {f"w{i}": 40 * np.abs(weights(4, 4, 3, 3, seed=i)) for i in range(4)} | {
        "fc": weights(4, 5),
        "b": weights(5),
    }
    values |= {"c": weights(4), "k": weights(4, 1, 1)}
    nodes = [
        node("Conv", ["x", "w0", "c"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w1"], ["d"], pads=[1] * 4),
        node("Add", ["d", "r"], ["s"]),
        node("Add", ["s", "k"], ["sk"]),
        node("Concat", ["sk", "r"], ["cc"], axis=2),
        node("LeakyRelu", ["cc"], ["l"], alpha=0.1),
        node("Conv", ["l", "w2"], ["e"], pads=[1] * 4),
        node("MaxPool", ["e"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "fc", "b"], ["z"]),
        node(last, ["z"], ["y"]),
    ]
    return nodes, {"x": [2, 4, 6, 6]}, ["y"], values


@pytest.mark.parametrize("last", ["Softmax", "LogSoftmax"])
def test_everything_fits_and_the_function_stays(last: str) -> None:
    graph = graph_of(*growing_net(last))
    measured = peaks(graph)
    assert beyond_half(measured)
    fitted = fit_half_range(graph, measured)
    assert [n.name for n in fitted] == [n.name for n in graph]
    assert fitted.nodes[-1].attrs[INPUT_SCALE] > 1
    feeds = feeds_for(graph)
    wanted, got = run_model(to_model(graph), feeds), run_model(to_model(fitted), feeds)
    np.testing.assert_array_equal(got["y"], wanted["y"])  # powers of two round nothing
    inner = {t: p for t, p in peaks(fitted).items() if t not in fitted.outputs and not t.endswith("/scaled")}
    assert not beyond_half(inner)


def test_graph_within_range_is_left_as_it_is() -> None:
    graph = load_graph("mlp")
    measured = peaks(graph)
    assert max(measured.values()) < LARGEST_HALF and fit_half_range(graph, measured) is graph


@pytest.mark.parametrize("last", ["Tanh", "Relu"])
def test_what_is_pinned_stays(last: str) -> None:
    graph = graph_of(*growing_net(last))
    measured = peaks(graph)
    left = beyond_half(peaks(fit_half_range(graph, measured)))
    assert "z" in left and "r" not in left and "s" not in left
    assert ("y" in left) == (last == "Relu")


def test_clip_between_layers_is_a_barrier() -> None:
    values = {"w": 1e6 * weights(4, 4), "lo": np.array(-1, np.float32), "hi": np.array(1, np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Clip", ["a", "lo", "hi"], ["y"])]
    graph = graph_of(nodes, {"x": [2, 4]}, ["y"], values)
    fitted = fit_half_range(graph, peaks(graph))
    np.testing.assert_array_equal(fitted.constants[fitted.nodes[0].inputs[1]], values["w"])


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_light_models_fit(name: str) -> None:
    graph = load_graph(FOLDER / f"light_{name}.onnx")
    measured = peaks(graph)
    assert len(beyond_half(measured)) > 10
    fitted = fit_half_range(graph, measured)
    assert not beyond_half({t: p for t, p in peaks(fitted).items() if not t.endswith("/scaled")})
    feeds = feeds_for(graph)
    wanted, got = run_model(to_model(graph), feeds), run_model(to_model(fitted), feeds)
    for output, value in wanted.items():
        np.testing.assert_array_equal(got[output], value)
