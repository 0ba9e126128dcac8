"""Lowers chains of pointwise nodes: one kernel for a whole region, whatever broadcasts in it."""

from collections.abc import Sequence

from core.export import layout as L
from core.export.expressions import Expression
from core.export.forms import Builder, merged
from core.export.operations import Operand, Pointwise
from core.graph.ir import Node
from templates.types import DType

_SMALL = 8  # a constant this many times smaller than the result is kept in float32: it costs no traffic


def lower_pointwise(
    builder: Builder, nodes: Sequence[Node], results: Sequence[str], preferred: L.Layout | None
) -> None:
    """One Pointwise step for `nodes` (in order), writing `results`, all of one shape, in one common layout.

    `preferred` is the layout the readers want; it is taken unless every full operand lies in another one.
    """
    graph = builder.graph
    expression = Expression(graph)
    for node in nodes:
        expression.add(node)
    body, values = expression.finished(results)
    shape = graph.shape(results[0])
    full = [t for t in expression.operands if graph.shape(t) == shape and graph.constant(t) is None]
    target = iteration_layout(builder, full, shape, preferred)
    pieces = L.dims(target, shape)
    assert pieces is not None
    factors = sorted((f for dim in pieces for f in dim), key=lambda f: -f.stride)
    walks = [operand_strides(pieces, graph.shape(t), shape) for t in expression.operands]
    own = [f.extent for dim in pieces for f in dim]
    inputs, offsets = [], []
    for i, (tensor, strides) in enumerate(zip(expression.operands, walks, strict=True)):
        layout = induced_layout(pieces, graph.shape(tensor), shape)
        buffer, walks[i], offset = read_operand(builder, tensor, layout, own, strides)
        inputs.append(buffer)
        offsets.append(offset)
    order = {f: i for i, f in enumerate(factors)}
    flat = [order[f] for dim in pieces for f in dim]
    ordered = [[w[flat.index(i)] for i in range(len(flat))] for w in walks]
    extents, strides_of = merged([f.extent for f in factors], [*ordered, [f.stride for f in factors]])
    operands = tuple(Operand(tuple(s), o) for s, o in zip(strides_of[:-1], offsets, strict=True))
    operation = Pointwise(tuple(extents), operands, body, values)
    outputs = [builder.result(t, target) for t in results]
    builder.emit([n.name for n in nodes], operation, inputs, outputs)


def iteration_layout(
    builder: Builder, tensors: Sequence[str], shape: Sequence[int], preferred: L.Layout | None
) -> L.Layout:
    """The layout a kernel over `shape` writes: the one that makes the fewest bytes of `tensors` move first."""
    votes: dict[L.Layout, int] = {}
    for tensor in tensors:
        for found in builder.layouts(tensor):
            if L.dims(found, shape) is not None:
                votes[found] = votes.get(found, 0) + 1
    if preferred is not None and (not votes or preferred in votes):
        return preferred
    return max(votes, key=lambda layout: votes[layout]) if votes else L.row_major(shape)


def _aligned(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def induced_layout(pieces: list[list[L.Factor]], shape: Sequence[int], full: Sequence[int]) -> L.Layout:
    """The layout of an operand in the order of the result, without the dimensions it broadcasts along."""
    mine = _aligned(shape, len(full))
    return L.from_dims([dim if e != 1 else [] for dim, e in zip(pieces, mine, strict=True)])


def operand_strides(pieces: list[list[L.Factor]], shape: Sequence[int], full: Sequence[int]) -> list[int]:
    """Strides of an operand in its induced layout along every factor of the result (dimension by dimension)."""
    mine = _aligned(shape, len(full))
    factors = [(f, e != 1) for dim, e in zip(pieces, mine, strict=True) for f in dim]
    strides, step = [0] * len(factors), 1
    for i in sorted(range(len(factors)), key=lambda i: factors[i][0].stride):
        if factors[i][1]:
            strides[i] = step
            step *= factors[i][0].extent
    return strides


def read_operand(
    builder: Builder, tensor: str, layout: L.Layout, extents: Sequence[int], strides: Sequence[int]
) -> tuple[int, list[int], int]:
    """(buffer, strides, offset) to read an operand with, which has these strides where it is dense; a slice is read
    where it lies. A constant that broadcasts stays in float32.
    """
    kind = builder.graph.types[tensor]
    value = builder.graph.constant(tensor)
    if value is None:
        index, part = builder.view(tensor, layout, list(zip(extents, strides, strict=True)))
        return (index, [part.stride(s) for s in strides], part.first) if part else (index, list(strides), 0)
    small = kind.dtype.is_float and any(s == 0 for s in strides)
    return builder.need(tensor, layout, DType.F32 if small else None), list(strides), 0
