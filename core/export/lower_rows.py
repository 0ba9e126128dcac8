"""Lowers a pass over rows: one kernel reads each row once, keeps it in registers and writes every result."""

from collections.abc import Sequence
from math import prod

from core.export import layout as L
from core.export.forms import Builder, merged
from core.export.lower_pointwise import induced_layout, operand_strides, read_operand
from core.export.operations import Operand, Rows
from core.export.row_expressions import RowExpression
from core.export.rows import RowSpace
from core.graph.ir import Node

# Elements that lie together, from which on a row in pieces is read at nearly full speed (a 32-byte sector of halves).
_PIECE = 8


def lower_rows(
    builder: Builder, space: RowSpace, nodes: Sequence[Node], results: Sequence[str], preferred: L.Layout | None
) -> None:
    """One Rows step for `nodes` (in order), writing `results`."""
    graph = builder.graph
    expression = RowExpression(graph, space, prod(space.shape[a] for a in space.axes))
    for node in nodes:
        expression.add(node)
    body, values = expression.finished(results)
    shapes = expression.shapes
    full = [
        t for t, s in zip(expression.operands, shapes, strict=True) if s == space.shape and graph.constant(t) is None
    ]
    target = row_layout(builder, space, full, preferred)
    pieces = L.dims(target, space.shape)
    assert pieces is not None
    inputs, offsets, strides = [], [], []
    extents_of = [f.extent for dim in pieces for f in dim]
    for tensor, shape in zip(expression.operands, shapes, strict=True):
        layout, dense = induced_layout(pieces, shape, space.shape), operand_strides(pieces, shape, space.shape)
        buffer, walk, offset = read_operand(builder, tensor, layout, extents_of, dense)
        inputs.append(buffer)
        strides.append(walk)
        offsets.append(offset)
    outputs = []
    for tensor in results:
        own = space.shape if graph.shape(tensor) == space.whole else space.reduced
        strides.append(operand_strides(pieces, own, space.shape))
        offsets.append(0)
        outputs.append(builder.result(tensor, induced_layout(pieces, own, space.shape)))
    extents, row, walks = _walk(pieces, space, strides)
    operands = [Operand(tuple(w), o) for w, o in zip(walks, offsets, strict=True)]
    count = len(shapes)
    operation = Rows(extents, row, tuple(operands[:count]), body, values, tuple(operands[count:]))
    builder.emit([n.name for n in nodes], operation, inputs, outputs)


def _walk(
    pieces: list[list[L.Factor]], space: RowSpace, strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], int, list[list[int]]]:
    """(extents, how many of them are the row's, each operand's strides); the outer ones first, each part sorted."""
    flat = [(f, i in space.axes) for i, dim in enumerate(pieces) for f in dim]
    extents: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    row = 0
    for inside in (False, True):
        order = sorted((i for i, (_, own) in enumerate(flat) if own == inside), key=lambda i: -flat[i][0].stride)
        found, steps = merged([flat[i][0].extent for i in order], [[s[i] for i in order] for s in strides])
        extents += found
        row = len(found)
        walks = [[*walk, *part] for walk, part in zip(walks, steps, strict=True)]
    return tuple(extents), row, walks


def row_layout(builder: Builder, space: RowSpace, tensors: Sequence[str], preferred: L.Layout | None) -> L.Layout:
    """The layout that most of the full tensors already lie in, if rows can be read well in it; else rows innermost."""
    votes: dict[L.Layout, int] = {}
    for tensor in tensors:
        for found in builder.layouts(tensor):
            if reads_well(found, space):
                votes[found] = votes.get(found, 0) + 1
    if preferred is not None and preferred in votes:
        return preferred
    if votes:
        return max(votes, key=lambda layout: votes[layout])
    kept = [i for i in range(len(space.shape)) if i not in space.axes]
    return L.layout(space.shape, (*kept, *space.axes))


def reads_well(layout: L.Layout, space: RowSpace) -> bool:
    """Whether a row lies in one piece, or in pieces long enough."""
    pieces = L.dims(layout, space.shape)
    if pieces is None:
        return False
    inside = sorted((f for a in space.axes for f in pieces[a]), key=lambda f: f.stride)
    together = 1
    for factor in inside:
        if factor.stride != together:
            return together >= _PIECE
        together *= factor.extent
    return True
