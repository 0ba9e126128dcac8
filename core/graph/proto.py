"""Between the IR's plain values and ONNX's protobuf messages."""

from collections.abc import Mapping
from math import prod
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
# More elements than an int32 index reaches; a model that declares more is broken or meant to exhaust memory.
MAX_ELEMENTS = 2**31 - 1
MAX_RANK = 32  # numpy's functions take no more
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


def declared_shape(tensor: "TensorProto", what: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and element type of a tensor that came from outside. Raises ModelError for those that no graph holds."""
    if tensor.data_type not in ELEMENT:
        raise ModelError(f"{what} has element type {element_name(tensor.data_type)}, which is not supported")
    shape = tuple(tensor.dims)
    check_size(shape, what, least=0)
    return shape, numpy_dtype(ELEMENT[tensor.data_type])


def held_tensor(tensor: "TensorProto", what: str) -> np.ndarray:
    """The value of a tensor whose data lie in the message. Nothing is allocated before they are known to be there.

    Raises ModelError, also for data that lie elsewhere: onnx would open any file for them.
    """
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise ModelError(f"{what} lies outside the model, only initializers may", "save the model with its data inside")
    shape, dtype = declared_shape(tensor, what)
    raw = tensor.raw_data if tensor.HasField("raw_data") else None  # once: every access copies all of it
    held = _typed_length(tensor) if raw is None else len(raw) // dtype.itemsize
    if held != prod(shape):
        raise ModelError(
            f"{what} declares {prod(shape)} elements of {dtype} but holds {held}", "export or copy it again"
        )
    try:
        if raw and len(raw) == prod(shape) * dtype.itemsize:
            return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(shape)
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{what} can't be read: {error}") from None


def _typed_length(tensor: "TensorProto") -> int:
    return max(len(tensor.float_data), len(tensor.int32_data), len(tensor.int64_data), len(tensor.double_data))


def check_size(shape: tuple[int, ...], what: str, least: int = 1) -> None:
    """Refuse an extent below `least`, a tensor too large to index, or one of too many dimensions. Raises ModelError."""
    if len(shape) > MAX_RANK:
        raise ModelError(f"{what} has {len(shape)} dimensions: more than the {MAX_RANK} supported")
    if any(d < least for d in shape):
        rule = "every dimension must be at least 1" if least else "no dimension may be negative"
        raise ModelError(f"{what} has shape {list(shape)}: {rule}")
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise ModelError(f"{what} has shape {list(shape)}, {count} elements: more than the {MAX_ELEMENTS} supported")


class Subgraph:
    """Stands for a graph attribute (of If, Loop, Scan): such a node is shown, and never run."""


def attributes(node: "NodeProto") -> Mapping[str, Any]:
    """The attributes as int, float, str, bytes, tuples of them, or numpy arrays. Raises ModelError."""
    what = f"an attribute of node {node.name!r} ({node.op_type}) can't be read"
    try:
        return {a.name: _attribute_value(a) for a in node.attribute}
    except ModelError as error:
        raise ModelError(f"{what}: {error.what}", error.remedy) from None
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{what}: {error}") from None


def _attribute_value(attribute: "AttributeProto") -> Any:
    from onnx import AttributeProto, TensorProto, helper, numpy_helper

    kind = attribute.type
    if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return Subgraph()
    if kind == AttributeProto.TENSOR:
        if attribute.t.data_type in ELEMENT or attribute.t.data_location == TensorProto.EXTERNAL:
            return held_tensor(attribute.t, f"the tensor in {attribute.name!r}")
        return numpy_helper.to_array(attribute.t)  # strings and the like: shown, never run
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
