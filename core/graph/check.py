"""What ONNX's shape inference lets pass and no runtime could run: operands that do not fit their operator."""

import re
from collections.abc import Callable, Mapping
from math import prod

from core.errors import ModelError
from core.graph.ir import Node, TensorType
from core.graph.proto import MAX_RANK

# ONNX reads some of them as 32-bit numbers: 2**32 is 0 to its inference and true to everyone else.
_FLAGS = frozenset((
    "allowzero", "ceil_mode", "count_include_pad", "detect_negative", "detect_positive", "exclusive", "fmod",
    "is_causal", "keepdims", "largest", "noop_with_empty_axes", "reverse", "select_last_index", "sorted",
    "training_mode", "transA", "transB", "upper",
))  # fmt: skip
_REDUCTIONS = ("none", "add", "mul", "max", "min")
_LONGEST_EQUATION = 200
Rule = Callable[[Node, Mapping[str, TensorType]], str | None]


_EINSUM_TERM = r"[A-Za-z ]*(\.\.\.)?[A-Za-z ]*"
_EINSUM = re.compile(rf"{_EINSUM_TERM}(,{_EINSUM_TERM})*(->{_EINSUM_TERM})?")


def check_form(node: Node) -> None:
    """Attributes on which ONNX's own inference never ends, takes all memory, or takes for others than they are.

    Raises ModelError.
    """
    flag = next((k for k in node.attrs if k in _FLAGS and node.attrs[k] not in (0, 1)), None)
    if flag and not node.domain:
        raise ModelError(f"node {node.name!r} ({node.op}) has {flag} {node.attrs[flag]!r:.40}, not 0 or 1")
    if node.op == "GatherND" and not node.domain and not 0 <= int(node.attrs.get("batch_dims", 0)) <= MAX_RANK:
        raise ModelError(f"node {node.name!r} (GatherND) has batch_dims {node.attrs['batch_dims']}")
    if node.op != "Einsum" or node.domain:
        return
    equation = node.attrs.get("equation", "")
    if not isinstance(equation, str) or len(equation) > _LONGEST_EQUATION or not _EINSUM.fullmatch(equation):
        raise ModelError(f"node {node.name!r} (Einsum) has the equation {equation!r:.80}, which is none")


def check_node(node: Node, types: Mapping[str, TensorType], found: Mapping[str, TensorType]) -> None:
    """`types` of the inputs, `found` of the outputs. Raises ModelError that names the node and what does not fit."""
    rule = _RULES.get(node.op) if not node.domain else None
    wrong = rule(node, {**{t: types[t] for t in node.inputs if t}, **found}) if rule else None
    if wrong:
        raise ModelError(f"node {node.name!r} ({node.op}) does not fit: {wrong}", "export the model again")


def _shape(node: Node, types: Mapping[str, TensorType], index: int) -> tuple[int, ...] | None:
    """The shape of an input; None if it is not there."""
    return types[node.inputs[index]].shape if index < len(node.inputs) and node.inputs[index] else None


def _same_count(node: Node, types: Mapping[str, TensorType]) -> str | None:
    given, made = types[node.inputs[0]].shape, types[node.output].shape
    return None if prod(given) == prod(made) else f"{list(given)} has not as many elements as {list(made)}"


def _blocks(node: Node, types: Mapping[str, TensorType]) -> str | None:
    shape, block = types[node.inputs[0]].shape, int(node.attrs.get("blocksize", 1))
    if block < 1 or len(shape) != 4:
        return f"blocksize {block} on shape {list(shape)}"
    uneven = shape[1] % block**2 if node.op == "DepthToSpace" else shape[2] % block or shape[3] % block
    return f"blocks of {block} do not divide {list(shape)}" if uneven else None


def _scalars(first: int) -> Rule:
    def rule(node: Node, types: Mapping[str, TensorType]) -> str | None:
        for index in range(first, len(node.inputs)):
            shape = _shape(node, types, index)
            if shape is not None and prod(shape) != 1:
                return f"{node.inputs[index]!r} has shape {list(shape)}, one number is needed"
        return None

    return rule


def _broadcast(to_output: bool, *indices: int) -> Rule:
    """The inputs at `indices` broadcast to the output, or to the first input."""

    def rule(node: Node, types: Mapping[str, TensorType]) -> str | None:
        shape = types[node.output if to_output else node.inputs[0]].shape
        for index in indices:
            own = _shape(node, types, index)
            if own is not None and not _fits(own, shape):
                return f"{node.inputs[index]!r} {list(own)} does not broadcast to {list(shape)}"
        return None

    return rule


def _pads(node: Node, types: Mapping[str, TensorType]) -> str | None:
    rank, own = len(types[node.inputs[0]].shape), _shape(node, types, 1)
    axes = _shape(node, types, 3)
    count = prod(axes) if axes is not None else rank
    return None if own == (2 * count,) else f"pads {list(own or ())} for {count} dimensions"


def _channel_norm(node: Node, types: Mapping[str, TensorType]) -> str | None:
    """Instance and group normalization: one scale and one bias for each channel."""
    shape = types[node.inputs[0]].shape
    if len(shape) < 3:
        return f"shape {list(shape)} has no dimension behind its channels"
    groups = int(node.attrs.get("num_groups", 1))
    if groups < 1 or shape[1] % groups:
        return f"{groups} groups of {shape[1]} channels"
    wrong = next((t for t in node.inputs[1:] if t and types[t].shape != (shape[1],)), None)
    return f"{wrong!r} {list(types[wrong].shape)} is not one number for each of {shape[1]} channels" if wrong else None


def _layer_norm(node: Node, types: Mapping[str, TensorType]) -> str | None:
    """Scale and bias are of the shape that is normalised, as ONNX Runtime wants them."""
    shape, axis = types[node.inputs[0]].shape, int(node.attrs.get("axis", -1))
    if not shape:
        return _some_dimension(node, types)
    inner = shape[axis:]
    wrong = next((t for t in node.inputs[1:] if t and prod(types[t].shape) != prod(inner)), None)
    if wrong:
        return f"{wrong!r} {list(types[wrong].shape)} is not one number for each of {list(inner)}"
    return _broadcast(False, 1, 2)(node, types)


def _along_axis(*others: int) -> Rule:
    """The first input has the dimension `axis`, and the inputs at `others` as many dimensions as it."""

    def rule(node: Node, types: Mapping[str, TensorType]) -> str | None:
        rank, axis = len(types[node.inputs[0]].shape), int(node.attrs.get("axis", 0))
        if not -rank <= axis < rank:
            return f"axis {axis} of {rank} dimensions"
        wrong = next((node.inputs[i] for i in others if len(types[node.inputs[i]].shape) != rank), None)
        if wrong:
            return f"{wrong!r} {list(types[wrong].shape)} has not as many dimensions as {node.inputs[0]!r}, {rank}"
        return _reduction(node)

    return rule


def _reduction(node: Node) -> str | None:
    kind = node.attrs.get("reduction", "none")
    return None if kind in _REDUCTIONS else f"reduction {kind!r:.40} is none of {', '.join(_REDUCTIONS)}"


def _nd(node: Node, types: Mapping[str, TensorType]) -> str | None:
    """Indices of GatherND and ScatterND: their last dimension counts the dimensions that they pick from."""
    shape, indices = types[node.inputs[0]].shape, types[node.inputs[1]].shape
    lead = int(node.attrs.get("batch_dims", 0))
    if not shape or not indices or lead + indices[-1] > len(shape) or indices[:lead] != shape[:lead]:
        return f"indices {list(indices)} do not pick from {list(shape)}"
    return _reduction(node)


def _some_dimension(node: Node, types: Mapping[str, TensorType]) -> str | None:
    return None if types[node.inputs[0]].shape else "its input is a scalar, it works along a dimension"


def _celu(node: Node, types: Mapping[str, TensorType]) -> str | None:
    return "alpha is 0, by which it divides" if float(node.attrs.get("alpha", 1.0)) == 0.0 else None


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    wide = (1,) * (len(shape) - len(own)) + own
    return len(wide) == len(shape) and all(a in (1, b) for a, b in zip(wide, shape, strict=True))


_RULES: dict[str, Rule] = {
    "Reshape": _same_count, "Clip": _scalars(1), "DepthToSpace": _blocks, "SpaceToDepth": _blocks,
    "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm, "PRelu": _broadcast(False, 1),
    "Gemm": _broadcast(True, 2), "GatherElements": _along_axis(1), "ScatterElements": _along_axis(1, 2),
    "GatherND": _nd, "ScatterND": _nd, "CumSum": _some_dimension, "TopK": _some_dimension, "Celu": _celu,
    "LpNormalization": _some_dimension, "MeanVarianceNormalization": _some_dimension,
    "Pad": _pads, "InstanceNormalization": _channel_norm, "GroupNormalization": _channel_norm,
}  # fmt: skip
