"""Between the IR's plain values and ONNX's protobuf messages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ModelError
from core.graph.ir import Node, TensorType
from templates.types import DType

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto, TensorProto, TypeProto

# onnx.TensorProto.DataType -> element type; what is not here can't be in a graph.
ELEMENT = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 6: DType.I32, 7: DType.I64, 9: DType.BOOL, 10: DType.F16, 11: DType.F64,
    16: DType.BF16,
}  # fmt: skip
_CODE = {dtype: code for code, dtype in ELEMENT.items()}
_NUMPY = {
    DType.F16: "float16", DType.F32: "float32", DType.F64: "float64", DType.I8: "int8", DType.U8: "uint8",
    DType.I32: "int32", DType.I64: "int64", DType.BOOL: "bool", DType.TF32: "float32",
}  # fmt: skip


# Of Softmax and LogSoftmax: the input is multiplied by it first, in float32. ONNX has no such attribute; a model gets a
# Mul in its place (core.graph.to_onnx).
INPUT_SCALE = "input_scale"


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy element type of constants; bfloat16 is ml_dtypes's."""
    if dtype == DType.BF16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NUMPY[dtype])


def element_code(dtype: DType) -> int:
    """The onnx.TensorProto.DataType of an element type; tf32 is stored as float32."""
    return _CODE[DType.F32 if dtype == DType.TF32 else dtype]


def element_name(code: int) -> str:
    """ONNX's name of an element type code, for messages."""
    import onnx

    return onnx.TensorProto.DataType.Name(code) if code in onnx.TensorProto.DataType.values() else f"number {code}"


def dtype_of(array: np.ndarray) -> DType:
    """The element type of a constant. Raises ModelError for one that no graph holds."""
    for dtype in ELEMENT.values():
        if numpy_dtype(dtype) == array.dtype:
            return dtype
    raise ModelError(f"element type {array.dtype} is not supported")


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(dtype_of(array), tuple(int(d) for d in array.shape))


def type_proto(tensor_type: TensorType) -> "TypeProto":
    from onnx import helper

    return helper.make_tensor_type_proto(element_code(tensor_type.dtype), tensor_type.shape)


def tensor_proto(array: np.ndarray, name: str = "") -> "TensorProto":
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def node_proto(node: Node) -> "NodeProto":
    """The node as ONNX writes it, without `input_scale`. Raises ModelError for a node that carries subgraphs."""
    from onnx import helper

    proto = helper.make_node(node.op, list(node.inputs), list(node.outputs), name=node.name, domain=node.domain or None)
    proto.attribute.extend(
        _attribute_proto(node, key, value) for key, value in sorted(node.attrs.items()) if key != INPUT_SCALE
    )
    return proto


def _attribute_proto(node: Node, key: str, value: Any) -> "AttributeProto":
    from onnx import AttributeProto, helper

    if isinstance(value, Subgraph):
        raise ModelError(f"node {node.name!r} ({node.op}) holds a subgraph, which is not supported")
    if isinstance(value, np.ndarray):
        return helper.make_attribute(key, tensor_proto(value))
    if isinstance(value, tuple) and not value:  # an empty list carries no type to guess from
        return helper.make_attribute(key, [], attr_type=AttributeProto.INTS)
    return helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


class Subgraph:
    """Stands for a graph attribute (of If, Loop, Scan): such a node is shown, and never run."""


def attributes(node: "NodeProto") -> Mapping[str, Any]:
    """The attributes as int, float, str, bytes, tuples of them, or numpy arrays. Raises ModelError."""
    try:
        return {a.name: _attribute_value(a) for a in node.attribute}
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"an attribute of node {node.name!r} ({node.op_type}) can't be read: {error}") from None


def _attribute_value(attribute: "AttributeProto") -> Any:
    from onnx import AttributeProto, helper, numpy_helper

    kind = attribute.type
    if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return Subgraph()
    if kind == AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t)
    if kind in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS, AttributeProto.TENSORS):
        raise ModelError(
            f"attribute {attribute.name!r} is a sparse tensor or a list of tensors, which is not supported"
        )
    value = helper.get_attribute_value(attribute)
    if kind == AttributeProto.STRING:
        return _text(value)
    if kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        return tuple(value)
    if kind == AttributeProto.STRINGS:
        return tuple(_text(v) for v in value)
    return value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
