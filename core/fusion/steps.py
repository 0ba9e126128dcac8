"""Single nodes as steps of an epilogue chain (paper section 3.1)."""

import math
from dataclasses import dataclass

from core.fusion.operators import ANCHORS, no_epilogue_form
from core.fusion.values import attr, per_channel, present, scalar, shape_text, stored_dtype
from core.graph.ir import Graph, Node, TensorType
from templates.epilogue import EpilogueOp
from templates.types import DType


@dataclass(frozen=True)
class Link:
    """Nodes that join the chain together, what they do to the value, and what else they read."""

    nodes: tuple[Node, ...]
    ops: tuple[EpilogueOp, ...]
    output: str
    bias: str = ""
    source: str = ""
    dtype: DType | None = None  # the type the value is converted to


@dataclass(frozen=True)
class Chain:
    """What a step needs to know of the kernel it would join: the value's type, which axis is N, the types in play."""

    out: TensorType
    axis: int
    native: DType
    dtype: DType


def _op(name: str, *params: float) -> EpilogueOp:
    return EpilogueOp(name, params)


def _clip(graph: Graph, node: Node) -> tuple[EpilogueOp, ...] | str:
    bounds = []
    for position, name, open_end in ((1, "min", -math.inf), (2, "max", math.inf)):
        tensor = node.inputs[position] if len(node.inputs) > position else ""
        bound = scalar(graph, tensor) if tensor else float(attr(node, name, open_end))
        if bound is None:
            return f"the {name} of {node.name} is computed at run time"
        bounds.append(bound)
    low, high = bounds
    return (_op("clip", min(low, high), high),)  # ONNX: where min is above max, the result is max


def _unary(graph: Graph, node: Node) -> tuple[EpilogueOp, ...] | str | None:
    """Steps of an operator with one operand; a string if it is one but can't join; None if it is another operator."""
    match node.op:
        case "Identity":
            return ()
        case "Neg":
            return (_op("scale", -1.0),)
        case "Relu" | "Sigmoid" | "Tanh" | "Softplus":
            return (_op(node.op.lower()),)
        case "HardSwish":
            return (_op("hard_swish"),)
        case "LeakyRelu":
            return (_op("leaky_relu", attr(node, "alpha", 0.01)),)
        case "Elu":
            return (_op("elu", attr(node, "alpha", 1.0)),)
        case "Selu":
            alpha, gamma = attr(node, "alpha", 1.6732632), attr(node, "gamma", 1.0507010)
            return _op("elu", alpha), _op("scale", gamma)
        case "HardSigmoid":
            return (_op("hard_sigmoid", attr(node, "alpha", 0.2), attr(node, "beta", 0.5)),)
        case "Gelu":
            return (_op("gelu_tanh" if attr(node, "approximate", "none") == "tanh" else "gelu_erf"),)
        case "Swish":
            return (_op("silu"),) if attr(node, "alpha", 1.0) == 1.0 else f"{node.name} has an alpha other than 1"
        case "Clip":
            return _clip(graph, node)
    return None


def _by_constant(node: Node, value: float, constant_first: bool) -> tuple[EpilogueOp, ...] | None:
    """Steps of `x op value`, or `value op x`."""
    match node.op:
        case "Add" | "Sum":
            return (_op("shift", value),)
        case "Mul":
            return (_op("scale", value),)
        case "Sub":
            return (_op("scale", -1.0), _op("shift", value)) if constant_first else (_op("shift", -value),)
        case "Div" if not constant_first and value != 0.0:
            return (_op("scale", 1.0 / value),)
        case "Max":
            return (_op("clip", value, math.inf),)
        case "Min":
            return (_op("clip", -math.inf, value),)
        case "PRelu" if not constant_first:
            return (_op("leaky_relu", value),)
    return None


def _by_source(node: Node, source_first: bool) -> tuple[EpilogueOp, ...] | None:
    """Steps of `x op source`, or `source op x`, for a source shaped as the output."""
    match node.op:
        case "Add" | "Sum":
            return (_op("add"),)
        case "Mul":
            return (_op("mul"),)
        case "Sub":
            negated = (_op("scale", -1.0), _op("add"))
            return negated if source_first else (*negated, _op("scale", -1.0))
    return None


def step(graph: Graph, node: Node, x: str, chain: Chain) -> Link | str:
    """The node as the next step after the value `x`; else why it is none."""
    if node.op in ANCHORS:
        return f"{node.name} ({node.op}) needs a kernel of its own"
    if node.op == "Cast":
        return _cast(graph, node, chain)
    unary = _unary(graph, node)
    if isinstance(unary, str):
        return unary
    if unary is not None:
        return Link((node,), unary, node.output)
    if node.op not in _BINARY:
        return no_epilogue_form(node.op)
    if graph.shape(node.output) != graph.shape(x):
        before, after = shape_text(graph.shape(x)), shape_text(graph.shape(node.output))
        return f"{node.name} broadcasts the result from {before} to {after}"
    operands = present(node)
    if len(operands) != 2:
        return f"{node.name} has {len(operands)} operands, an epilogue step takes two"
    if operands[0] == operands[1]:
        if node.op in ("Add", "Sum"):
            return Link((node,), (_op("scale", 2.0),), node.output)
        return f"{node.op} of a tensor with itself has no epilogue form"
    return _binary(graph, node, operands[1] if operands[0] == x else operands[0], operands[0] != x, chain)


def _binary(graph: Graph, node: Node, other: str, other_first: bool, chain: Chain) -> Link | str:
    value = scalar(graph, other)
    theirs = stored_dtype(graph.types[other].dtype, chain.native, chain.dtype)
    same_type = theirs == stored_dtype(chain.out.dtype, chain.native, chain.dtype)
    lone_column = value is not None and chain.out.shape[chain.axis] == 1 and graph.shape(other) != ()
    if node.op in ("Add", "Sum") and same_type and (lone_column or _columns(graph, other, chain)):
        return Link((node,), (_op("bias"),), node.output, bias=other)
    if value is not None:
        if not math.isfinite(value):
            return f"the constant of {node.name} is not finite"
        ops = _by_constant(node, value, other_first)
        return Link((node,), ops, node.output) if ops else f"{node.op} by this constant has no epilogue form"
    where = f"{other} ({shape_text(graph.shape(other))})"
    if _columns(graph, other, chain):
        each = "channel" if chain.axis == 1 else "column"
        return f"{node.op} by {where}, one value for each {each}, has no epilogue form"
    gate = tuple(e if i in (0, 1) else 1 for i, e in enumerate(chain.out.shape))
    if graph.shape(other) == gate != chain.out.shape and chain.axis == 1:
        return f"{node.op} by {where}, one value for each channel of each image, has no epilogue form"
    if graph.shape(other) != chain.out.shape:
        return (
            f"{node.op} by {where} has no epilogue form: it has neither one value, nor one for each channel, "
            "nor the output's shape"
        )
    ops = _by_source(node, other_first)
    if ops is None:
        return f"{node.op} by a tensor has no epilogue form"
    if not same_type:
        return f"the other input of {node.name} is {theirs}, the result is not"
    return Link((node,), ops, node.output, source=other)


def _columns(graph: Graph, tensor: str, chain: Chain) -> bool:
    return per_channel(graph, tensor, chain.out.shape, chain.axis)


def _cast(graph: Graph, node: Node, chain: Chain) -> Link | str:
    to = graph.types[node.output].dtype
    stored = stored_dtype(to, chain.native, chain.dtype)
    if stored not in (DType.F16, DType.BF16, DType.F32):
        return f"{node.name} converts to {to}, an epilogue writes f16, bf16 or f32"
    now = stored_dtype(chain.out.dtype, chain.native, chain.dtype)
    return Link((node,), (), node.output, dtype=None if stored == now else stored)


_BINARY = frozenset({"Add", "Sum", "Mul", "Sub", "Div", "Max", "Min", "PRelu"})
