"""Which ONNX operators an exported library can run, and what each one needs.

The planner reads `refusal` to mark a region unsupported; the exporter carries every node it passes.
"""

from collections.abc import Callable

from core.graph.ir import Graph, Node
from templates.types import DType

# Run through a tuned template (core.fusion makes their regions).
TEMPLATE = frozenset({"Attention", "Conv", "Gemm", "MatMul"})
UNARY = frozenset(
    {
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
        "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg",
        "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
        "Tan", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
# Numpy broadcasting; Max, Mean, Min and Sum take any number of inputs.
BROADCASTING = frozenset(
    {
        "Add", "And", "Div", "Equal", "Expand", "Greater", "GreaterOrEqual", "Less",
        "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
    }
)  # fmt: skip
# One generated kernel runs a whole chain of these.
POINTWISE = UNARY | BROADCASTING
POOL = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN", "MaxPool"})
REDUCTION = frozenset(
    {
        "ArgMax", "ArgMin", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
        "LpNormalization", "MeanVarianceNormalization", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        "Softmax",
    }
)  # fmt: skip
# Nothing moves for the free ones unless a consumer needs another order in memory.
FREE_LAYOUT = frozenset(
    {"DepthToSpace", "Dropout", "Flatten", "Identity", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"}
)
MOVING = frozenset({"Concat", "Gather", "Pad", "Slice", "Split"})
SUPPORTED: frozenset[str] = TEMPLATE | POINTWISE | POOL | REDUCTION | FREE_LAYOUT | MOVING | {"Constant"}

_RUNS_ON = frozenset(
    {DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.I64, DType.U8, DType.I8, DType.BOOL}
)


def refusal(graph: Graph, node: Node) -> str | None:
    """Why an exported library can't run `node`, as one sentence without the node's name; None when it can."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.op} belongs to the operator domain {node.domain!r}, which has no kernels"
    if node.op not in SUPPORTED:
        return f"no kernel for the operator {node.op}"
    for tensor in filter(None, (*node.inputs, *node.outputs)):
        if tensor not in graph.types:
            return graph.untyped.get(tensor, f"the type of {tensor!r} is not known")
        if graph.types[tensor].dtype not in _RUNS_ON:
            return f"{node.op} on {graph.types[tensor].dtype} has no kernel"
    read = node.inputs if node.op in POINTWISE | {"Concat"} else node.inputs[:1]
    if any(t and not graph.types[t].size for t in read):
        return f"{node.op} on a tensor without elements has no kernel"
    check = _NEEDS.get(node.op)
    return check(graph, node) if check else None


def missing_kernels(graph: Graph) -> list[tuple[Node, str]]:
    """Every node that can't run, with its reason, in graph order."""
    found = ((node, refusal(graph, node)) for node in graph)
    return [(node, reason) for node, reason in found if reason is not None]


def _attribute(node: Node, name: str, default: object) -> object:
    value = node.attrs.get(name, default)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _spatial(graph: Graph, node: Node) -> str | None:
    rank = len(graph.shape(node.inputs[0]))
    return None if rank in (3, 4) else f"{node.op} runs on one or two spatial dimensions, this input has rank {rank}"


def _pool(graph: Graph, node: Node) -> str | None:
    if len(node.outputs) > 1 and any(node.outputs[1:]):
        return "MaxPool's second output (the indices) has no kernel"
    return _spatial(graph, node)


def _constant_inputs(*positions: int) -> Callable[[Graph, Node], str | None]:
    """Shapes, axes and pads decide the kernels, so they must be known when the library is built."""

    def check(graph: Graph, node: Node) -> str | None:
        for i in positions:
            if len(node.inputs) > i and node.inputs[i] and graph.constant(node.inputs[i]) is None:
                return f"input {i} of {node.op} is computed at run time; it must be a constant"
        return None

    return check


def _pad(graph: Graph, node: Node) -> str | None:
    mode = _attribute(node, "mode", "constant")
    if mode not in ("constant", "edge", "reflect"):
        return f"Pad with mode {mode} has no kernel"
    return _constant_inputs(1, 2, 3)(graph, node)


def _float_reduction(graph: Graph, node: Node) -> str | None:
    if node.inputs[0] in graph.types and not graph.types[node.inputs[0]].dtype.is_float:
        return f"{node.op} on {graph.types[node.inputs[0]].dtype} has no kernel, only on floats"
    return _constant_inputs(1)(graph, node)


def _dropout(graph: Graph, node: Node) -> str | None:
    if any(node.outputs[1:]) and any(graph.consumers(t) or t in graph.outputs for t in node.outputs[1:]):
        return "Dropout's mask output has no kernel"
    return None


_NEEDS: dict[str, Callable[[Graph, Node], str | None]] = {
    "AveragePool": _spatial,
    "Clip": _constant_inputs(1, 2),
    "Conv": _spatial,
    "Dropout": _dropout,
    "Expand": _constant_inputs(1),
    "GlobalAveragePool": _spatial,
    "GlobalMaxPool": _spatial,
    "LRN": _spatial,
    "MaxPool": _pool,
    "Pad": _pad,
    "Reshape": _constant_inputs(1),
    "Slice": _constant_inputs(1, 2, 3, 4),
    "Split": _constant_inputs(1),
    "Squeeze": _constant_inputs(1),
    "Unsqueeze": _constant_inputs(1),
} | {op: _float_reduction for op in REDUCTION if op.startswith("Reduce")}
