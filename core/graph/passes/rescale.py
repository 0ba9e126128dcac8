"""Activations beyond float16, brought into its range by powers of two. Not part of `simplify`: it needs measured peaks.

Proves: with x' = 2^-a x and y' = 2^-b y, a layer y = W x + c is y' = (2^(a-b) W) x' + 2^-b c, exactly, as powers of two
only change exponents; ReLU, pooling, addition and data movement commute with a positive factor. Tensors tied by such
nodes share one exponent. Graph inputs and outputs, and whatever meets another operator, keep theirs at 0; Softmax takes
scaled logits and carries the factor in its attribute `input_scale`, which multiplies them in float32.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil, log2

import numpy as np

from core.graph.ir import Graph, Node
from core.graph.proto import INPUT_SCALE, type_of
from core.graph.ranges import LARGEST_HALF
from core.graph.walk import names_of

# Where the largest value of a rescaled tensor is put at most: other inputs may reach four times as far.
TARGET = LARGEST_HALF / 4
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# f(2^a x) = 2^a f(x) for the first input; the others are constants or indices.
_FIRST = frozenset((
    "Abs", "AveragePool", "DepthToSpace", "Div", "Expand", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Identity",
    "LeakyRelu", "MaxPool", "Mul", "Neg", "PRelu", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu",
    "Reshape", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose",
))  # fmt: skip
# The same for all inputs together.
_TOGETHER = frozenset(("Add", "Concat", "Max", "Min", "Sub"))


class _Classes:
    """Tensors that must share an exponent (union-find); `pinned` ones keep 0."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._pinned: set[str] = set()

    def find(self, tensor: str) -> str:
        root = tensor
        while (above := self._parent.get(root, root)) != root:
            root = above
        self._parent[tensor] = root
        return root

    def join(self, tensors: Iterable[str]) -> None:
        roots = [self.find(t) for t in tensors]
        for root in roots[1:]:
            self._parent[root] = roots[0]

    def pin(self, tensors: Iterable[str]) -> None:
        self._pinned.update(tensors)

    def pinned(self) -> set[str]:
        return {self.find(t) for t in self._pinned}


def fit_half_range(graph: Graph, measured: Mapping[str, float]) -> Graph:
    """The graph with every tensor it can bring there inside float16's range; the same graph if all are already.

    `measured` gives the largest magnitude of each tensor (core.graph.ranges.peaks). A tensor that is pinned and too
    large stays so: `core.graph.ranges.beyond_half` of the result's peaks tells.
    """
    return rescaled(graph, exponents_for_half(graph, measured))


def exponents_for_half(graph: Graph, measured: Mapping[str, float]) -> dict[str, int]:
    """The tensors to be scaled, each with its exponent e: `rescaled` makes its values 2^-e times what they were."""
    if all(peak <= LARGEST_HALF for peak in measured.values()):
        return {}
    classes = _tied(graph)
    pinned = classes.pinned()
    largest: dict[str, float] = {}
    for tensor, peak in measured.items():
        root = classes.find(tensor)
        largest[root] = max(largest.get(root, 0.0), peak)
    exponents = {
        root: ceil(log2(peak / TARGET)) for root, peak in largest.items()
        if root not in pinned and LARGEST_HALF < peak < float("inf")
    }  # fmt: skip
    made = (t for n in graph.nodes for t in n.outputs if t)
    return {t: exponents[root] for t in made if (root := classes.find(t)) in exponents}


def _floats(graph: Graph, tensors: Iterable[str]) -> list[str]:
    """Those of floating-point type that are no constants."""
    return [t for t in tensors if t in graph.types and t not in graph.constants and graph.types[t].dtype.is_float]


def _tied(graph: Graph) -> _Classes:
    classes = _Classes()
    classes.pin((*graph.inputs, *graph.outputs))
    for node in graph.nodes:
        read, made = _floats(graph, node.inputs), _floats(graph, node.outputs)
        constant = all(t in graph.constants for t in node.inputs[1:] if t)
        if node.domain:
            classes.pin((*read, *made))
        elif node.op in _LAYERS and constant and not {"alpha", "beta"} & set(node.attrs):
            continue
        elif node.op in ("Softmax", "LogSoftmax"):
            classes.pin(made)
        elif (node.op in _FIRST and constant and read) or (node.op in _TOGETHER and read):
            classes.join((*read, *made))
        else:
            classes.pin((*read, *made))
    return classes


def rescaled(graph: Graph, exponents: Mapping[str, int]) -> Graph:
    """The graph with the scaled tensors of `exponents_for_half`; the same graph if there are none."""
    if not exponents:
        return graph
    names = names_of(graph)
    constants, types = dict(graph.constants), dict(graph.types)
    made: dict[tuple[str, int], str] = {}

    def scaled(tensor: str, exponent: int) -> str:
        """The constant times 2^exponent."""
        if not tensor or not exponent:
            return tensor
        if (tensor, exponent) not in made:
            name = made[tensor, exponent] = names.take(f"{tensor}/rescaled")
            constants[name] = _times_power(graph.constants[tensor], exponent)
            types[name] = type_of(constants[name])
        return made[tensor, exponent]

    nodes: list[Node] = []
    for node in graph.nodes:
        before = exponents.get(node.inputs[0], 0) if node.inputs else 0
        after = exponents.get(node.outputs[0], 0)
        inputs, attrs = node.inputs, node.attrs
        if node.op in _LAYERS and (before or after):
            bias = tuple(scaled(t, -after) for t in inputs[2:])
            inputs = (inputs[0], scaled(inputs[1], before - after), *bias)
        elif node.op in _TOGETHER and after:
            inputs = tuple(scaled(t, -after) if t in graph.constants else t for t in inputs)
        elif node.op in ("Softmax", "LogSoftmax") and before:
            attrs = {**attrs, INPUT_SCALE: float(2.0**before)}
        nodes.append(replace(node, inputs=inputs, attrs=attrs))
    return graph.replaced(nodes, constants=constants, types=types)


def _times_power(value: np.ndarray, exponent: int) -> np.ndarray:
    """value * 2^exponent in its own type; a view of one number stays one."""
    if value.size and not any(value.strides):
        return np.broadcast_to(_times_power(value.reshape(-1)[:1].copy(), exponent).reshape(()), value.shape)
    factor = np.array(2.0**exponent, np.float64 if value.dtype.itemsize == 8 else np.float32)
    return np.multiply(value, factor, dtype=factor.dtype).astype(value.dtype)
