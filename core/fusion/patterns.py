"""Activations that a model spells out in several nodes: GELU, SiLU, HardSwish, Softplus, ... in any arrangement.

Instead of a list of spellings, the nodes between one tensor and the next tensor they all lead to are evaluated as what
they are, a function of one number, and compared with each activation over its whole range. Whatever computes the
activation matches, however it is written; whatever does not, does not.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from core.fusion.steps import Link
from core.fusion.values import attr, present, scalar, uncompilable
from core.graph.ir import Graph, Node
from templates.epilogue import EpilogueOp
from templates.types import DType

MAX_NODES = 12  # the longest spelling known (tanh GELU with Mul for Pow) takes 10
Array = np.ndarray[Any, np.dtype[np.float64]]

_MIDDLE = np.linspace(-12.0, 12.0, 481)
_FAR = np.array([15.0, 20.0, 30.0, 60.0, 100.0, 1e3, 1e4])
_POINTS = np.concatenate([-_FAR[::-1], _MIDDLE, _FAR])
_MUST_BE_FINITE = np.abs(_POINTS) <= 60.0
# A constant rounded to the model's type may be off by its precision: 1/6 in f16 by 2.4e-4.
_TOLERANCE = {DType.F16: 4e-4, DType.BF16: 3e-3}


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def gelu_erf(x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# ONNX's definitions of the activations that models spell out (templates/include/bolt/activations.h has the same).
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "hard_swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "tanh": np.tanh,
}

_UNARY: dict[str, Callable[[Node, Array], Array]] = {
    "Abs": lambda n, x: np.abs(x),
    "Elu": lambda n, x: np.where(x < 0, attr(n, "alpha", 1.0) * np.expm1(x), x),
    "Erf": lambda n, x: erf(x),
    "Exp": lambda n, x: np.exp(x),
    "Gelu": lambda n, x: (gelu_tanh if attr(n, "approximate", "none") == "tanh" else gelu_erf)(x),
    "HardSigmoid": lambda n, x: np.clip(attr(n, "alpha", 0.2) * x + attr(n, "beta", 0.5), 0.0, 1.0),
    "HardSwish": lambda n, x: _ACTIVATIONS["hard_swish"](x),
    "Identity": lambda n, x: x,
    "LeakyRelu": lambda n, x: np.where(x < 0, attr(n, "alpha", 0.01) * x, x),
    "Log": lambda n, x: np.log(x),
    "Neg": lambda n, x: -x,
    "Reciprocal": lambda n, x: 1.0 / x,
    "Relu": lambda n, x: np.maximum(x, 0.0),
    "Sigmoid": lambda n, x: sigmoid(x),
    "Softplus": lambda n, x: np.logaddexp(0.0, x),
    "Softsign": lambda n, x: x / (1.0 + np.abs(x)),
    "Sqrt": lambda n, x: np.sqrt(x),
    "Tanh": lambda n, x: np.tanh(x),
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Div": np.divide,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Pow": np.power,
    "Sub": np.subtract,
    "Sum": np.add,
}


def activation(graph: Graph, x: str, native: DType, allowed: Callable[[Node], bool]) -> Link | None:
    """The smallest group of two or more nodes after `x` that computes one activation of it; None if there is none."""
    for nodes, exit_tensor in closures(graph, x, allowed):
        if len(nodes) < 2 or any(uncompilable(graph, n) for n in nodes) or graph.shape(exit_tensor) != graph.shape(x):
            continue
        value = _evaluate(graph, nodes, x)[exit_tensor]
        found = _identify(value, _TOLERANCE.get(native, 2e-5))
        if found is not None:
            return Link(tuple(nodes), (found,), exit_tensor)
    return None


def closures(graph: Graph, x: str, allowed: Callable[[Node], bool]) -> Iterator[tuple[list[Node], str]]:
    """Groups of pointwise nodes after `x` that read nothing but `x` and constants and leave through one tensor."""
    nodes: list[Node] = []
    known = [x]
    while len(nodes) < MAX_NODES:
        inside = {n.name for n in nodes}
        waiting = {r.name: r for t in known for r in graph.consumers(t) if r.name not in inside}
        # Any order finds the same groups: what lies behind a group's one way out is ready only when the group is whole.
        ready = next((r for r in waiting.values() if allowed(r) and _evaluable(graph, r, known)), None)
        if ready is None:
            return
        nodes.append(ready)
        known.append(ready.output)
        inside.add(ready.name)
        live = [t for t in known if t in graph.outputs or any(r.name not in inside for r in graph.consumers(t))]
        if live == [ready.output]:
            yield list(nodes), live[0]


def _evaluable(graph: Graph, node: Node, known: Sequence[str]) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op not in _UNARY and node.op not in _BINARY and node.op not in ("Clip", "Where"):
        return False
    operands = present(node)
    if node.op in _BINARY and len(operands) != 2:
        return False
    varying = operands[:1] if node.op == "Clip" else operands
    return all((t in known and t in varying) or scalar(graph, t) is not None for t in operands)


def _evaluate(graph: Graph, nodes: Sequence[Node], x: str) -> dict[str, Array]:
    values: dict[str, Array] = {x: _POINTS}
    with np.errstate(all="ignore"):
        for node in nodes:
            operands = [_operand(graph, values, t) for t in node.inputs if t]
            if node.op in _UNARY:
                made = _UNARY[node.op](node, operands[0])
            elif node.op == "Clip":
                low, high = (_bound(graph, node, i, name) for i, name in enumerate(("min", "max"), start=1))
                made = np.minimum(np.maximum(operands[0], low), high)
            elif node.op == "Where":
                made = np.where(operands[0], operands[1], operands[2])
            else:
                made = _BINARY[node.op](*operands)
            values[node.output] = np.broadcast_to(made, _POINTS.shape)
    return values


def _operand(graph: Graph, values: dict[str, Array], tensor: str) -> Array:
    if tensor in values:
        return values[tensor]
    constant = scalar(graph, tensor)
    assert constant is not None, tensor  # _evaluable let no other constant in
    return np.full(_POINTS.shape, constant)


def _bound(graph: Graph, node: Node, position: int, name: str) -> float:
    tensor = node.inputs[position] if len(node.inputs) > position else ""
    given = scalar(graph, tensor) if tensor else attr(node, name, None)
    return (-math.inf if name == "min" else math.inf) if given is None else float(given)


@cache
def _reference(name: str) -> Array:
    with np.errstate(all="ignore"):
        return _ACTIVATIONS[name](_POINTS)


def _identify(value: Array, tolerance: float) -> EpilogueOp | None:
    if value.dtype != np.float64 or not np.isfinite(value[_MUST_BE_FINITE]).all():
        return None
    # Far out the model's own spelling may overflow where the activation does not.
    finite = np.isfinite(value)
    errors = {}
    for op in (*map(EpilogueOp, _ACTIVATIONS), *_parametrised(value)):
        reference = _reference(op.op) if op.op in _ACTIVATIONS else _parametrised_value(op)
        error = np.abs(value - reference) / np.maximum(1.0, np.abs(reference))
        errors[op] = float(error[finite].max())
    best = min(errors, key=lambda op: errors[op])
    return best if errors[best] <= tolerance else None


def _parametrised(value: Array) -> list[EpilogueOp]:
    """Activations with a parameter, the parameter read off the function itself."""
    at_minus_one = float(value[np.abs(_POINTS + 1.0).argmin()])
    return [EpilogueOp("leaky_relu", (-at_minus_one,)), EpilogueOp("elu", (at_minus_one / math.expm1(-1.0),))]


def _parametrised_value(op: EpilogueOp) -> Array:
    negative = _POINTS if op.op == "leaky_relu" else np.expm1(np.minimum(_POINTS, 0.0))
    return np.where(_POINTS < 0, op.params[0] * negative, _POINTS)
