"""Another batch for a model that was exported with a fixed one, with a proof that samples stay apart.

Every tensor that depends on the inputs has one batch axis: its extent is batch * k, and sample i owns the slice
[i * k, (i + 1) * k). The rules below say for each operator where that axis goes; a node that could mix samples, or
whose rule is not known, is refused. A Reshape keeps row-major order, so the batch axis of its output is the one with
as many elements before it as the input's has, and a constant that bakes the old batch in is rewritten there.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

import numpy as np

from core.errors import ModelError
from core.graph.ir import Graph, Node
from core.graph.walk import Names, Walker


class Mixes(Exception):
    """The node mixes samples, or nobody can show that it does not; the text says how."""


# Elementwise with ONNX's multidirectional broadcasting, any number of inputs.
_POINTWISE = frozenset((
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Less",
    "LessOrEqual", "Log", "Max", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tanh",
    "ThresholdedRelu", "Where", "Xor",
))  # fmt: skip
# Dimension 0 is the batch by definition.
_IMAGE = frozenset((
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool",
    "SpaceToDepth",
))  # fmt: skip


class BatchWalker(Walker):
    """A walk with the new batch. `before` is the walk with the old one; dimension 0 of inputs in `fed` is the batch."""

    def __init__(self, before: Walker, names: Names, old: int, new: int, fed: Iterable[str]) -> None:
        super().__init__(before.opset, names)
        self._before = before
        self._old = old
        self._new = new
        self._axis: dict[str, int] = dict.fromkeys(fed, 0)

    def add(self, node: Node) -> None:
        batched = [t for t in node.inputs if t in self._axis]
        if not batched:
            super().add(node)
            return
        if node.op in ("Shape", "Size") and not node.domain:
            super().add(node)
            return
        try:
            if node.op == "Reshape" and not node.domain:
                node = self._reshaped(node)
            elif node.op == "Concat" and not node.domain:
                node = self._widened(node)
            super().add(node)
            axis = self._axis_of(node)
        except Mixes as reason:
            raise ModelError(
                f"the batch can't be changed from {self._old} to {self._new}: node {node.name!r} ({node.op}) {reason}",
                "export the model with the batch you need",
            ) from None
        except ModelError as error:
            raise ModelError(
                f"the batch can't be changed from {self._old} to {self._new}: {error.what}",
                "export the model with the batch you need",
            ) from None
        self._axis.update({t: axis for t in node.outputs if t})

    def check_outputs(self, graph: Graph) -> None:
        """Refuse a graph whose outputs do not hold one slice per sample. Raises ModelError."""
        for output in graph.outputs:
            if output not in self._axis:
                raise ModelError(f"the batch can't be changed: output {output!r} does not depend on the batched inputs")

    def _axis_of(self, node: Node) -> int:
        rule = _RULES.get(node.op) if not node.domain else None
        if node.op in _POINTWISE and not node.domain:
            rule = _pointwise
        elif node.op in _IMAGE and not node.domain:
            rule = _image
        if rule is None:
            raise Mixes("is not known to keep samples apart")
        if any(t not in self.types for t in (*node.inputs, *node.outputs) if t):
            raise Mixes("has a tensor of unknown type")
        axis = rule(self, node)
        if self.shape(node.output)[axis] % self._new:
            raise Mixes(f"makes shape {list(self.shape(node.output))}, dimension {axis} does not hold the batch")
        return axis

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.types[tensor].shape

    def axis(self, tensor: str) -> int | None:
        return self._axis.get(tensor)

    def value(self, node: Node, index: int) -> np.ndarray | None:
        """The constant at an input position, None if absent. Raises Mixes if it is not constant."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if not name:
            return None
        if name not in self.constants:
            raise Mixes(f"reads {name!r}, which is not constant")
        return self.constants[name]

    def only_first(self, node: Node) -> int:
        """The batch axis of the first input, when no other input has one."""
        axis = self.axis(node.inputs[0])
        if axis is None or any(self.axis(t) is not None for t in node.inputs[1:] if t):
            raise Mixes("has the batch in an operand that is not its first")
        return axis

    def _reshaped(self, node: Node) -> Node:
        """The node with a shape whose batch axis holds the new batch."""
        axis = self.only_first(node)
        earlier = self._before.types.get(node.output)
        if earlier is None:
            raise Mixes("has no known shape")
        before = prod(self.shape(node.inputs[0])[:axis])
        found = [i for i in range(len(earlier.shape)) if prod(earlier.shape[:i]) == before]
        exact = [i for i in found if earlier.shape[i] == self._old]
        merged = [i for i in found if earlier.shape[i] % self._old == 0 and earlier.shape[i] > 1]
        if not exact and not merged:
            raise Mixes(f"makes shape {list(earlier.shape)}, in which no dimension holds the batch")
        at = (exact or merged)[0]
        shape = [d // self._old * self._new if i == at else d for i, d in enumerate(earlier.shape)]
        self._axis[node.output] = at
        name = self.new_constant(f"{node.name}/batched", np.array(shape, np.int64))
        return Node(node.name, "Reshape", (node.inputs[0], name), node.outputs)

    def _widened(self, node: Node) -> Node:
        """A Concat whose inputs without a batch, alike for every sample, are repeated for each."""
        axes = {self.axis(t) for t in node.inputs} - {None}
        axis = axes.pop()
        if axes or axis is None or axis == node.attrs["axis"]:
            raise Mixes("joins along the batch")
        return replace(node, inputs=tuple(self._repeated(node, t, axis) for t in node.inputs))

    def _repeated(self, node: Node, tensor: str, axis: int) -> str:
        if self.axis(tensor) is not None or self._old != 1 or self.shape(tensor)[axis] != 1:
            return tensor
        shape = np.array([self._new if i == axis else d for i, d in enumerate(self.shape(tensor))], np.int64)
        wide, name = self.names.take(f"{tensor}/batched"), self.names.take(f"{node.name}/repeat")
        super().add(Node(name, "Expand", (tensor, self.new_constant(f"{name}/shape", shape)), (wide,)))
        self._axis[wide] = axis
        return wide


Rule = Callable[[BatchWalker, Node], int]


def _pointwise(walker: BatchWalker, node: Node) -> int:
    rank = len(walker.shape(node.output))
    own = {t: walker.axis(t) for t in node.inputs if t}
    axes = {axis + rank - len(walker.shape(t)) for t, axis in own.items() if axis is not None}
    if len(axes) != 1:
        raise Mixes("combines tensors whose batch lies in different dimensions")
    axis = axes.pop()
    for tensor, batched in own.items():
        if batched is None:
            at = axis - rank + len(walker.shape(tensor))
            if at >= 0 and walker.shape(tensor)[at] != 1:
                raise Mixes(f"combines the batch with {tensor!r}, which differs along it")
    return axis


def _image(walker: BatchWalker, node: Node) -> int:
    if walker.only_first(node) != 0:
        raise Mixes("has its batch in a dimension other than the first")
    return 0


def _attention(walker: BatchWalker, node: Node) -> int:
    if any(walker.axis(t) != 0 for t in node.inputs[:3]) or any(
        walker.axis(t) not in (None, 0) for t in node.inputs if t
    ):
        raise Mixes("has queries, keys or values whose batch is not the first dimension")
    return 0


def _resize(walker: BatchWalker, node: Node) -> int:
    axis = walker.only_first(node)
    if walker.shape(node.inputs[0])[axis] != walker.shape(node.output)[axis]:
        raise Mixes("resizes the batch")
    return axis


def _along(first: bool) -> Rule:
    """Operators that work along `axis` (`first`: along it and all behind it)."""

    def rule(walker: BatchWalker, node: Node) -> int:
        axis = walker.only_first(node)
        own = node.attrs.get("axis", -1)
        own += len(walker.shape(node.inputs[0])) if own < 0 else 0
        if axis == own or (first and axis > own):
            raise Mixes("works along the batch")
        return axis

    return rule


def _reduce(walker: BatchWalker, node: Node) -> int:
    axis = walker.only_first(node)
    rank = len(walker.shape(node.inputs[0]))
    if node.op in ("ArgMax", "ArgMin"):
        axes = [node.attrs["axis"]]
    else:
        value = walker.value(node, 1)
        axes = list(range(rank)) if value is None else [int(a) % rank for a in value.reshape(-1)]
    if axis in axes:
        raise Mixes("reduces over the batch")
    return axis if node.attrs.get("keepdims", 1) else axis - sum(a < axis for a in axes)


def _transpose(walker: BatchWalker, node: Node) -> int:
    return node.attrs["perm"].index(walker.only_first(node))


def _kept(walker: BatchWalker, node: Node) -> int:
    """Split, Slice, Pad, Tile: the batch axis must come out as it went in, of the same extent."""
    axis = walker.only_first(node)
    if node.op == "Split" and node.attrs["axis"] == axis:
        raise Mixes("splits the batch")
    if node.op == "Slice" and len(node.inputs) > 4:
        rank, axes, steps = len(walker.shape(node.inputs[0])), walker.value(node, 3), walker.value(node, 4)
        along = range(rank) if axes is None else [int(a) % rank for a in axes]
        if any(a == axis and step != 1 for a, step in zip(along, steps if steps is not None else (), strict=False)):
            raise Mixes("steps through the batch")
    if node.op == "Pad" and len(node.inputs) > 3 and node.inputs[3]:
        raise Mixes("pads along named axes")
    if node.op == "Pad":
        pads = walker.value(node, 1)
        if pads is None or pads[axis] or pads[axis + len(pads) // 2]:
            raise Mixes("pads the batch")
    if walker.shape(node.inputs[0])[axis] != walker.shape(node.output)[axis]:
        raise Mixes("changes the extent of the batch")
    return axis


def _concat(walker: BatchWalker, node: Node) -> int:
    axes = {walker.axis(t) for t in node.inputs}
    axis = axes.pop()
    if axes or axis is None:
        raise Mixes("joins tensors with and without the batch")
    return axis


def _gather(walker: BatchWalker, node: Node) -> int:
    data, indices = (walker.axis(t) for t in node.inputs)
    along = node.attrs["axis"]
    if data is not None and indices is not None:
        raise Mixes("looks up one sample in another")
    if indices is not None:
        return along + indices
    if data is None or data == along:
        raise Mixes("picks from the batch")
    return data if data < along else data + len(walker.shape(node.inputs[1])) - 1


def _matmul(walker: BatchWalker, node: Node) -> int:
    (a, b), ranks = (walker.axis(t) for t in node.inputs), [len(walker.shape(t)) for t in node.inputs]
    rank = len(walker.shape(node.output))
    if min(ranks) < 2:
        raise Mixes("multiplies with a vector")
    outer_a = None if a is None or a >= ranks[0] - 2 else a + rank - ranks[0]
    outer_b = None if b is None or b >= ranks[1] - 2 else b + rank - ranks[1]
    if a is not None and b is not None:
        if outer_a is None or outer_a != outer_b:
            raise Mixes("multiplies one sample with another")
        return outer_a
    axis, outer, operand = (a, outer_a, 0) if a is not None else (b, outer_b, 1)
    if outer is not None:
        other = 1 - operand
        own = outer - rank + ranks[other]
        if own >= 0 and walker.shape(node.inputs[other])[own] != 1:
            raise Mixes("multiplies samples with different matrices")
        return outer
    if axis != ranks[operand] - (2 if operand == 0 else 1):
        raise Mixes("sums over the batch")
    return rank - (2 if operand == 0 else 1)


def _gemm(walker: BatchWalker, node: Node) -> int:
    rows = 1 if node.attrs.get("transA", 0) else 0
    if walker.axis(node.inputs[0]) != rows or walker.axis(node.inputs[1]) is not None:
        raise Mixes("sums over the batch")
    if len(node.inputs) > 2 and node.inputs[2]:
        c = node.inputs[2]
        own = len(walker.shape(c)) - 2
        if walker.axis(c) is None and own >= 0 and walker.shape(c)[own] != 1:
            raise Mixes(f"adds {c!r}, which differs along the batch")
        if walker.axis(c) not in (None, own):
            raise Mixes("adds a tensor whose batch lies elsewhere")
    return 0


def _reshape(walker: BatchWalker, node: Node) -> int:
    axis = walker.axis(node.output)
    if axis is None:
        raise Mixes("has no known shape")
    return axis


def _expand(walker: BatchWalker, node: Node) -> int:
    axis = walker.only_first(node) + len(walker.shape(node.output)) - len(walker.shape(node.inputs[0]))
    if walker.shape(node.output)[axis] != walker.shape(node.inputs[0])[walker.only_first(node)]:
        raise Mixes("expands the batch")
    return axis


_RULES: dict[str, Rule] = {
    **{f"Reduce{kind}": _reduce for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
                                             "SumSquare")},
    "ArgMax": _reduce, "ArgMin": _reduce, "Softmax": _along(False), "LogSoftmax": _along(False),
    "Hardmax": _along(False), "LpNormalization": _along(False), "TopK": _along(False),
    "LayerNormalization": _along(True), "RMSNormalization": _along(True), "Transpose": _transpose, "Split": _kept,
    "Slice": _kept, "Pad": _kept, "Tile": _kept, "Concat": _concat, "Gather": _gather, "MatMul": _matmul,
    "Gemm": _gemm, "Reshape": _reshape, "Expand": _expand, "Resize": _resize, "Attention": _attention,
}  # fmt: skip
