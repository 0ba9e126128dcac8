"""Where the channels that a node makes go, so that they can be widened without changing what the model computes.

New channels hold values that nobody reads: every operator that reads them across channels gets weights of zero there.
What lies between works on each channel by itself and makes no infinity of a zero, so nothing of them gets out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from core.fusion.operators import ANCHORS
from core.fusion.values import attr, shape_text
from core.graph.ir import Graph, Node

_POINTWISE = frozenset((
    "Abs", "Add", "Celu", "Clip", "Div", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Max", "Min", "Mish", "Mul", "Neg", "Pow", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus",
    "Sub", "Sum", "Swish", "Tanh",
))  # fmt: skip
_DIVIDING = frozenset(("Div", "Pow"))  # whose second operand must not be filled up with zeros
_POOLS = frozenset(("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"))


class Stuck(Exception):
    """The channels can't be followed; the text says where and why."""


@dataclass
class Widened:
    """`constants` by (node that reads it, name), with the values for that node. `makers` are nodes whose channels grow,
    `readers` those that read more. `cropped` (tensor, axis) is where the old width must be cut out again, if anywhere.
    """

    old: int
    width: int
    constants: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    makers: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    cropped: tuple[str, int] | None = None


def widen(graph: Graph, name: str, width: int) -> Widened:
    """Widen the channels that a Conv, Gemm or MatMul with constant weights makes, wherever they go.

    Where they can't be followed to the end, a Gemm or MatMul is widened by itself and its result cropped. Raises Stuck.
    """
    node = graph.node(name)
    axis = 1 if node.op in ("Conv", "Gemm") else len(graph.shape(node.output)) - 1
    walk = _Walk(graph, Widened(graph.shape(node.output)[axis], width))
    try:
        walk.follow(node.output, axis)
    except Stuck:
        if node.op == "Conv":
            raise
        walk = _Walk(graph, Widened(walk.made.old, width, cropped=(_end_of_chain(graph, node), axis)))
        walk.axes[node.output] = axis
        walk.maker(node)
    return walk.made


def _end_of_chain(graph: Graph, node: Node) -> str:
    """The last tensor of the functions of one number behind a node: they can stay in its epilogue."""
    at = node.output
    while not graph.leaves(at) and len(readers := graph.consumers(at)) == 1:
        (reader,) = readers
        others = [t for t in reader.inputs if t and t != at]
        plain = reader.op in _POINTWISE and not reader.domain and len(reader.outputs) == 1
        if not plain or any(t not in graph.constants or graph.constants[t].size != 1 for t in others):
            break
        at = reader.output
    return at


class _Walk:
    def __init__(self, graph: Graph, made: Widened) -> None:
        self.graph = graph
        self.made = made
        self.axes: dict[str, int] = {}
        self.passed: set[str] = set()  # nodes that were gone through

    def follow(self, tensor: str, axis: int) -> None:
        waiting = [(tensor, axis)]
        while waiting:
            at, axis = waiting.pop()
            if at in self.axes:
                if self.axes[at] != axis:
                    raise Stuck(f"{at} holds the channels in two dimensions")
                continue
            self._check(at, axis)
            self.axes[at] = axis
            producer = self.graph.producer(at)
            assert producer is not None
            for node in (producer, *self.graph.consumers(at)):
                waiting += self._through(node, at)

    def _check(self, tensor: str, axis: int) -> None:
        if tensor in self.graph.outputs:
            raise Stuck(f"{tensor} leaves the model")
        if self.graph.producer(tensor) is None:
            raise Stuck(f"{tensor} is an input of the model")
        if self.graph.shape(tensor)[axis] != self.made.old:
            raise Stuck(f"{tensor} has {self.graph.shape(tensor)[axis]} channels, not {self.made.old}")

    def _through(self, node: Node, tensor: str) -> Iterator[tuple[str, int]]:
        """Tensors of the node that hold the channels too."""
        axis = self.axes[tensor]
        if node.op in ANCHORS and not node.domain:
            if tensor in node.outputs:
                self.maker(node)
            else:
                self._reader(node, tensor)
            return
        if node.name in self.passed:
            return
        self.passed.add(node.name)
        if node.op == "BatchNormalization" and axis == 1:
            for at, fill in zip(node.inputs[1:5], (0.0, 0.0, 0.0, 1.0), strict=True):
                self._pad(node, at, 0, fill)
            yield from ((node.inputs[0], 1), (node.output, 1))
        elif node.op in _POOLS and axis == 1 and len(node.outputs) == 1:
            yield from ((node.inputs[0], 1), (node.output, 1))
        elif node.op in _POINTWISE and not node.domain:
            yield from self._pointwise(node, len(self.graph.shape(tensor)) - axis)
        elif node.op == "Reshape":
            yield from self._reshape(node, axis)
        else:
            raise Stuck(f"{node.name} ({node.op}) does not treat each channel by itself")

    def _pointwise(self, node: Node, from_end: int) -> Iterator[tuple[str, int]]:
        rank = len(self.graph.shape(node.output))
        if from_end > rank or rank < max(len(self.graph.shape(t)) for t in node.inputs if t):
            raise Stuck(f"{node.name} broadcasts the channels")
        wide = self.graph.shape(node.output)[rank - from_end] != 1
        for position, tensor in enumerate(node.inputs):
            shape = self.graph.shape(tensor) if tensor else ()
            at = len(shape) - from_end
            if at < 0 or shape[at] == 1:
                if tensor and tensor not in self.graph.constants and wide:
                    raise Stuck(f"{node.name} spreads {tensor} over the channels")
                continue
            if tensor not in self.graph.constants:
                yield tensor, at
            elif node.op in _DIVIDING and position:
                raise Stuck(f"{node.name} ({node.op}) has a constant for each channel")
            else:
                self._pad(node, tensor, at)
        yield node.output, rank - from_end

    def _reshape(self, node: Node, axis: int) -> Iterator[tuple[str, int]]:
        """Only the one behind a global pool: dimensions of 1 come or go behind the channels."""
        shape, out = self.graph.shape(node.inputs[0]), self.graph.shape(node.output)
        short = min(len(shape), len(out))
        if axis >= short or shape[:short] != out[:short] or any(e != 1 for e in (*shape[short:], *out[short:])):
            raise Stuck(f"{node.name} moves {shape_text(shape)} to {shape_text(out)}, across channels")
        target = self.graph.constants[node.inputs[1]].copy()
        if target.reshape(-1)[axis] > 0:
            target.reshape(-1)[axis] = self.made.width
            self._set(node, node.inputs[1], target)
        yield from ((node.inputs[0], axis), (node.output, axis))

    def maker(self, node: Node) -> None:
        """A node whose output channels grow."""
        if node.name in self.made.makers:
            return
        self.made.makers.append(node.name)
        weight, bias = node.inputs[1], (*node.inputs, "")[2]
        axis = self.axes[node.output]
        if node.op == "Conv":
            if int(attr(node, "group", 1)) != 1 or axis != 1:
                raise Stuck(f"{node.name} has {attr(node, 'group', 1)} groups")
            self._pad(node, weight, 0)
        else:
            if axis != len(self.graph.shape(node.output)) - 1:
                raise Stuck(f"{node.name} does not make the channels")
            self._pad(node, weight, 0 if node.op == "Gemm" and attr(node, "transB", 0) else -1)
        if bias and self.graph.shape(bias)[-1:] == (
            self.made.old,
        ):  # one of a single value serves all columns of a Gemm
            self._pad(node, bias, -1)

    def _reader(self, node: Node, tensor: str) -> None:
        """A node that sums over the channels."""
        if tensor in node.inputs[1:]:
            raise Stuck(f"{node.name} reads {tensor} as another operand than its first")
        self.made.readers.append(node.name)
        axis, weight = self.axes[tensor], node.inputs[1]
        if node.op == "Conv":
            if int(attr(node, "group", 1)) != 1 or axis != 1:
                raise Stuck(f"{node.name} has {attr(node, 'group', 1)} groups")
            self._pad(node, weight, 1)
        elif node.op == "Gemm" and axis == 1 and not attr(node, "transA", 0):
            self._pad(node, weight, 1 if attr(node, "transB", 0) else 0)
        elif node.op == "MatMul" and axis == len(self.graph.shape(tensor)) - 1:
            self._pad(node, weight, -2)
        else:
            raise Stuck(f"{node.name} does not sum over the channels")

    def _pad(self, node: Node, tensor: str, axis: int, fill: float = 0.0) -> None:
        value = self.made.constants.get((node.name, tensor), self.graph.constants.get(tensor))
        if value is None:
            raise Stuck(f"{tensor}, which {node.name} reads, is computed at run time")
        if value.shape[axis] != self.made.old:
            raise Stuck(f"{tensor} has {value.shape[axis]} values where {node.name} has {self.made.old} channels")
        more = [(0, 0)] * value.ndim
        more[axis] = (0, self.made.width - self.made.old)
        self._set(node, tensor, np.pad(value, more, constant_values=fill))

    def _set(self, node: Node, tensor: str, value: np.ndarray) -> None:
        self.made.constants[node.name, tensor] = value
