"""Which ONNX operators an exported library can run, and what each one needs.

The planner reads `refusal` to mark a region unsupported; the exporter carries every node it passes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from core.export.resampling import COORDINATES
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
# Where they read or write is decided by data; row-major.
INDEXED = frozenset(
    {"CumSum", "GatherElements", "GatherND", "Resize", "ScatterElements", "ScatterND", "TopK"}
)  # fmt: skip
SUPPORTED: frozenset[str] = TEMPLATE | POINTWISE | POOL | REDUCTION | FREE_LAYOUT | MOVING | INDEXED | {"Constant"}

# Elements that one block sorts at once (templates/operators/topk.cuh).
SORTED_MOST = 4096

# What is left to the program around the library, and why.
ON_THE_HOST = {
    "NonMaxSuppression": "NonMaxSuppression is left to the host, since how many boxes it keeps is only known when it "
    "has run; end the model at its inputs, boxes and scores, and select behind the library",
}

_RUNS_ON = frozenset(
    {DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.I64, DType.U8, DType.I8, DType.BOOL}
)


def refusal(graph: Graph, node: Node) -> str | None:
    """Why an exported library can't run `node`, as one sentence without the node's name; None when it can."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.op} belongs to the operator domain {node.domain!r}, which has no kernels"
    if node.op in ON_THE_HOST:
        return ON_THE_HOST[node.op]
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
    need = NEEDS.get(node.op)
    return need.check(graph, node) if need else None


def missing_kernels(graph: Graph) -> list[tuple[Node, str]]:
    """Every node that can't run, with its reason, in graph order."""
    found = ((node, refusal(graph, node)) for node in graph)
    return [(node, reason) for node, reason in found if reason is not None]


def _attribute(node: Node, name: str, default: object) -> object:
    value = node.attrs.get(name, default)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


Check = Callable[[Graph, Node], str | None]


@dataclass(frozen=True)
class Need:
    """What an operator needs beyond its types: `check` says why a node has not got it, `limit` tells readers, and
    `constants` are the inputs that must be known when the library is built.
    """

    check: Check
    limit: str = ""
    constants: tuple[int, ...] = ()


def _spatial(*counts: int) -> Check:
    """How many spatial dimensions the operator's kernels take."""

    def check(graph: Graph, node: Node) -> str | None:
        spatial = len(graph.shape(node.inputs[0])) - 2
        if spatial in counts:
            return None
        return f"{node.op} runs on {' or '.join(map(str, counts))} spatial dimensions, this input has {spatial}"

    return check


def _pool(graph: Graph, node: Node) -> str | None:
    if len(node.outputs) > 1 and any(node.outputs[1:]):
        return "MaxPool's second output (the indices) has no kernel"
    return _spatial(1, 2, 3)(graph, node)


def _constant_inputs(*positions: int) -> Check:
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
    if not graph.shape(node.inputs[0]):
        return f"{node.op} on a scalar has no kernel"
    if node.inputs[0] in graph.types and not graph.types[node.inputs[0]].dtype.is_float:
        return f"{node.op} on {graph.types[node.inputs[0]].dtype} has no kernel, only on floats"
    return _constant_inputs(1)(graph, node)


def _resize(graph: Graph, node: Node) -> str | None:
    where = _attribute(node, "coordinate_transformation_mode", "half_pixel")
    if where not in COORDINATES:
        return f"Resize with coordinate_transformation_mode {where} has no kernel, only {', '.join(COORDINATES)}"
    return _constant_inputs(2, 3)(graph, node)


def _top_k(graph: Graph, node: Node) -> str | None:
    k = graph.constant(node.inputs[1])
    if k is None:
        return "TopK's k is computed at run time; it must be a constant"
    columns = graph.shape(node.inputs[0])[int(node.attrs["axis"])]
    if columns > SORTED_MOST and int(k.reshape(-1)[0]) > SORTED_MOST // 2:
        return f"TopK with k above {SORTED_MOST // 2} of more than {SORTED_MOST} elements has no kernel"
    return None


def _dropout(graph: Graph, node: Node) -> str | None:
    if len(node.inputs) > 2 and node.inputs[2]:  # the importer removes Dropout where this is a constant False
        return "Dropout in training mode has no kernel"
    if any(node.outputs[1:]) and any(graph.consumers(t) or t in graph.outputs for t in node.outputs[1:]):
        return "Dropout's mask output has no kernel"
    return None


def _known(*positions: int) -> Need:
    return Need(_constant_inputs(*positions), constants=positions)


NEEDS: dict[str, Need] = {
    "AveragePool": Need(_spatial(1, 2, 3), "1 to 3 spatial dimensions"),
    "Clip": _known(1, 2),
    "Conv": Need(_spatial(1, 2), "1 or 2 spatial dimensions, constant filters"),
    "CumSum": _known(1),
    "Dropout": Need(_dropout, "inference only, without its mask"),
    "Expand": _known(1),
    "LRN": Need(_spatial(1, 2, 3), "1 to 3 spatial dimensions"),
    "MaxPool": Need(_pool, "1 to 3 spatial dimensions, without its indices"),
    "Pad": Need(_pad, "modes constant, edge and reflect", (1, 2, 3)),
    "Reshape": _known(1),
    "Resize": Need(_resize, "every mode; coordinates but tf_crop_and_resize", (2, 3)),
    "Slice": _known(1, 2, 3, 4),
    "Split": _known(1),
    "Squeeze": _known(1),
    "TopK": Need(_top_k, f"k up to {SORTED_MOST // 2} of more than {SORTED_MOST} elements", (1,)),
    "Unsqueeze": _known(1),
} | {op: Need(_float_reduction, "floats", (1,)) for op in sorted(REDUCTION) if op.startswith("Reduce")}
