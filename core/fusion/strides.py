"""How the operands of attention lie in memory, foretold from the views that lead to them.

The exporter makes Reshape and Transpose changes of description (core.export.layout), so queries that are a view of a
projection's output are read where the projection wrote them. Here the same arithmetic says where that will be; where it
can't, the operand is asked for in its own row-major order, and the exporter copies it there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.export import layout as L
from core.fusion.values import attr, shape_text
from core.graph.ir import Graph, Node
from templates.attention import Strides, heads_inside, heads_outside

VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class Heads:
    """The extents of an attention and the strides of what it reads. `merged`: the graph's tensors have batch and heads
    in one dimension."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int
    q: Strides
    k: Strides
    v: Strides
    merged: bool = False


@dataclass(frozen=True)
class _Operand:
    """A tensor and the order (batch, head, row, element) of its dimensions once they are told apart."""

    tensor: str
    transposed: bool = False  # (..., element, row)
    inside: int = 0  # heads within the rows of a (batch, row, heads * width) tensor

    def shape(self, graph: Graph, heads: int) -> tuple[int, ...]:
        """Its four dimensions in the graph's order."""
        shape = graph.shape(self.tensor)
        if self.inside:
            return shape[0], shape[1], self.inside, shape[2] // self.inside
        if len(shape) == 4:
            return shape
        whole = shape[0] if len(shape) == 3 else 1
        return whole // heads, heads, *shape[-2:]

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Which of them are batch, head, row and element."""
        if self.inside:
            return 0, 2, 1, 3
        return (0, 1, 3, 2) if self.transposed else (0, 1, 2, 3)


def heads_of(
    graph: Graph, q: str, k: str, v: str, keys_as_rows: bool, packed: tuple[int, int] | None
) -> Heads | str:  # fmt: skip
    """Extents and strides, or why the shapes are none of an attention."""
    rank, merged = len(graph.shape(q)), len(graph.shape(q)) < 4 and packed is None
    inside = packed or (0, 0)
    operands = (_Operand(q, inside=inside[0]), _Operand(k, not keys_as_rows, inside[1]), _Operand(v, inside=inside[1]))
    if any(len(graph.shape(o.tensor)) != rank for o in operands):
        return "queries, keys and values have different numbers of dimensions"
    heads = _merged_heads(graph, operands) if merged else 0
    shapes = [_in_order(o.shape(graph, heads), o.order) for o in operands]
    (batch, count, q_len, head_dim), (k_batch, kv_heads, kv_len, k_dim), (v_batch, v_heads, v_len, value_dim) = shapes
    if not (batch == k_batch == v_batch and kv_heads == v_heads and kv_len == v_len and head_dim == k_dim):
        shown = ", ".join(shape_text(graph.shape(o.tensor)) for o in operands)
        return f"queries, keys and values of {shown} do not fit together"
    if count % kv_heads:
        return f"{count} heads can't share {kv_heads} heads of keys evenly"
    lie_q, lie_k, lie_v = (_strides(graph, o, heads) for o in operands)
    return Heads(batch, count, kv_heads, q_len, kv_len, head_dim, value_dim, lie_q, lie_k, lie_v, merged)


def _in_order(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[i] for i in order)


def _merged_heads(graph: Graph, operands: Sequence[_Operand]) -> int:
    """How to tell batch and heads apart where they are one dimension: so that most operands need no copy."""
    shape = graph.shape(operands[0].tensor)
    whole = shape[0] if len(shape) == 3 else 1
    candidates = [1, whole]
    for operand in operands:
        pieces = L.dims(lies(graph, operand.tensor), graph.shape(operand.tensor))
        if pieces is not None and len(shape) == 3 and len(pieces[0]) == 2:
            candidates.append(pieces[0][1].extent)

    def free(heads: int) -> int:
        return sum(_told_apart(graph, o, heads) is not None for o in operands)

    return max(dict.fromkeys(candidates), key=lambda heads: (free(heads), heads))


def _told_apart(graph: Graph, operand: _Operand, heads: int) -> Strides | None:
    """The strides of the operand where it lies; None if it does not lie in rows of neighbouring elements."""
    shape = operand.shape(graph, heads)
    if any(e < 1 for e in shape):
        return None
    pieces = L.dims(lies(graph, operand.tensor), shape)
    if pieces is None or any(len(p) > 1 for p in pieces):
        return None
    batch, head, row, element = (pieces[i][0].stride if pieces[i] else 0 for i in operand.order)
    return (batch, head, row) if element in (0, 1) else None


def _strides(graph: Graph, operand: _Operand, heads: int) -> Strides:
    found = _told_apart(graph, operand, heads)
    if found is not None:
        return found
    _, count, rows, width = _in_order(operand.shape(graph, heads), operand.order)
    return heads_inside(count, rows, width) if operand.inside else heads_outside(count, rows, width)


def mask_strides(shape: Sequence[int], heads: Heads, rank: int) -> Strides | None:
    """Strides of a row-major mask that broadcasts over (batch, head, row, column), or over (batch * head, row, column)
    if `rank` is 3; None if it is none."""
    if len(shape) > rank:
        return None
    full = (1,) * (rank - len(shape)) + tuple(shape)
    if rank == 3:
        full = (*((heads.batch, heads.heads) if full[0] > 1 else (1, 1)), *full[1:])
    wanted = (heads.batch, heads.heads, heads.q_len, heads.kv_len)
    if full[3] != heads.kv_len or any(e not in (1, w) for e, w in zip(full, wanted, strict=True)):
        return None
    steps = (full[1] * full[2] * full[3], full[2] * full[3], full[3])
    batch, head, row = (s if e > 1 else 0 for s, e in zip(steps, full, strict=False))
    return batch, head, row


def out_strides(graph: Graph, out: str, heads: Heads, inside: bool) -> Strides:
    """Where the result is wanted: so that the views behind it end in the row-major order of their last tensor."""
    if inside:
        return heads_inside(heads.heads, heads.q_len, heads.value_dim)
    shape = (heads.batch, heads.heads, heads.q_len, heads.value_dim)
    pieces = L.dims(_wanted(graph, out), shape)
    if pieces is not None and all(len(p) <= 1 for p in pieces):
        batch, head, row, element = (p[0].stride if p else 0 for p in pieces)
        if element in (0, 1):
            return batch, head, row
    return heads_outside(heads.heads, heads.q_len, heads.value_dim)


def layout_of(strides: Strides, counts: tuple[int, int, int], width: int, order: Sequence[int]) -> L.Layout:
    """The layout of a dense tensor with these strides of (batch, head, row), whose dimensions are told apart as
    `order` says: 0, 1, 2 for those, 3 for the elements of a row."""
    steps = (*strides, 1)
    extents = (*counts, width)
    return L.from_dims([[L.Factor(extents[i], steps[i])] if extents[i] > 1 else [] for i in order])


# --- views ---------------------------------------------------------------------------------------------------------


def lies(graph: Graph, tensor: str) -> L.Layout:
    """The layout in which the exporter will have the tensor: a view of what made it, which is row-major unless it is a
    convolution's."""
    moves: list[Node] = []
    while (node := graph.producer(tensor)) is not None and node.op in VIEWS and not node.domain:
        moves.append(node)
        tensor = node.inputs[0]
    shape = graph.shape(tensor)
    channels_last = node is not None and node.op == "Conv"
    found = L.channels_last(shape) if channels_last else L.row_major(shape)
    for move in reversed(moves):
        found = _moved(graph, move, found) or L.row_major(graph.shape(move.output))
    return found


def _moved(graph: Graph, node: Node, layout: L.Layout) -> L.Layout | None:
    before, after = graph.shape(node.inputs[0]), graph.shape(node.output)
    if node.op == "Transpose":
        return L.transposed(layout, before, _perm(node, len(before)))
    return L.reshaped(layout, after)


def _wanted(graph: Graph, tensor: str) -> L.Layout:
    """The layout of a tensor that makes the last of the views behind it row-major (channels-last for a convolution)."""
    moves = list(_views_behind(graph, tensor))
    last = moves[-1].output if moves else tensor
    readers = graph.consumers(last)
    shape = graph.shape(last)
    for_conv = bool(readers) and all(r.op == "Conv" and r.inputs[0] == last for r in readers)
    found: L.Layout | None = L.channels_last(shape) if for_conv else L.row_major(shape)
    for move in reversed(moves):
        before, after = graph.shape(move.inputs[0]), graph.shape(move.output)
        if found is None:
            break
        if move.op == "Transpose":
            perm = _perm(move, len(before))
            found = L.transposed(found, after, [perm.index(i) for i in range(len(perm))])
        else:
            found = L.reshaped(found, before)
    return found or L.row_major(graph.shape(tensor))


def _views_behind(graph: Graph, tensor: str) -> Iterator[Node]:
    while tensor not in graph.outputs:
        readers = graph.consumers(tensor)
        if len(readers) != 1 or readers[0].op not in VIEWS or readers[0].domain:
            return
        yield readers[0]
        tensor = readers[0].output


def _perm(node: Node, rank: int) -> list[int]:
    return [int(p) for p in attr(node, "perm", tuple(reversed(range(rank))))]
