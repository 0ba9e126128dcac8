"""Small model files for the window's tests."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_small(path: Path, names: dict[str, str] | None = None) -> Path:
    """`names` gives nodes other names."""
    rng = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.uniform(-0.2, 0.2, shape).astype(np.float32), name)

    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["data", "w1", "b1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=pads),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", kernel_shape=[3, 3], pads=pads),
        helper.make_node("Add", ["c2", "r1"], ["a1"], "add1"),
        helper.make_node("Relu", ["a1"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p1"], "pool1"),
        helper.make_node("Flatten", ["p1"], ["f1"], "flat1"),
        helper.make_node("Gemm", ["f1", "w3", "b3"], ["g1"], "fc1", transB=1),
        helper.make_node("Softmax", ["g1"], ["probabilities"], "softmax1"),
    ]
    weights = [
        weight("w1", 16, 8, 3, 3), weight("b1", 16), weight("w2", 16, 16, 3, 3), weight("b2", 16),
        weight("w3", 32, 16), weight("b3", 32),
    ]  # fmt: skip
    for node in nodes:
        node.name = (names or {}).get(node.name, node.name)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [2, 8, 14, 14])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [2, 32])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_pair(path: Path) -> Path:
    """fc1 - relu1 - fc2 over 4096 rows, then softmax1: two products that one kernel can run."""
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(rng.uniform(-0.2, 0.2, (64, 64)).astype(np.float32), name) for name in ("w1", "w2")
    ]
    nodes = [
        helper.make_node("MatMul", ["data", "w1"], ["h1"], "fc1"),
        helper.make_node("Relu", ["h1"], ["h2"], "relu1"),
        helper.make_node("MatMul", ["h2", "w2"], ["h3"], "fc2"),
        helper.make_node("Softmax", ["h3"], ["probabilities"], "softmax1"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4096, 64])] for name in ("data", "probabilities")]
    graph = helper.make_graph(nodes, "pair", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
