"""The value of a node whose inputs are all constants, by ONNX's reference evaluator."""

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from core.errors import ModelError
from core.graph.ir import Node, TensorType
from core.graph.proto import node_proto

# The output may always take this much, and otherwise no more than its inputs: folding must not blow a model up.
ALWAYS_FOLDED_BYTES = 64 << 20
# All that is folded may take this much, or as much as the model's own weights do.
FOLDED_IN_ALL_BYTES = 512 << 20
RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)
# One pass of numpy over the operands. The reference evaluator takes Python loops for others, hours for a convolution
# of some megabytes: those are evaluated when they are small.
_ONE_PASS = frozenset((
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Cos", "DequantizeLinear", "Div", "Equal",
    "Erf", "Exp", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "IsInf", "IsNaN",
    "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Pow",
    "QuantizeLinear", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu",
    "Round", "Sigmoid", "Sign", "Sin", "Slice", "Split", "Sqrt", "Sub", "Sum", "Tanh", "Tile", "Where", "Xor",
))  # fmt: skip
_FEW_ELEMENTS = 4096
_EINSUM_WORK = 1 << 24  # products at most, over all indices


def evaluate(node: Node, values: Mapping[str, np.ndarray], opset: int) -> list[Any]:
    """Outputs in order; numpy arrays for tensors. Views where the result is a view of the input.

    Raises ModelError if the node can't be evaluated.
    """
    inputs = [values[n] if n else None for n in node.inputs]
    view = _VIEWS.get(node.op) if not node.domain else None
    try:
        if view is not None:
            return [view(node, *inputs)]
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            runner = ReferenceEvaluator(node_proto(node), opsets={"": opset})
            return [np.asarray(v) for v in runner.run(None, {n: values[n] for n in node.inputs if n})]
    # The reference evaluator runs arbitrary operators and documents no set of exceptions.
    except Exception as error:  # noqa: BLE001
        raise ModelError(f"node {node.name!r} ({node.op}) has constant inputs but no value: {error}") from None


def _reshape(node: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray:
    extents = [int(d) for d in shape]
    if not node.attrs.get("allowzero", 0):
        extents = [data.shape[i] if d == 0 else d for i, d in enumerate(extents)]
    return data.reshape(extents)


def _constant_of_shape(node: Node, shape: np.ndarray) -> np.ndarray:
    value = node.attrs.get("value", np.zeros(1, np.float32))
    return np.broadcast_to(value.reshape(()), tuple(int(d) for d in shape))


def _transpose(node: Node, data: np.ndarray) -> np.ndarray:
    return np.transpose(data, node.attrs.get("perm"))


def _expand(node: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray:
    wanted = tuple(int(d) for d in shape)
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, wanted))


def _unsqueeze(node: Node, data: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.expand_dims(data, tuple(int(a) for a in axes.reshape(-1)))


def _squeeze(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return np.squeeze(data, None if axes is None else tuple(int(a) for a in axes.reshape(-1)))


# Weights of hundreds of megabytes pass through these: strided views of their inputs, no memory of their own.
_VIEWS: dict[str, Callable[..., np.ndarray]] = {
    "Reshape": _reshape,
    "ConstantOfShape": _constant_of_shape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Identity": lambda node, data: data,
}


def is_quick(node: Node, inputs: Iterable[TensorType], outputs: Iterable[TensorType]) -> bool:
    """The node is evaluated in about the time that its operands take to be read and written."""
    if is_view(node) or (node.op in _ONE_PASS and not node.domain):
        return True
    if node.op == "Einsum":
        return prod(t.size for t in inputs) <= _EINSUM_WORK
    return sum(t.size for t in (*inputs, *outputs)) <= _FEW_ELEMENTS


def is_view(node: Node) -> bool:
    """The result takes no memory of its own when the node is evaluated."""
    return not node.domain and node.op in _VIEWS
