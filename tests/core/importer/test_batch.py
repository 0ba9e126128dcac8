"""Another batch than the model was exported with: the same function of every sample, or a reason."""

import numpy as np
import onnx
import pytest

from core.errors import ModelError
from core.graph.to_onnx import to_model
from core.importer.load import graph_of, load_graph
from tests.core.graph.equivalence import run_model
from tests.core.importer.models import load, model, node, weights


def assert_samples_apart(proto: onnx.ModelProto, batch: int = 3) -> None:
    """Running the new graph once gives what the model gives for each sample (or group) on its own."""
    graph = load(proto, batch)
    own = load(proto)
    random = np.random.default_rng(1)
    feeds = {t: random.uniform(-1, 1, graph.shape(t)).astype(np.float32) for t in graph.inputs}
    got = run_model(to_model(graph), feeds)
    step = own.shape(own.inputs[0])[0]
    parts = [
        run_model(proto, {t: v[i : i + step] if own.shape(t) != v.shape else v for t, v in feeds.items()})
        for i in range(0, batch, step)
    ]
    for name, value in got.items():
        np.testing.assert_allclose(value, np.concatenate([p[name] for p in parts]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [[1, -1], [1, 32], [-1, 32], [0, -1], [0, 32]])
def test_baked_reshape_before_gemm(shape: list[int]) -> None:
    nodes = [node("Reshape", ["x", "s"], ["f"]), node("Gemm", ["f", "w"], ["y"])]
    assert_samples_apart(model(nodes, {"x": [1, 2, 4, 4]}, ["y"], {"s": np.array(shape), "w": weights(32, 5)}))


def test_batch_of_two_to_six() -> None:
    nodes = [node("Reshape", ["x", "s"], ["f"]), node("Gemm", ["f", "w"], ["y"])]
    assert_samples_apart(model(nodes, {"x": [2, 2, 4]}, ["y"], {"s": np.array([2, 8]), "w": weights(8, 5)}), 6)


def attention(mask: bool = False) -> onnx.ModelProto:
    """Heads merged into the batch, as exporters write it for a fixed batch of 1."""
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Reshape", ["q", "split"], ["q4"]),
        node("Transpose", ["q4"], ["qt"], perm=[0, 2, 1, 3]),
        node("Reshape", ["qt", "merged"], ["q3"]),
        node("Transpose", ["q3"], ["k3"], perm=[0, 2, 1]),
        node("MatMul", ["q3", "k3"], ["s"]),
        node("Add", ["s", "mask"], ["sm"]) if mask else node("Identity", ["s"], ["sm"]),
        node("Softmax", ["sm"], ["p"], axis=-1),
        node("MatMul", ["p", "q3"], ["c"]),
        node("Reshape", ["c", "heads"], ["c4"]),
        node("Transpose", ["c4"], ["ct"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ct", "joined"], ["y"]),
    ]
    shapes = {"split": [1, 5, 2, 4], "merged": [2, 5, 4], "heads": [1, 2, 5, 4], "joined": [1, 5, 8]}
    values = {k: np.array(v) for k, v in shapes.items()} | {"w": weights(8, 8)}
    if mask:
        values["mask"] = weights(2, 5, 5)
    return model(nodes, {"x": [1, 5, 8]}, ["y"], values)


def test_heads_merged_into_the_batch() -> None:
    assert_samples_apart(attention(), 4)


def test_constant_that_differs_along_the_merged_batch_is_refused() -> None:
    with pytest.raises(ModelError, match="batch can't be changed from 1 to 4"):
        load(attention(mask=True), 4)


def test_class_token_is_repeated() -> None:
    nodes = [node("Concat", ["token", "x"], ["c"], axis=1), node("ReduceMean", ["c"], ["y"], axes=[1], keepdims=0)]
    assert_samples_apart(model(nodes, {"x": [1, 4, 6]}, ["y"], {"token": weights(1, 1, 6)}), 3)


def test_attention_operator() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Attention", ["q", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2),
    ]
    assert_samples_apart(model(nodes, {"x": [1, 5, 8]}, ["y"], {"w": weights(8, 8)}, opset=23))


def test_model_that_mixes_samples_is_refused() -> None:
    nodes = [node("Reshape", ["x", "s"], ["f"], "drop"), node("Transpose", ["f"], ["t"], perm=[1, 0]),
             node("MatMul", ["f", "t"], ["y"], "gram")]  # fmt: skip
    with pytest.raises(ModelError, match=r"'gram' \(MatMul\) multiplies one sample with another"):
        load(model(nodes, {"x": [1, 4, 6]}, ["y"], {"s": np.array([4, 6])}), 2)
    with pytest.raises(ModelError, match="works along the batch"):
        load(model([node("Softmax", ["x"], ["y"], axis=0)], {"x": [1, 4]}, ["y"]), 2)
    with pytest.raises(ModelError, match="not known to keep samples apart"):
        load(model([node("NonZero", ["x"], ["y"])], {"x": [1, 4]}, ["y"]), 2)


def test_symbolic_batch() -> None:
    proto = model([node("Gemm", ["x", "w"], ["y"])], {"x": ["N", 8]}, ["y"], {"w": weights(8, 4)})
    assert load(proto).shape("y") == (1, 4)
    assert load(proto, 7).shape("y") == (7, 4)


@pytest.mark.parametrize("last", [True, False])
def test_symbolic_batch_with_a_baked_reshape(last: bool) -> None:
    nodes = [node("Reshape", ["x", "s"], ["y" if last else "f"])]
    nodes += [] if last else [node("Gemm", ["f", "w"], ["y"])]
    values = {"s": np.array([1, -1]), "w": weights(8, 4)}
    proto = model(nodes, {"x": ["N", 2, 4]}, ["y"], values, output_shapes={"y": ["N", 8 if last else 4]})
    assert load(proto, 3).shape("y") == (3, 8 if last else 4)


def test_unbatched_second_input_keeps_its_shape() -> None:
    proto = model([node("MatMul", ["x", "table"], ["y"])], {"x": [2, 8], "table": [8, 3]}, ["y"])
    graph = load(proto, 5)
    assert graph.shape("table") == (8, 3) and graph.shape("y") == (5, 3)


@pytest.mark.parametrize("batch", [0, -1, 2**40])
def test_impossible_batch(batch: int) -> None:
    with pytest.raises(ModelError):
        load_graph("mlp", batch=batch)


@pytest.mark.parametrize("name", ["dlrm", "mlp"])
def test_samples_fixed_at_one_equal_the_symbolic_ones(name: str) -> None:
    fixed = graph_of(to_model(load_graph(name)), None, name, 4)
    whole = load_graph(name, batch=4)
    random = np.random.default_rng(0)
    feeds = {t: random.uniform(-1, 1, whole.shape(t)).astype(np.float32) for t in whole.inputs}
    wanted, got = run_model(to_model(whole), feeds), run_model(to_model(fixed), feeds)
    for output, value in wanted.items():
        np.testing.assert_allclose(got[output], value, rtol=1e-5, atol=1e-6)
