"""Per-channel scale and shift: BatchNormalization, and Mul, Div, Add, Sub by constants.

Proves: y = s * (W x + b) + t = (s W) x + (s b + t) for each output channel, so weights and bias can carry s and t. The
arithmetic is done in float64 and rounded once to the weight's type.
"""

from dataclasses import dataclass, replace

import numpy as np

from core.graph.ir import Graph, Node, TensorType
from core.graph.proto import dtype_of, type_of
from core.graph.walk import Names, names_of

_CHANNELLED = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True)
class Affine:
    """y = scale * x + shift; each of shape (channels,), float64. `x` is the tensor it is applied to."""

    x: str
    scale: np.ndarray
    shift: np.ndarray


def fold_affine(graph: Graph) -> Graph:
    """Folds scales and shifts that follow Conv, ConvTranspose or Gemm, as their only reader, into weights and bias."""
    editor = _Editor(graph)
    with np.errstate(all="ignore"):  # what does not stay finite is not folded
        for node in graph.nodes:
            affine = affine_of(graph, node)
            if affine is None or not editor.fold(node, affine):
                editor.keep(node)
    return editor.graph()


def fold_gemm_factors(graph: Graph) -> Graph:
    """Folds Gemm's alpha and beta into its constant weight and bias."""
    editor = _Editor(graph)
    for node in graph.nodes:
        editor.keep(editor.without_factors(node) if node.op == "Gemm" and not node.domain else node)
    return editor.graph()


def decompose_batch_norm(graph: Graph) -> Graph:
    """What BatchNormalization is left becomes a Mul (which keeps its name) and an Add called name/shift."""
    editor = _Editor(graph)
    for node in graph.nodes:
        affine = affine_of(graph, node) if node.op == "BatchNormalization" else None
        if affine is None:
            editor.keep(node)
        else:
            editor.decompose(node, affine)
    return editor.graph()


def affine_of(graph: Graph, node: Node) -> Affine | None:
    """The node as scale and shift per channel (dimension 1), if it is that."""
    if node.domain or node.output not in graph.types or any(t not in graph.types for t in node.inputs if t):
        return None
    if node.op == "BatchNormalization":
        return _batch_norm(graph, node)
    if node.op not in ("Mul", "Div", "Add", "Sub") or not graph.types[node.output].dtype.is_float:
        return None
    left, right = (graph.constant(t) for t in node.inputs)
    if (left is None) == (right is None) or (node.op == "Div" and right is None):
        return None
    x = node.inputs[0] if right is not None else node.inputs[1]
    if graph.shape(x) != graph.shape(node.output) or len(graph.shape(x)) < 2:
        return None
    value = _per_channel(right if right is not None else left, graph.shape(x))
    if value is None:
        return None
    one, zero = np.ones_like(value), np.zeros_like(value)
    if node.op == "Sub":
        return Affine(x, one, -value) if right is not None else Affine(x, -one, value)
    if node.op == "Add":
        return Affine(x, one, value)
    if node.op == "Div" and not value.all():
        return None
    return Affine(x, value if node.op == "Mul" else one / value, zero)


def _batch_norm(graph: Graph, node: Node) -> Affine | None:
    values = [graph.constant(t) for t in node.inputs[1:]]
    if any(v is None for v in values) or node.attrs.get("training_mode", 0):
        return None
    gamma, beta, mean, variance = (np.asarray(v, np.float64) for v in values)
    spread = variance + node.attrs["epsilon"]
    if not (spread > 0).all():
        return None
    scale = gamma / np.sqrt(spread)
    return Affine(node.inputs[0], scale, beta - mean * scale)


def _per_channel(value: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant that broadcasts over all but dimension 1, as float64 of (channels,); None if it does not."""
    if value is None or value.ndim > len(shape):
        return None
    extents = (1,) * (len(shape) - value.ndim) + value.shape
    if any(d != 1 for i, d in enumerate(extents) if i != 1):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (shape[1],))


class _Editor:
    """Collects the new nodes and constants of one pass."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: Names | None = None
        self._nodes: dict[str, Node] = {}
        self._maker = {t: n.name for n in graph.nodes for t in n.outputs}
        self._constants = dict(graph.constants)
        self._types = dict(graph.types)
        self._absorbed = dict(graph.absorbed)

    def keep(self, node: Node) -> None:
        self._nodes[node.name] = node

    def graph(self) -> Graph:
        return self._graph.replaced(
            self._nodes.values(), constants=self._constants, types=self._types, absorbed=self._absorbed
        )

    def _take(self, wanted: str) -> str:
        if self._names is None:
            self._names = names_of(self._graph)
        return self._names.take(wanted)

    def _constant(self, wanted: str, value: np.ndarray) -> str:
        name = self._take(wanted)
        self._constants[name] = value
        self._types[name] = type_of(value)
        return name

    def fold(self, node: Node, affine: Affine) -> bool:
        """Fold into the maker of x; False if that is not possible."""
        maker = self._nodes.get(self._maker.get(affine.x, ""))
        if maker is None or maker.domain or affine.x in self._graph.outputs:
            return False
        if self._graph.consumers(affine.x) != (node,) or node.inputs.count(affine.x) != 1:
            return False
        if maker.op == "BatchNormalization" and node.op != "BatchNormalization":
            folded = self._folded_norm(maker, affine)
        else:
            folded = self._folded(maker, affine) if maker.op in _CHANNELLED else None
        if folded is None:
            return False
        self._nodes[maker.name] = replace(folded, outputs=node.outputs)
        self._maker[node.output] = maker.name
        self._absorbed[node.name] = f"folded into {maker.name}"
        return True

    def _folded(self, maker: Node, affine: Affine) -> Node | None:
        weight = self._constants.get(maker.inputs[1])
        bias_name = maker.inputs[2] if len(maker.inputs) > 2 else ""
        bias = self._constants.get(bias_name) if bias_name else None
        alpha, beta = maker.attrs.get("alpha", 1.0), maker.attrs.get("beta", 1.0)
        if weight is None or (bias_name and bias is None) or not dtype_of(weight).is_float:
            return None
        channels = len(affine.scale)
        old = np.zeros(channels) if bias is None else _row(bias, channels)
        if old is None:
            return None
        plain = (affine.scale == 1).all()
        dtype = weight.dtype
        new_bias = (old * beta * affine.scale + affine.shift).astype(dtype)
        new_weight = weight if plain and alpha == 1 else _scaled(maker, weight, affine.scale * alpha).astype(dtype)
        if not (np.isfinite(new_bias.astype(np.float64)).all() and np.isfinite(np.abs(new_weight).max())):
            return None
        weight_name = maker.inputs[1]
        if new_weight is not weight:
            weight_name = self._constant(f"{maker.inputs[1]}/folded", new_weight)
        inputs = (maker.inputs[0], weight_name, self._constant(f"{bias_name or maker.name + '/bias'}/folded", new_bias))
        attrs = {k: v for k, v in maker.attrs.items() if k not in ("alpha", "beta")}
        return replace(maker, inputs=inputs, attrs=attrs)

    def _folded_norm(self, maker: Node, affine: Affine) -> Node | None:
        """A scale and shift behind a BatchNormalization: gamma and beta carry them."""
        gamma, beta = (self._constants.get(t) for t in maker.inputs[1:3])
        if gamma is None or beta is None:
            return None
        values = (gamma * affine.scale).astype(gamma.dtype), (beta * affine.scale + affine.shift).astype(beta.dtype)
        names = [self._constant(f"{t}/folded", v) for t, v in zip(maker.inputs[1:3], values, strict=True)]
        return replace(maker, inputs=(maker.inputs[0], *names, *maker.inputs[3:]))

    def without_factors(self, node: Node) -> Node:
        """The Gemm with alpha and beta 1, as far as the operands they scale are constants."""
        attrs, inputs = dict(node.attrs), list(node.inputs)
        for key, position in (("alpha", 1), ("beta", 2)):
            factor = attrs.pop(key, 1.0)
            name = inputs[position] if position < len(inputs) else ""
            value = self._constants.get(name)
            if factor == 1 or not name:
                attrs |= {key: factor} if factor != 1 and key == "alpha" else {}
                continue
            scaled = None if value is None else (value.astype(np.float64) * factor).astype(value.dtype)
            if scaled is None or not np.isfinite(scaled.astype(np.float64)).all():
                attrs[key] = factor
            else:
                inputs[position] = self._constant(f"{name}/scaled", scaled)
        return replace(node, attrs=attrs, inputs=tuple(inputs))

    def decompose(self, node: Node, affine: Affine) -> None:
        source: TensorType = self._graph.types[affine.x]
        extents = (-1, *(1,) * (len(source.shape) - 2))
        dtype = self._graph.constants[node.inputs[1]].dtype
        add = self._take(f"{node.name}/shift")
        scale = self._constant(f"{node.name}/scale", affine.scale.astype(dtype).reshape(extents))
        shift = self._constant(f"{node.name}/offset", affine.shift.astype(dtype).reshape(extents))
        scaled = self._take(f"{node.output}/scaled")
        self._types[scaled] = source
        self.keep(Node(node.name, "Mul", (affine.x, scale), (scaled,)))
        self.keep(Node(add, "Add", (scaled, shift), node.outputs))


def _row(bias: np.ndarray, channels: int) -> np.ndarray | None:
    """A bias as float64 of (channels,); None if it differs between rows (Gemm's C may be a matrix)."""
    if bias.ndim == 2 and bias.shape[0] != 1:
        return None
    flat = bias.reshape(-1).astype(np.float64)
    return np.broadcast_to(flat, (channels,)) if len(flat) in (1, channels) else None


def _scaled(maker: Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The weight times the scale of its output channel."""
    if maker.op == "Conv":
        scaled = np.empty_like(weight)  # computed in float64 and rounded once, without a float64 copy of all of it
        return np.multiply(weight, scale.reshape(-1, *(1,) * (weight.ndim - 1)), out=scaled, casting="same_kind")
    if maker.op == "Gemm":
        return weight * (scale.reshape(-1, 1) if maker.attrs.get("transB", 0) else scale)
    group = maker.attrs["group"]  # ConvTranspose: (C, M / group, ...), output channels are group-major
    grouped = weight.reshape(group, weight.shape[0] // group, *weight.shape[1:])
    factors = scale.reshape(group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
    return (grouped * factors).reshape(weight.shape)
