"""The planner's own pass: anchors in forms whose epilogue can be named by tensors of the graph alone.

What it proves: the prepared graph computes what the graph computes (constants are folded in float64 and rounded once).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from core.fusion.operators import ANCHORS
from core.fusion.shuffle import absorb_shuffles
from core.fusion.values import per_channel, scalar, uncompilable
from core.graph.ir import Graph, Node, TensorType
from core.graph.proto import numpy_dtype, type_of
from core.graph.walk import Names, names_of


def prepare(graph: Graph) -> Graph:
    """The graph the planner and everything after it work on; node names are kept, or told in `absorbed`."""
    for step in (_fold_after_matmul, _merge_biases, absorb_shuffles, _rewrite_anchors):
        graph = step(graph)
    return graph


class _Rewriter:
    """Collects the nodes, constants and types of the new graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.constants = dict(graph.constants)
        self.types = dict(graph.types)
        self.absorbed = dict(graph.absorbed)
        self._names: Names | None = None

    def name(self, wanted: str) -> str:
        if self._names is None:
            self._names = names_of(self.graph)
        return self._names.take(wanted)

    def constant(self, wanted: str, value: np.ndarray) -> str:
        name = self.name(wanted)
        self.constants[name] = value
        self.types[name] = type_of(value)
        return name

    def tensor(self, wanted: str, like: str, shape: Sequence[int]) -> str:
        name = self.name(wanted)
        self.types[name] = TensorType(self.types[like].dtype, tuple(shape))
        return name

    def reshape(self, wanted: str, x: str, shape: Sequence[int], output: str = "") -> str:
        output = output or self.tensor(f"{x}/{wanted}", x, shape)
        target = self.constant(f"{output}/shape", np.array(shape, np.int64))
        self.nodes.append(Node(self.name(f"{output}/reshape"), "Reshape", (x, target), (output,)))
        return output

    def result(self) -> Graph:
        return self.graph.replaced(self.nodes, constants=self.constants, types=self.types, absorbed=self.absorbed)


def _rewrite_anchors(graph: Graph) -> Graph:
    new = _Rewriter(graph)
    for node in graph:
        rewrite = _REWRITES.get(node.op) if not node.domain and not uncompilable(graph, node) else None
        if rewrite is None:
            new.nodes.append(node)
        else:
            rewrite(new, node)
    return new.result()


# --- MatMul --------------------------------------------------------------------------------------------------------


def _fold_after_matmul(graph: Graph) -> Graph:
    """Scales and shifts by constants after a MatMul by constants: into its weights, and into one Add.

    s * (x W) + t = x (s W) + t, with s and t one value for each column. (For Conv and Gemm the importer does the same.)
    """
    new = _Rewriter(graph)
    gone: set[str] = set()
    for node in graph:
        if node.name in gone:
            continue
        chain = _affine_chain(graph, node) if node.op == "MatMul" and not node.domain else []
        if not chain or (len(chain) == 1 and chain[0].op == "Add") or not _fold_chain(new, node, chain):
            new.nodes.append(node)
            continue
        gone.update(n.name for n in chain)
    return new.result()


def _affine_chain(graph: Graph, matmul: Node) -> list[Node]:
    """The Mul, Div, Add and Sub by constants that follow a MatMul by a constant matrix, each the only reader."""
    weights = graph.constant(matmul.inputs[1])
    if weights is None or weights.ndim < 2 or weights.size != weights.shape[-1] * weights.shape[-2]:
        return []
    chain: list[Node] = []
    last = matmul
    while (known := graph.types.get(last.output)) is not None and known.dtype.is_float:
        readers = graph.consumers(last.output)
        if len(readers) != 1 or last.output in graph.outputs or _affine(graph, readers[0], last.output) is None:
            break
        last = readers[0]
        chain.append(last)
    return chain


def _affine(graph: Graph, node: Node, x: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The node as (scale, shift) of the last axis of `x`, float64, each one value or one for each column; else None."""
    if node.op not in ("Add", "Sub", "Mul", "Div") or node.inputs[0] == node.inputs[1]:
        return None
    first = node.inputs[0] == x
    other = node.inputs[1] if first else node.inputs[0]
    value = graph.constant(other)
    if value is None or graph.types.get(node.output) != graph.types[x]:
        return None
    shape = graph.shape(x)
    if value.size != 1 and not per_channel(graph, other, shape, len(shape) - 1):
        return None
    flat = value.astype(np.float64).reshape(-1)
    one, zero = np.ones(1), np.zeros(1)
    match node.op:
        case "Add":
            return one, flat
        case "Sub":
            return (one, -flat) if first else (-one, flat)
        case "Mul":
            return flat, zero
    return (1.0 / flat, zero) if first and flat.all() else None


def _fold_chain(new: _Rewriter, matmul: Node, chain: Sequence[Node]) -> bool:
    graph = new.graph
    weights = graph.constants[matmul.inputs[1]]
    scale, shift = np.ones(1), np.zeros(1)
    for before, node in zip([matmul, *chain], chain, strict=False):
        step = _affine(graph, node, before.output)
        assert step is not None
        scale, shift = scale * step[0], shift * step[0] + step[1]
    scaled = (weights.astype(np.float64) * scale).astype(weights.dtype)
    offset = np.broadcast_to(shift, weights.shape[-1:]).astype(weights.dtype)
    if not (_finite(scaled) and _finite(offset)):
        return False
    additive = [n for n in chain if n.op in ("Add", "Sub")]
    keeper = additive[-1] if additive else None
    inputs = matmul.inputs
    if (scale != 1).any():
        inputs = (inputs[0], new.constant(f"{inputs[1]}/folded", scaled))
    output = chain[-1].output
    product = matmul.output if keeper else output
    new.nodes.append(replace(matmul, inputs=inputs, outputs=(product,)))
    if keeper:
        bias = new.constant(f"{keeper.name}/bias", offset)
        new.nodes.append(Node(keeper.name, "Add", (product, bias), (output,)))
    new.absorbed.update({n.name: f"folded into {matmul.name}" for n in chain if n is not keeper})
    return True


def _finite(value: np.ndarray) -> bool:
    return bool(np.isfinite(value.astype(np.float64)).all())


# --- a second bias -------------------------------------------------------------------------------------------------


def _merge_biases(graph: Graph) -> Graph:
    """A bias that follows another with nothing but residuals and scales between: into the first one.

    s * ((x + b) + r) + t = s * ((x + (b + t / s)) + r): an epilogue takes one bias, wherever it stands.
    """
    new = _Rewriter(graph)
    changed: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph:
        if node.op in ANCHORS and not node.domain and node.output in graph.types:
            _merge_after(new, node, changed, gone)
    if not gone:
        return graph
    new.nodes = [changed.get(n.name, n) for n in graph if n.name not in gone]
    return new.result()


def _merge_after(new: _Rewriter, anchor: Node, changed: dict[str, Node], gone: set[str]) -> None:
    graph = new.graph
    axis = 1 if anchor.op in ("Conv", "Gemm") else len(graph.shape(anchor.output)) - 1
    shape = graph.shape(anchor.output)
    holder = anchor if len(anchor.inputs) > 2 and anchor.inputs[2] in graph.constants else None
    factor, last = 1.0, anchor
    while True:
        readers = graph.consumers(last.output)
        if len(readers) != 1 or last.output in graph.outputs:
            return
        node = readers[0]
        known = graph.types.get(node.output)
        if known is None or known.shape != shape or len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
            return
        other = node.inputs[0] if node.inputs[1] == last.output else node.inputs[1]
        value = scalar(graph, other)
        if node.op in ("Add", "Sum") and other in graph.constants and per_channel(graph, other, shape, axis):
            if holder is None:
                holder, factor = node, 1.0
            elif _add_to_bias(new, holder, graph.constants[other].astype(np.float64) / factor, changed):
                gone.add(node.name)
                new.absorbed[node.name] = f"folded into the bias of {holder.name}"
                changed[last.name] = replace(changed.get(last.name, last), outputs=node.outputs)
        elif node.op in ("Mul", "Div") and value and (node.op == "Mul" or node.inputs[0] == last.output):
            factor *= value if node.op == "Mul" else 1.0 / value
        elif node.op not in ("Add", "Sum"):
            return
        last = node if node.name not in gone else changed[last.name]


def _add_to_bias(new: _Rewriter, holder: Node, value: np.ndarray, changed: dict[str, Node]) -> bool:
    current = changed.get(holder.name, holder)
    position = 2 if holder.op in ANCHORS else next(i for i, t in enumerate(current.inputs) if t in new.constants)
    bias = new.constants[current.inputs[position]]
    if bias.size not in (1, value.size):
        return False
    beta = float(holder.attrs.get("beta", 1.0)) if holder.op == "Gemm" else 1.0
    total = bias.astype(np.float64) + value.reshape(bias.shape if bias.size == value.size else (-1,)) / (beta or 1.0)
    if not beta or not _finite(total.astype(bias.dtype)):
        return False
    name = new.constant(f"{current.inputs[position]}/merged", total.astype(bias.dtype))
    inputs = tuple(name if i == position else t for i, t in enumerate(current.inputs))
    changed[holder.name] = replace(current, inputs=inputs)
    return True


# --- MatMul in canonical form --------------------------------------------------------------------------------------


def _matmul(new: _Rewriter, node: Node) -> None:
    """Vectors become matrices with one row or column; batches that broadcast are made equal."""
    a, b = node.inputs
    shape_a, shape_b = new.graph.shape(a), new.graph.shape(b)
    vectors = len(shape_a) == 1 or len(shape_b) == 1
    if len(shape_a) == 1:
        shape_a = (1, *shape_a)
        a = new.reshape("row", a, shape_a)
    if len(shape_b) == 1:
        shape_b = (*shape_b, 1)
        b = _column(new, b)
    batch = np.broadcast_shapes(shape_a[:-2], shape_b[:-2])
    if int(np.prod(shape_b[:-2])) != 1:
        a = _expand(new, node, a, (*batch, *shape_a[-2:]))
        b = _expand(new, node, b, (*batch, *shape_b[-2:]))
    product = node.output
    if vectors:
        product = new.tensor(f"{node.output}/matrix", node.output, (*batch, shape_a[-2], shape_b[-1]))
    new.nodes.append(replace(node, inputs=(a, b), outputs=(product,)))
    if vectors:
        new.reshape("", product, new.graph.shape(node.output), node.output)


def _column(new: _Rewriter, b: str) -> str:
    value = new.graph.constant(b)
    if value is not None:
        return new.constant(f"{b}/column", value.reshape(-1, 1))
    return new.reshape("column", b, (*new.graph.shape(b), 1))


def _expand(new: _Rewriter, node: Node, tensor: str, shape: tuple[int, ...]) -> str:
    have = new.types[tensor].shape
    lead = len(shape) - len(have)
    if (1,) * lead + have == shape and all(e == 1 for e in shape[:lead]):
        return tensor
    value = new.constants.get(tensor)
    if value is not None:
        return new.constant(f"{tensor}/expanded", np.broadcast_to(value, shape))
    output = new.tensor(f"{tensor}/expanded", tensor, shape)
    target = new.constant(f"{output}/shape", np.array(shape, np.int64))
    new.nodes.append(Node(new.name(f"{node.name}/expand"), "Expand", (tensor, target), (output,)))
    return output


# --- Gemm ----------------------------------------------------------------------------------------------------------


def _gemm(new: _Rewriter, node: Node) -> None:
    """alpha into a constant B, beta into C; a C that no epilogue adds (a column) into an Add behind."""
    graph = new.graph
    a, b, c = (*node.inputs, "")[:3]
    attrs = dict(node.attrs)
    alpha, beta = float(attrs.pop("alpha", 1.0)), float(attrs.pop("beta", 1.0))
    weights = graph.constant(b)
    if weights is not None and alpha != 1.0:
        b, alpha = new.constant(f"{b}/alpha", (weights.astype(np.float64) * alpha).astype(weights.dtype)), 1.0
    if alpha != 1.0:
        attrs["alpha"] = alpha
    if c and beta != 1.0:
        c = _times(new, node, c, beta)
    if not c or _epilogue_adds(graph, node, node.inputs[2]):  # beta changes neither shape nor constancy
        new.nodes.append(replace(node, inputs=(a, b, c) if c else (a, b), attrs=attrs))
        return
    product = new.tensor(f"{node.output}/product", node.output, graph.shape(node.output))
    new.nodes.append(replace(node, inputs=(a, b), outputs=(product,), attrs=attrs))
    new.nodes.append(Node(new.name(f"{node.name}/add"), "Add", (product, c), node.outputs))


def _times(new: _Rewriter, node: Node, c: str, beta: float) -> str:
    value = new.graph.constant(c)
    if value is not None:
        return new.constant(f"{c}/beta", (value.astype(np.float64) * beta).astype(value.dtype))
    output = new.tensor(f"{c}/beta", c, new.graph.shape(c))
    factor = new.constant(f"{node.name}/beta", np.array(beta, numpy_dtype(new.graph.types[c].dtype)))
    new.nodes.append(Node(new.name(f"{node.name}/scale"), "Mul", (c, factor), (output,)))
    return output


def _epilogue_adds(graph: Graph, node: Node, c: str) -> bool:
    out = graph.shape(node.output)
    return graph.shape(c) == out or per_channel(graph, c, out, 1) or scalar(graph, c) is not None


_REWRITES: dict[str, Callable[[_Rewriter, Node], None]] = {"MatMul": _matmul, "Gemm": _gemm}
