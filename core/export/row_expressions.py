"""Reductions and normalisations as instructions of a row kernel, beside the pointwise ones of `expressions`."""

from collections.abc import Callable, Sequence

from core.errors import ExportError
from core.export.expressions import Expression, attribute, scalar_type
from core.export.operations import Scalar
from core.export.rows import RowSpace
from core.graph.ir import Graph, Node
from core.graph.proto import INPUT_SCALE


class RowExpression(Expression):
    """The body of one row kernel while it grows; `shapes` gives each operand's shape in the row space's rank."""

    def __init__(self, graph: Graph, space: RowSpace, count: int) -> None:
        super().__init__(graph)
        self.space = space
        self.count = count  # elements of a row
        self.shapes: list[tuple[int, ...]] = []

    def operand(self, tensor: str, shape: Sequence[int] | None = None) -> int:
        view = self.space.view(self.graph.shape(tensor) if shape is None else shape)
        assert view is not None
        known = list(zip(self.operands, self.shapes, strict=True))
        if (tensor, view) not in known:
            self.operands.append(tensor)
            self.shapes.append(view)
            known.append((tensor, view))
        value = ~known.index((tensor, view))
        self.types[value] = scalar_type(self.graph.types[tensor].dtype)
        return value

    def vector(self, node: Node, position: int, shape: Sequence[int]) -> int | None:
        """An optional scale or bias, seen as `shape`, as a float; None where it is left out."""
        tensor = node.inputs[position] if len(node.inputs) > position else ""
        if not tensor:
            return None
        constant = self.graph.constant(tensor)
        if constant is not None and constant.size == 1:
            return self.literal(float(constant.reshape(()).item()))
        return self.operand(tensor, shape)

    def add(self, node: Node) -> None:
        rule = _RULES.get(node.op)
        if rule is None:
            super().add(node)
            return
        results = rule(self, node)
        self._values.update((t, v) for t, v in zip(node.outputs, results, strict=False) if t)

    def f(self, name: str, *args: int, params: tuple[float, ...] = ()) -> int:
        return self.op(name, Scalar.FLOAT, *args, params=params)

    def mean(self, value: int) -> int:
        return self.f("div", self.f("row_sum", value), self.literal(float(self.count)))


def _reduce(e: RowExpression, node: Node) -> list[int]:
    x = e.value(node.inputs[0])
    match node.op:
        case "ReduceSum":
            return [e.f("row_sum", x)]
        case "ReduceMean" | "AveragePool" | "GlobalAveragePool":
            return [e.mean(x)]
        case "ReduceMax" | "MaxPool" | "GlobalMaxPool":
            return [e.f("row_max", x)]
        case "ReduceMin":
            return [e.f("row_min", x)]
        case "ReduceProd":
            return [e.f("row_prod", x)]
        case "ReduceL1":
            return [e.f("row_sum", e.f("abs", x))]
        case "ReduceL2":
            return [e.f("sqrt", e.f("row_sum", e.f("mul", x, x)))]
        case "ReduceSumSquare":
            return [e.f("row_sum", e.f("mul", x, x))]
        case "ReduceLogSum":
            return [e.f("log", e.f("row_sum", x))]
        case "ReduceLogSumExp":
            top = e.f("row_max", x)
            total = e.f("row_sum", e.f("fast_exp", e.f("sub", x, top)))
            return [e.f("add", e.f("log", total), top)]
    raise ExportError(f"the operator {node.op} of {node.name!r} reduces no rows")


def _softmax(e: RowExpression, node: Node) -> list[int]:
    """The maximum is taken off before the scale: a scaled value may lie beyond float32, a scaled difference ends at
    -inf, whose exponential is 0.
    """
    x = e.value(node.inputs[0])
    below = e.f("sub", x, e.f("row_max", x))
    scale = float(node.attrs.get(INPUT_SCALE, 1.0))
    if scale != 1.0:
        below = e.f("mul", below, e.literal(scale))
    power = e.f("fast_exp", below)
    total = e.f("row_sum", power)
    if node.op == "LogSoftmax":
        return [e.f("sub", below, e.f("log", total))]
    return [e.f("mul", power, e.f("div", e.literal(1.0), total))]


def _centred(e: RowExpression, x: int) -> tuple[int, int, int]:
    """(mean, x - mean, variance): two passes over values in registers, no cancellation."""
    mean = e.mean(x)
    centred = e.f("sub", x, mean)
    return mean, centred, e.mean(e.f("mul", centred, centred))


def _scaled(e: RowExpression, node: Node, value: int, shape: Sequence[int]) -> int:
    """value * scale + bias, the node's second and third input as far as they are there."""
    scale, bias = (e.vector(node, i, shape) for i in (1, 2))
    if scale is not None:
        value = e.f("mul", value, scale)
    return value if bias is None else e.f("add", value, bias)


def _trailing(e: RowExpression, node: Node) -> tuple[int, ...]:
    """A normalisation's scale has the shape of the normalised dimensions, or one that broadcasts to it."""
    return e.graph.shape(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else ()


def _layer_norm(e: RowExpression, node: Node) -> list[int]:
    mean, centred, variance = _centred(e, e.value(node.inputs[0]))
    factor = e.f("rsqrt", e.f("add", variance, e.literal(float(attribute(node, "epsilon", 1e-5)))))
    return [_scaled(e, node, e.f("mul", centred, factor), _trailing(e, node)), mean, factor]


def _rms_norm(e: RowExpression, node: Node) -> list[int]:
    x = e.value(node.inputs[0])
    square = e.mean(e.f("mul", x, x))
    factor = e.f("rsqrt", e.f("add", square, e.literal(float(attribute(node, "epsilon", 1e-5)))))
    return [_scaled(e, node, e.f("mul", x, factor), _trailing(e, node))]


def _channel_norm(e: RowExpression, node: Node) -> list[int]:
    """Instance and group normalisation: scale and bias are one value for each channel."""
    _, centred, variance = _centred(e, e.value(node.inputs[0]))
    factor = e.f("rsqrt", e.f("add", variance, e.literal(float(attribute(node, "epsilon", 1e-5)))))
    whole = e.space.whole
    shape = (whole[1], *(1,) * (len(whole) - 2))
    return [_scaled(e, node, e.f("mul", centred, factor), shape)]


def _mean_variance(e: RowExpression, node: Node) -> list[int]:
    _, centred, variance = _centred(e, e.value(node.inputs[0]))
    # The operator's definition (a function of ONNX): the deviation plus 1e-9 divides.
    return [e.f("div", centred, e.f("add", e.f("sqrt", variance), e.literal(1e-9)))]


def _lp_norm(e: RowExpression, node: Node) -> list[int]:
    """A row of zeros stays zeros, as in ONNX Runtime."""
    x = e.value(node.inputs[0])
    if int(attribute(node, "p", 2)) == 1:
        norm = e.f("row_sum", e.f("abs", x))
    else:
        norm = e.f("sqrt", e.f("row_sum", e.f("mul", x, x)))
    some = e.op("gt", Scalar.BOOL, norm, e.literal(0.0))
    return [e.f("div", x, e.f("where", some, norm, e.literal(1.0)))]


_RULES: dict[str, Callable[[RowExpression, Node], list[int]]] = {
    **dict.fromkeys(
        (
            "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceL1", "ReduceL2", "ReduceLogSum",
            "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        ),
        _reduce,
    ),
    "GroupNormalization": _channel_norm, "InstanceNormalization": _channel_norm, "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax, "LpNormalization": _lp_norm, "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm, "Softmax": _softmax,
}  # fmt: skip
