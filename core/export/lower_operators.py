"""Lowers every operator that is neither a template kernel nor pointwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from core.errors import ExportError
from core.export import layout as L
from core.export import operations as ops
from core.export.expressions import attribute
from core.export.forms import Builder, merged
from core.export.lower_pointwise import iteration_layout
from core.graph.ir import Node
from core.graph.proto import INPUT_SCALE
from templates.types import DType


@dataclass(frozen=True)
class Context:
    """What lowering one node needs: the builder, and the layout that a tensor's readers want (None: any)."""

    builder: Builder
    preferred: Callable[[str], L.Layout | None]

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.builder.graph.shape(tensor)

    def ints(self, node: Node, index: int) -> list[int] | None:
        """Values of a constant input; None when it is not there."""
        if len(node.inputs) <= index or not node.inputs[index]:
            return None
        value = self.builder.graph.constant(node.inputs[index])
        if value is None:
            raise ExportError(f"input {index} of {node.name!r} ({node.op}) must be a constant")
        return [int(v) for v in np.asarray(value).reshape(-1)]

    def layout_of(self, tensor: str) -> L.Layout:
        """The layout to read the tensor in when any would do."""
        wanted = self.preferred(tensor)
        return iteration_layout(self.builder, [tensor], self.shape(tensor), wanted)


def lower_operator(context: Context, node: Node) -> None:
    """Append the steps of one node. Raises ExportError for an operator without a kernel."""
    rule = _RULES.get(node.op)
    if rule is None:
        raise ExportError(f"the node {node.name!r} ({node.op}) has no kernel")
    rule(context, node)


# --- nothing moves -------------------------------------------------------------------------------------------------


def _view(context: Context, node: Node, moved: Callable[[L.Layout], L.Layout | None]) -> None:
    """The output is the input's memory under another layout; row-major first if no layout at hand can be told so."""
    builder, source = context.builder, node.inputs[0]
    if builder.alias(node.output, source, moved):
        return
    plain = L.row_major(context.shape(source))
    read = builder.need(source, plain)
    if builder.alias(node.output, source, moved):
        return
    target = moved(plain)  # only a constant gets here: it is written out once, as a tensor of its own
    assert target is not None
    copy = ops.Pointwise((plain.size,), (ops.Operand((1,)),), (), (0,))
    builder.emit((node.name,), copy, (read,), (builder.result(node.output, target),))


def _reshape(context: Context, node: Node) -> None:
    shape = context.shape(node.output)
    _view(context, node, lambda layout: L.reshaped(layout, shape))


def _transpose(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    perm = tuple(attribute(node, "perm", tuple(reversed(range(len(shape))))))
    _view(context, node, lambda layout: L.transposed(layout, shape, perm))


def _depth_to_space(context: Context, node: Node) -> None:
    n, c, h, w = context.shape(node.inputs[0])
    b = int(attribute(node, "blocksize", 1))
    if attribute(node, "mode", "DCR") == "DCR":
        split, perm = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    _view(context, node, lambda layout: _through(layout, split, perm, context.shape(node.output)))


def _space_to_depth(context: Context, node: Node) -> None:
    n, c, h, w = context.shape(node.inputs[0])
    b = int(attribute(node, "blocksize", 1))
    split, perm = (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
    _view(context, node, lambda layout: _through(layout, split, perm, context.shape(node.output)))


def _through(layout: L.Layout, split: Sequence[int], perm: Sequence[int], shape: Sequence[int]) -> L.Layout | None:
    """Reshape to `split`, Transpose by `perm`, Reshape to `shape`, without moving anything."""
    first = L.reshaped(layout, split)
    second = L.transposed(first, split, perm) if first is not None else None
    return L.reshaped(second, shape) if second is not None else None


# --- windows over channels-last tensors ----------------------------------------------------------------------------


def _image(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(n, c, h, w) of a rank-3 or rank-4 tensor; one spatial dimension is w."""
    return shape[0], shape[1], (1, *shape[2:])[-2:][0], shape[-1]


def _pool(context: Context, node: Node) -> None:
    x, y = node.inputs[0], node.output
    spatial = len(context.shape(x)) - 2
    n, c, h, w = _image(context.shape(x))
    _, _, p, q = _image(context.shape(y))

    def pair(name: str, fill: int) -> tuple[int, int]:
        a, b = (fill, *attribute(node, name, [fill] * spatial))[-2:]
        return int(a), int(b)

    pads = [int(v) for v in attribute(node, "pads", [0] * (2 * spatial))]
    top, left, bottom, right = pads if spatial == 2 else (0, pads[0], 0, pads[1])
    if node.op == "MaxPool":
        kind = ops.PoolKind.MAX
    else:
        kind = ops.PoolKind.AVERAGE_PADDED if attribute(node, "count_include_pad", 0) else ops.PoolKind.AVERAGE
    pool = ops.Pool(
        kind, n, h, w, c, p, q, pair("kernel_shape", 1), pair("strides", 1), pair("dilations", 1),
        (top, left, bottom, right),
    )  # fmt: skip
    read = context.builder.need(x, L.channels_last(context.shape(x)))
    write = context.builder.result(y, L.channels_last(context.shape(y)))
    context.builder.emit((node.name,), pool, (read,), (write,))


def _lrn(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    operation = ops.Lrn(
        prod(shape) // shape[1], shape[1], int(node.attrs["size"]), float(attribute(node, "alpha", 1e-4)),
        float(attribute(node, "beta", 0.75)), float(attribute(node, "bias", 1.0)),
    )  # fmt: skip
    last = L.channels_last(shape)
    read = context.builder.need(node.inputs[0], last)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, last),))


# --- along axes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cut:
    """A layout seen as (outer, axis, inner), where `axis` holds exactly the chosen dimensions."""

    layout: L.Layout
    outer: int
    axis: int
    inner: int
    rest: L.Layout  # of the same tensor with those dimensions reduced to 1


def _cut(layout: L.Layout, shape: Sequence[int], axes: Sequence[int], ordered: bool) -> _Cut | None:
    """None when the chosen dimensions are not neighbours in memory (or, if `ordered`, not in row-major order)."""
    pieces = L.dims(layout, shape)
    if pieces is None:
        return None
    chosen = sorted((f for a in axes for f in pieces[a]), key=lambda f: -f.stride)
    if ordered and chosen != [f for a in sorted(axes) for f in pieces[a]]:
        return None
    extent = prod(f.extent for f in chosen)
    inner = chosen[-1].stride if chosen else 1
    if chosen and chosen[0].stride * chosen[0].extent != inner * extent:
        return None
    rest = L.from_dims([[] if i in axes else dim for i, dim in enumerate(pieces)])
    return _Cut(layout, layout.size // (extent * inner), extent, inner, rest)


def _cut_of(context: Context, tensor: str, axes: Sequence[int], ordered: bool, innermost: bool = False) -> _Cut:
    """How to read the tensor along `axes`: as it lies if it can be, else with those dimensions innermost."""
    shape = context.shape(tensor)
    for layout in (context.layout_of(tensor), *context.builder.layouts(tensor)):
        found = _cut(layout, shape, axes, ordered)
        if found is not None and (found.inner == 1 or not innermost):
            return found
    kept = [i for i in range(len(shape)) if i not in axes]
    order = [*kept, *sorted(axes)]
    moved = _cut(L.layout(shape, order), shape, axes, ordered)
    assert moved is not None
    return moved


def _axes(context: Context, node: Node) -> list[int]:
    rank = len(context.shape(node.inputs[0]))
    axes = context.ints(node, 1)
    if axes is None:
        axes = list(attribute(node, "axes", range(rank)))
    return sorted({a % rank for a in axes})


_REDUCE = {
    "ReduceSum": ops.ReduceKind.SUM, "ReduceMean": ops.ReduceKind.MEAN, "ReduceMax": ops.ReduceKind.MAX,
    "ReduceMin": ops.ReduceKind.MIN, "ReduceProd": ops.ReduceKind.PROD, "ReduceL1": ops.ReduceKind.L1,
    "ReduceL2": ops.ReduceKind.L2, "ReduceSumSquare": ops.ReduceKind.SUM_SQUARE,
    "GlobalAveragePool": ops.ReduceKind.MEAN, "GlobalMaxPool": ops.ReduceKind.MAX,
}  # fmt: skip


def _reduce(context: Context, node: Node) -> None:
    is_pool = node.op.startswith("Global")
    axes = list(range(2, len(context.shape(node.inputs[0])))) if is_pool else _axes(context, node)
    cut = _cut_of(context, node.inputs[0], axes, ordered=False)
    read = context.builder.need_any(node.inputs[0], cut.layout)
    operation = ops.Reduce(_REDUCE[node.op], cut.outer, cut.axis, cut.inner)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, cut.rest),))


def _arg_reduce(context: Context, node: Node) -> None:
    axis = int(attribute(node, "axis", 0)) % max(len(context.shape(node.inputs[0])), 1)
    cut = _cut_of(context, node.inputs[0], [axis], ordered=True)
    operation = ops.ArgReduce(
        node.op == "ArgMax", bool(attribute(node, "select_last_index", 0)), cut.outer, cut.axis, cut.inner
    )
    read = context.builder.need_any(node.inputs[0], cut.layout)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, cut.rest),))


def _softmax(context: Context, node: Node) -> None:
    axis = int(attribute(node, "axis", -1)) % len(context.shape(node.inputs[0]))
    cut = _cut_of(context, node.inputs[0], [axis], ordered=False)
    scale = float(node.attrs.get(INPUT_SCALE, 1.0))
    operation = ops.Softmax(node.op == "LogSoftmax", cut.outer, cut.axis, cut.inner, scale)
    read = context.builder.need_any(node.inputs[0], cut.layout)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, cut.layout),))


def _layer_norm(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    axes = list(range(int(attribute(node, "axis", -1)) % len(shape), len(shape)))
    cut = _cut_of(context, node.inputs[0], axes, ordered=True, innermost=True)
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    operation = ops.LayerNorm(cut.outer, cut.axis, float(attribute(node, "epsilon", 1e-5)), has_bias)
    inputs = [context.builder.need_any(node.inputs[0], cut.layout)]
    for vector in node.inputs[1 : 3 if has_bias else 2]:
        inputs.append(context.builder.need(vector, L.row_major(context.shape(vector)), DType.F32))
    context.builder.emit((node.name,), operation, inputs, (context.builder.result(node.output, cut.layout),))


# --- moving elements -----------------------------------------------------------------------------------------------


def _whole_dims(context: Context, tensor: str, axes: Sequence[int]) -> tuple[L.Layout, list[list[L.Factor]]]:
    """A layout to read the tensor in, in which each of `axes` is at most one factor."""
    shape = context.shape(tensor)
    for layout in (context.layout_of(tensor), *context.builder.layouts(tensor), L.row_major(shape)):
        pieces = L.dims(layout, shape)
        if pieces is not None and all(len(pieces[a]) <= 1 for a in axes):
            return layout, pieces
    raise AssertionError("row-major has one factor per dimension")


def _slice(context: Context, node: Node) -> None:
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


def _split(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    axis = int(attribute(node, "axis", 0)) % len(shape)
    start = 0
    for output in node.outputs:
        if output:
            taken = [(start if i == axis else 0, 1) for i in range(len(shape))]
            _strided_copy(context, node, output, taken)
            start += context.shape(output)[axis]


def _concat(context: Context, node: Node) -> None:
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


def _gather(context: Context, node: Node) -> None:
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


def _pad(context: Context, node: Node) -> None:
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


_RULES: dict[str, Callable[[Context, Node], None]] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _reshape),
    **dict.fromkeys(_REDUCE, _reduce),
    "ArgMax": _arg_reduce, "ArgMin": _arg_reduce, "AveragePool": _pool, "Concat": _concat,
    "DepthToSpace": _depth_to_space, "Gather": _gather, "LRN": _lrn, "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax, "MaxPool": _pool, "Pad": _pad, "Slice": _slice, "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth, "Split": _split, "Transpose": _transpose,
}  # fmt: skip
