"""ONNX's pointwise operators as instructions of one kernel, and the C of each instruction."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from core.errors import ExportError
from core.export.operations import Instruction, Scalar
from core.graph.ir import Graph, Node
from templates.types import DType

# Instruction -> C, {0} {1} {2} the arguments, {p0} {p1} the parameters. Activations are include/bolt/activations.h's.
C_FLOAT = {
    "abs": "fabsf({0})", "acos": "acosf({0})", "acosh": "acoshf({0})", "add": "{0} + {1}", "asin": "asinf({0})",
    "asinh": "asinhf({0})", "atan": "atanf({0})", "atanh": "atanhf({0})", "ceil": "ceilf({0})",
    "clip": "bolt::clip({0}, {p0}, {p1})", "cos": "cosf({0})", "cosh": "coshf({0})", "div": "{0} / {1}",
    "elu": "bolt::elu({0}, {p0})", "erf": "erff({0})", "exp": "expf({0})", "fast_exp": "__expf({0})",
    "floor": "floorf({0})",
    "fmod": "fmodf({0}, {1})", "gelu_erf": "bolt::gelu_erf({0})", "gelu_tanh": "bolt::gelu_tanh({0})",
    "hard_sigmoid": "bolt::hard_sigmoid({0}, {p0}, {p1})", "hard_swish": "bolt::hard_swish({0})",
    "leaky_relu": "bolt::leaky_relu({0}, {p0})", "log": "logf({0})", "max": "bolt::op::larger({0}, {1})",
    "min": "bolt::op::smaller({0}, {1})", "mod": "bolt::op::floor_mod({0}, {1})",
    "mul": "{0} * {1}", "neg": "-{0}", "pow": "bolt::op::power({0}, {1})",
    "prelu": "({0} < 0.f ? {1} * {0} : {0})", "relu": "bolt::relu({0})", "round": "rintf({0})",
    "rsqrt": "rsqrtf({0})",
    "sigmoid": "bolt::sigmoid({0})", "sign": "float(({0} > 0.f) - ({0} < 0.f))", "sin": "sinf({0})",
    "sinh": "sinhf({0})", "softplus": "bolt::softplus({0})", "sqrt": "sqrtf({0})", "sub": "{0} - {1}",
    "tan": "tanf({0})", "tanh": "bolt::tanh({0})", "where": "({0} ? {1} : {2})", "cast": "float({0})",
}  # fmt: skip
C_INT = {
    "abs": "llabs({0})", "add": "{0} + {1}", "div": "{0} / {1}", "max": "({0} > {1} ? {0} : {1})",
    "min": "({0} < {1} ? {0} : {1})", "mod": "bolt::op::floor_mod({0}, {1})", "fmod": "({0} % {1})", "mul": "{0} * {1}",
    "neg": "-{0}", "pow": "bolt::op::power({0}, {1})", "sign": "(long long)(({0} > 0) - ({0} < 0))", "sub": "{0} - {1}",
    "where": "({0} ? {1} : {2})", "cast": "(long long)({0})", "relu": "({0} > 0 ? {0} : 0)",
    "clip": "({0} < {p0} ? {p0} : ({0} > {p1} ? {p1} : {0}))",
}  # fmt: skip
C_BOOL = {
    "and": "({0} && {1})", "or": "({0} || {1})", "xor": "({0} != {1})", "not": "!{0}", "eq": "({0} == {1})",
    "lt": "({0} < {1})", "le": "({0} <= {1})", "gt": "({0} > {1})", "ge": "({0} >= {1})", "cast": "({0} != 0)",
    "is_nan": "({0} != {0})", "is_inf": "bolt::op::is_inf({0}, {p0}, {p1})", "where": "({0} ? {1} : {2})",
}  # fmt: skip
C_OF = {Scalar.FLOAT: C_FLOAT, Scalar.INT: C_INT, Scalar.BOOL: C_BOOL}

_DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Div": "div", "Erf": "erf", "Exp": "exp",
    "Floor": "floor", "HardSwish": "hard_swish", "Log": "log", "Max": "max", "Min": "min", "Mul": "mul", "Neg": "neg",
    "Pow": "pow", "PRelu": "prelu", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Sqrt": "sqrt", "Sub": "sub", "Sum": "add", "Tan": "tan",
    "Tanh": "tanh",
}  # fmt: skip
_LOGIC = {
    "And": "and", "Or": "or", "Xor": "xor", "Not": "not", "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
    "Greater": "gt", "GreaterOrEqual": "ge", "IsNaN": "is_nan",
}  # fmt: skip


def scalar_type(dtype: DType) -> Scalar:
    """The type a value of this element type is computed in."""
    if dtype.is_float:
        return Scalar.FLOAT
    return Scalar.BOOL if dtype == DType.BOOL else Scalar.INT


class Expression:
    """The body of one pointwise kernel while it grows. Values are numbered: ~i is operand i, j instruction j."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.operands: list[str] = []
        self.body: list[Instruction] = []
        self.types: dict[int, Scalar] = {}
        self._values: dict[str, int] = {}

    def operand(self, tensor: str) -> int:
        if tensor not in self.operands:
            self.operands.append(tensor)
        value = ~self.operands.index(tensor)
        self.types[value] = scalar_type(self.graph.types[tensor].dtype)
        return value

    def value(self, tensor: str) -> int:
        """A value of this kernel, a literal for a constant of one element, else an operand."""
        if tensor in self._values:
            return self._values[tensor]
        constant = self.graph.constant(tensor)
        if constant is not None and constant.size == 1:
            return self.literal(constant.reshape(()).item(), scalar_type(self.graph.types[tensor].dtype))
        return self.operand(tensor)

    def literal(self, value: float, kind: Scalar = Scalar.FLOAT) -> int:
        return self.op("literal", kind, params=(value,))

    def op(self, name: str, kind: Scalar, *args: int, params: tuple[float, ...] = ()) -> int:
        self.body.append(Instruction(name, args, kind, params))
        self.types[len(self.body) - 1] = kind
        return len(self.body) - 1

    def add(self, node: Node) -> None:
        """Append the node; its inputs that are no values of this kernel yet become operands."""
        kind = scalar_type(self.graph.types[node.output].dtype)
        special = _SPECIAL.get(node.op)
        if special:
            result = special(self, node, kind)
        elif node.op in _LOGIC:
            result = self._fold(_LOGIC[node.op], kind, node)
        elif node.op in _DIRECT:
            result = self._fold(_DIRECT[node.op], kind, node)
        else:
            raise ExportError(f"the operator {node.op} of {node.name!r} has no pointwise form")
        instruction = self.body[result].op if result >= 0 else "literal"
        if instruction != "literal" and instruction not in C_OF[kind]:
            raise ExportError(f"{node.op} of {node.name!r} on {kind} values has no kernel", "cast its inputs to float")
        self._values[node.output] = result

    def _fold(self, name: str, kind: Scalar, node: Node) -> int:
        """A unary or binary instruction; further inputs are folded in from the left, as Sum and Max define it."""
        values = [self.value(t) for t in node.inputs if t]
        if len(values) == 1 and node.op in ("Max", "Min", "Sum", "Mean"):
            return values[0]
        result = self.op(name, kind, *values[:2])
        for value in values[2:]:
            result = self.op(name, kind, result, value)
        return result

    def finished(self, results: Sequence[str]) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
        """(body, results) with operands numbered first, instructions after them."""
        count = len(self.operands)

        def number(value: int) -> int:
            return ~value if value < 0 else value + count

        body = tuple(Instruction(i.op, tuple(map(number, i.args)), i.type, i.params) for i in self.body)
        return body, tuple(number(self._values[t]) for t in results)


def attribute(node: Node, name: str, default: Any) -> Any:
    value = node.attrs.get(name, default)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _clip(e: Expression, node: Node, kind: Scalar) -> int:
    bounds = []
    for position, name, open_end in ((1, "min", -math.inf), (2, "max", math.inf)):
        tensor = node.inputs[position] if len(node.inputs) > position else ""
        constant = e.graph.constant(tensor) if tensor else None
        bounds.append(attribute(node, name, open_end) if constant is None else constant.reshape(()).item())
    if kind is Scalar.INT:
        bounds = [int(max(min(b, 2**62), -(2**62))) for b in bounds]
    return e.op("clip", kind, e.value(node.inputs[0]), params=tuple(bounds))


def _cast(e: Expression, node: Node, kind: Scalar) -> int:
    value = e.value(node.inputs[0])
    return value if e.types[value] is kind else e.op("cast", kind, value)


def _identity(e: Expression, node: Node, kind: Scalar) -> int:
    return e.value(node.inputs[0])


def _mean(e: Expression, node: Node, kind: Scalar) -> int:
    total = e._fold("add", kind, node)
    return e.op("mul", kind, total, e.literal(1.0 / len([t for t in node.inputs if t])))


def _mod(e: Expression, node: Node, kind: Scalar) -> int:
    name = "fmod" if attribute(node, "fmod", 0) else "mod"
    return e.op(name, kind, e.value(node.inputs[0]), e.value(node.inputs[1]))


def _where(e: Expression, node: Node, kind: Scalar) -> int:
    return e.op("where", kind, *(e.value(t) for t in node.inputs))


def _reciprocal(e: Expression, node: Node, kind: Scalar) -> int:
    return e.op("div", kind, e.literal(1.0), e.value(node.inputs[0]))


def _gelu(e: Expression, node: Node, kind: Scalar) -> int:
    name = "gelu_tanh" if attribute(node, "approximate", "none") == "tanh" else "gelu_erf"
    return e.op(name, kind, e.value(node.inputs[0]))


def _with_attributes(name: str, *attributes: tuple[str, float]) -> Callable[[Expression, Node, Scalar], int]:
    def build(e: Expression, node: Node, kind: Scalar) -> int:
        return e.op(name, kind, e.value(node.inputs[0]), params=tuple(attribute(node, a, d) for a, d in attributes))

    return build


def _is_inf(e: Expression, node: Node, kind: Scalar) -> int:
    signs = attribute(node, "detect_negative", 1), attribute(node, "detect_positive", 1)
    return e.op("is_inf", kind, e.value(node.inputs[0]), params=signs)


def _selu(e: Expression, node: Node, kind: Scalar) -> int:
    alpha, gamma = attribute(node, "alpha", 1.67326319217681885), attribute(node, "gamma", 1.05070102214813232)
    return e.op("mul", kind, e.op("elu", kind, e.value(node.inputs[0]), params=(alpha,)), e.literal(gamma))


def _celu(e: Expression, node: Node, kind: Scalar) -> int:
    alpha = attribute(node, "alpha", 1.0)
    scaled = e.op("mul", kind, e.value(node.inputs[0]), e.literal(1.0 / alpha))
    return e.op("mul", kind, e.op("elu", kind, scaled, params=(1.0,)), e.literal(alpha))


def _mish(e: Expression, node: Node, kind: Scalar) -> int:
    x = e.value(node.inputs[0])
    return e.op("mul", kind, x, e.op("tanh", kind, e.op("softplus", kind, x)))


def _softsign(e: Expression, node: Node, kind: Scalar) -> int:
    x = e.value(node.inputs[0])
    return e.op("div", kind, x, e.op("add", kind, e.literal(1.0), e.op("abs", kind, x)))


def _thresholded(e: Expression, node: Node, kind: Scalar) -> int:
    x = e.value(node.inputs[0])
    over = e.op("gt", Scalar.BOOL, x, e.literal(attribute(node, "alpha", 1.0)))
    return e.op("where", kind, over, x, e.literal(0.0))


_SPECIAL: dict[str, Callable[[Expression, Node, Scalar], int]] = {
    "Cast": _cast, "Celu": _celu, "Clip": _clip, "Elu": _with_attributes("elu", ("alpha", 1.0)), "Expand": _identity,
    "Gelu": _gelu, "HardSigmoid": _with_attributes("hard_sigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "Identity": _identity, "IsInf": _is_inf, "LeakyRelu": _with_attributes("leaky_relu", ("alpha", 0.01)),
    "Mean": _mean, "Mish": _mish, "Mod": _mod, "Reciprocal": _reciprocal, "Selu": _selu, "Softsign": _softsign,
    "ThresholdedRelu": _thresholded, "Where": _where,
}  # fmt: skip
