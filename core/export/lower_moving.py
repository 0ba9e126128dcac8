"""Lowers the operators that only move elements: slices, splits, concatenations, gathers and pads."""

from collections.abc import Sequence
from math import prod

from core.export import layout as L
from core.export import operations as ops
from core.export.context import Context
from core.export.expressions import attribute
from core.export.forms import merged
from core.graph.ir import Node


def _whole_dims(context: Context, tensor: str, axes: Sequence[int]) -> tuple[L.Layout, list[list[L.Factor]]]:
    """A layout to read the tensor in, in which each of `axes` is at most one factor."""
    shape = context.shape(tensor)
    for layout in (context.layout_of(tensor), *context.builder.layouts(tensor), L.row_major(shape)):
        pieces = L.dims(layout, shape)
        if pieces is not None and all(len(pieces[a]) <= 1 for a in axes):
            return layout, pieces
    raise AssertionError("row-major has one factor per dimension")


def lower_slice(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    starts, ends = context.ints(node, 1) or [], context.ints(node, 2) or []
    axes = context.ints(node, 3) or list(range(len(starts)))
    steps = context.ints(node, 4) or [1] * len(starts)
    taken = [(0, 1)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first = slice(start, end, step).indices(shape[axis % len(shape)])[0]
        taken[axis % len(shape)] = (first, step)
    _strided_copy(context, node, node.output, taken)


def _strided_copy(context: Context, node: Node, output: str, taken: Sequence[tuple[int, int]]) -> None:
    """output[i, j, ...] = input[start_0 + i * step_0, ...], `taken` being (start, step) of each dimension."""
    changed = [
        i for i, t in enumerate(taken) if t != (0, 1) or context.shape(output)[i] != context.shape(node.inputs[0])[i]
    ]
    layout, pieces = _whole_dims(context, node.inputs[0], changed)
    offset, walk = 0, []
    for i, ((start, step), dim, extent) in enumerate(zip(taken, pieces, context.shape(output), strict=True)):
        if i not in changed:
            walk.append([(f.extent, f.stride, f.stride) for f in dim])
            continue
        stride = dim[0].stride if dim else 0
        offset += start * stride
        walk.append([(extent, stride, stride * step)] if extent != 1 else [])
    target = L.from_dims([[L.Factor(extent, place) for extent, place, _ in dim] for dim in walk])
    flat = sorted((w for dim in walk for w in dim), key=lambda w: -w[1])
    contiguous = [prod(e for e, _, _ in flat[i + 1 :]) for i in range(len(flat))]
    extents, strides = merged([e for e, _, _ in flat], [[s for _, _, s in flat], contiguous])
    operation = ops.Pointwise(tuple(extents), (ops.Operand(tuple(strides[0]), offset),), (), (0,))
    read = context.builder.need_any(node.inputs[0], layout)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(output, target),))


def lower_split(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % len(shape)
    start = 0
    for output in node.outputs:
        if output:
            taken = [(start if i == axis else 0, 1) for i in range(len(shape))]
            _strided_copy(context, node, output, taken)
            start += context.shape(output)[axis]


def lower_concat(context: Context, node: Node) -> None:
    builder, y = context.builder, node.output
    shape = context.shape(y)
    axis = int(node.attrs["axis"]) % len(shape)
    order = _concat_order(context, node, axis)
    target = L.layout(shape, order)
    place = order.index(axis)
    outer = prod(shape[i] for i in order[:place])
    inner = prod(shape[i] for i in order[place + 1 :])
    widths = tuple(context.shape(t)[axis] * inner for t in node.inputs)
    reads = [builder.need(t, L.layout(context.shape(t), order)) for t in node.inputs]
    builder.emit((node.name,), ops.Concat(outer, widths), reads, (builder.result(y, target, builder.storage(y)),))


def _concat_order(context: Context, node: Node, axis: int) -> tuple[int, ...]:
    """The order of whole dimensions in memory that most bytes already lie in."""
    shape = context.shape(node.output)
    plain, last = tuple(range(len(shape))), (0, *range(2, len(shape)), 1)
    orders = [last, plain] if context.preferred(node.output) is not None else [plain, last]
    for tensor in node.inputs:
        for layout in context.builder.layouts(tensor):
            pieces = L.dims(layout, context.shape(tensor))
            if pieces is not None and all(len(p) == 1 for p in pieces):
                orders.append(tuple(sorted(plain, key=lambda i: -pieces[i][0].stride)))
    if len(shape) < 3:
        orders = [o for o in orders if o != last or o == plain]

    def moved(order: tuple[int, ...]) -> int:
        return sum(
            prod(context.shape(t))
            for t in node.inputs
            if L.layout(context.shape(t), order) not in context.builder.layouts(t)
        )

    return min(orders, key=moved)


def lower_gather(context: Context, node: Node) -> None:
    builder, (data, indices) = context.builder, node.inputs
    shape, index_shape = context.shape(data), context.shape(indices)
    axis = int(attribute(node, "axis", 0)) % len(shape)
    layout, pieces = _whole_dims(context, data, [axis])
    inner = pieces[axis][0].stride if pieces[axis] else 1
    outer, count = layout.size // (shape[axis] * inner), prod(index_shape)
    target = _gathered(pieces, axis, inner, index_shape)
    reads = (builder.need(data, layout), builder.need(indices, L.row_major(index_shape)))
    write = builder.result(node.output, target, builder.storage(node.output))
    builder.emit((node.name,), ops.Gather(outer, shape[axis], inner, count), reads, (write,))


def _gathered(pieces: list[list[L.Factor]], axis: int, inner: int, index_shape: Sequence[int]) -> L.Layout:
    """The data's order in memory, with the indices' dimensions where the axis was."""
    room = prod(index_shape) + 1  # makes place between the factors around the axis
    steps = L.Layout(tuple(index_shape), tuple(range(len(index_shape)))).strides

    def spread(dim: list[L.Factor]) -> list[L.Factor]:
        return [L.Factor(f.extent, f.stride * room if f.stride >= inner else f.stride) for f in dim]

    middle = [[L.Factor(e, inner * s)] if e != 1 else [] for e, s in zip(index_shape, steps, strict=True)]
    return L.from_dims([*map(spread, pieces[:axis]), *middle, *map(spread, pieces[axis + 1 :])])


def lower_pad(context: Context, node: Node) -> None:
    builder, x = context.builder, node.inputs[0]
    shape = context.shape(x)
    pads = context.ints(node, 1) or [0] * (2 * len(shape))
    axes = context.ints(node, 3) or list(range(len(shape)))
    before, after = [0] * len(shape), [0] * len(shape)
    for i, axis in enumerate(axes):
        before[axis % len(shape)], after[axis % len(shape)] = pads[i], pads[len(axes) + i]
    value = builder.graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    wanted = context.preferred(node.output) or context.preferred(x)
    is_last = wanted is not None or L.channels_last(shape) in builder.layouts(x)
    order = (0, *range(2, len(shape)), 1) if is_last and len(shape) > 2 else tuple(range(len(shape)))
    operation = ops.Pad(
        ops.PadMode(attribute(node, "mode", "constant")), tuple(shape[i] for i in order),
        tuple(before[i] for i in order), tuple(after[i] for i in order),
        0.0 if value is None else value.reshape(()).item(),
    )  # fmt: skip
    read = builder.need_any(x, L.layout(shape, order))
    write = builder.result(node.output, L.layout(context.shape(node.output), order))
    builder.emit((node.name,), operation, (read,), (write,))
