"""Small graphs for the planner's tests, built with onnx.helper and read into the IR without the importer."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from core.graph.ir import Graph, Node, TensorType
from templates.types import DType

_DTYPES = {
    TensorProto.FLOAT: DType.F32, TensorProto.FLOAT16: DType.F16, TensorProto.INT64: DType.I64,
    TensorProto.BOOL: DType.BOOL, TensorProto.INT32: DType.I32, TensorProto.DOUBLE: DType.F64,
}  # fmt: skip
_NUMPY = {
    np.dtype("float32"): DType.F32,
    np.dtype("float16"): DType.F16,
    np.dtype("int64"): DType.I64,
    np.dtype("int32"): DType.I32,
}


def weight(*shape: int, seed: int = 0, scale: float = 0.2, dtype: str = "float32") -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).uniform(-1, 1, shape) * scale, dtype)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A checked model whose tensor types are all inferred."""
    proto = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )
    made = helper.make_model(proto, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    made = shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
    onnx.checker.check_model(made)
    return made


def graph_of(made: onnx.ModelProto) -> Graph:
    """The IR of a model from `model`; every node must be named."""
    proto = made.graph
    constants = {i.name: numpy_helper.to_array(i) for i in proto.initializer}
    types = {n: TensorType(_NUMPY[v.dtype], tuple(v.shape)) for n, v in constants.items()}
    for info in [*proto.input, *proto.value_info, *proto.output]:
        tensor = info.type.tensor_type
        types[info.name] = TensorType(_DTYPES[tensor.elem_type], tuple(d.dim_value for d in tensor.shape.dim))
    nodes = tuple(
        Node(n.name, n.op_type, tuple(n.input), tuple(n.output), {a.name: _attr(a) for a in n.attribute})
        for n in proto.node
    )
    assert all(n.name for n in nodes)
    inputs = tuple(i.name for i in proto.input if i.name not in constants)
    return Graph("test", nodes, inputs, tuple(o.name for o in proto.output), constants, types, 21)


def _attr(attribute: onnx.AttributeProto) -> object:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


class Net:
    """Nodes one after the other, named after their operator: `net.op("Relu", x)` gives the output's name."""

    def __init__(self, opset: int = 21, dtype: str = "float32", **inputs: Sequence[int]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs = inputs
        self.opset, self.dtype = opset, dtype

    def const(self, value: np.ndarray | float | Sequence[float], name: str = "") -> str:
        name = name or f"c{len(self.constants)}"
        kept = isinstance(value, np.ndarray) and value.dtype.kind != "f"
        self.constants[name] = np.asarray(value) if kept else np.asarray(value, self.dtype)
        return name

    def op(self, kind: str, *inputs: str | float, name: str = "", outputs: int = 1, **attrs: object) -> str:
        name = name or f"{kind.lower()}{sum(n.op_type == kind for n in self.nodes)}"
        tensors = [t if isinstance(t, str) else self.const(t) for t in inputs]
        made = [f"{name}.out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, tensors, made, name=name, **attrs))
        return made[0]

    def conv(self, x: str, k: int, c: int, r: int = 3, bias: bool = True, name: str = "", **attrs: object) -> str:
        seed = len(self.constants)
        group = int(attrs.get("group", 1))  # type: ignore[call-overload]
        w = self.const(weight(k, c // group, r, r, seed=seed))
        attrs.setdefault("pads", [r // 2] * 4)
        b = (self.const(weight(k, seed=seed + 1)),) if bias else ()
        return self.op("Conv", x, w, *b, name=name, **attrs)

    def model(self, *outputs: str) -> onnx.ModelProto:
        elem = TensorProto.FLOAT16 if self.dtype == "float16" else TensorProto.FLOAT
        return model(self.nodes, self.inputs, outputs, self.constants, self.opset, elem)

    def graph(self, *outputs: str) -> Graph:
        return graph_of(self.model(*outputs))
