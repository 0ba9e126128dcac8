"""Small models for the importer's tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from core.graph.ir import Graph
from core.importer.load import load_graph


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    output_shapes: dict[str, Sequence[int | str]] | None = None,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, kind, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind, (output_shapes or {}).get(n)) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attrs)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def load(proto: onnx.ModelProto, batch: int | None = None) -> Graph:
    """`load_graph` of a model in memory."""
    return load_graph(proto.SerializeToString(), batch)
