"""Shape inference: the types of a node's outputs from the types and values of its inputs.

The rules are ONNX's own (onnx.shape_inference), asked one node at a time, so a failure names the node and the tensor.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from core.errors import ModelError
from core.graph.check import check_form, check_node
from core.graph.ir import Node, TensorType
from core.graph.proto import ELEMENT, check_size, element_name, node_proto, tensor_proto, type_proto

if TYPE_CHECKING:
    from onnx import TypeProto

# Values worth handing to the shape rules: shapes, axes, pads, scales. Weights only matter by their type.
_MAX_VALUE = 4096
# Operators that ONNX defines by a function, without a rule for their shape: the result is as the first input.
_AS_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})


class Untyped(Exception):
    """The type of an output can't be known before the model runs; the text says why."""


def infer_node(
    node: Node, types: Mapping[str, TensorType], constants: Mapping[str, np.ndarray], opset: int
) -> dict[str, TensorType]:
    """Types of the outputs; an extent may be 0, as in the shape of a scalar's shape.

    Raises ModelError if the node is wrong, Untyped if nobody can know.
    """
    import onnx
    from onnx import shape_inference

    where = f"node {node.name!r} ({node.op})"
    try:
        schema = onnx.defs.get_schema(node.op, opset, node.domain)
    except onnx.defs.SchemaError:
        raise Untyped(f"operator {node.domain + '.' if node.domain else ''}{node.op} is unknown to ONNX") from None
    if any(n not in types for n in node.inputs if n):
        raise Untyped("it reads a tensor of unknown type")
    if any(type(v).__name__ == "Subgraph" for v in node.attrs.values()):
        raise Untyped("control flow is decided while the model runs")
    check_form(node)
    inputs = {n: type_proto(types[n]) for n in node.inputs if n}
    values = {
        n: tensor_proto(constants[n], n) for n in node.inputs if n in constants and constants[n].size <= _MAX_VALUE
    }
    try:
        found = shape_inference.infer_node_outputs(
            schema, node_proto(node), inputs, values, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{where} is not formed as ONNX wants it: {_reason(error)}") from None
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError) as error:
        shapes = ", ".join(f"{n!r} {list(types[n].shape)}" for n in node.inputs if n)
        raise ModelError(f"{where} does not fit its inputs {shapes}: {_reason(error)}") from None
    if node.op in _AS_INPUT and not node.domain:
        found = {node.output: type_proto(types[node.inputs[0]])}
    made = {n: _static(found.get(n), f"tensor {n!r} of {where}") for n in node.outputs if n}
    check_node(node, types, made)
    return made


def _static(proto: "TypeProto | None", what: str) -> TensorType:
    if proto is None or not proto.HasField("tensor_type"):
        raise Untyped("it is not a tensor, or its type follows from no rule")
    tensor = proto.tensor_type
    if tensor.elem_type not in ELEMENT:
        raise Untyped(f"its element type {element_name(tensor.elem_type)} is not supported")
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
        raise Untyped("its shape depends on values known only while the model runs")
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    check_size(shape, what, least=0)
    return TensorType(ELEMENT[tensor.elem_type], shape)


def _reason(error: Exception) -> str:
    """The last part of ONNX's nested message: what is wrong, without its source position."""
    text = " ".join(str(error).split())
    return text.rsplit("[ShapeInferenceError] ", 1)[-1].removesuffix(")")
