"""Lowers every operator that is neither a template kernel nor pointwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from core.errors import ExportError
from core.export import layout as L
from core.export import operations as ops
from core.export.context import Context
from core.export.expressions import attribute
from core.export.lower_indexed import (
    lower_cum_sum,
    lower_gather_elements,
    lower_gather_nd,
    lower_resize,
    lower_scatter_elements,
    lower_scatter_nd,
    lower_top_k,
)
from core.export.lower_moving import lower_concat, lower_gather, lower_pad, lower_slice, lower_split
from core.export.lower_rows import lower_rows
from core.export.rows import NORMS, RowSpace, space_of
from core.graph.ir import Node
from core.graph.proto import INPUT_SCALE


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


def _pool(context: Context, node: Node) -> None:
    x, y = node.inputs[0], node.output
    shape, made = context.shape(x), context.shape(y)
    spatial = len(shape) - 2
    pads = [int(v) for v in attribute(node, "pads", [0] * (2 * spatial))]
    if shape[2:] == tuple(attribute(node, "kernel_shape", ())) and not any(pads):
        _reduce_over(context, node, range(2, len(shape)))  # one window: a reduction has more threads for it
        return

    def three(values: Sequence[int], fill: int) -> tuple[int, int, int]:
        a, b, c = (*(fill,) * (3 - spatial), *map(int, values))
        return a, b, c

    def given(name: str) -> tuple[int, int, int]:
        return three(attribute(node, name, [1] * spatial), 1)

    if node.op == "MaxPool":
        kind = ops.PoolKind.MAX
    else:
        kind = ops.PoolKind.AVERAGE_PADDED if attribute(node, "count_include_pad", 0) else ops.PoolKind.AVERAGE
    pool = ops.Pool(
        kind, shape[0], shape[1], three(shape[2:], 1), three(made[2:], 1), given("kernel_shape"), given("strides"),
        given("dilations"), three(pads[:spatial], 0), three(pads[spatial:], 0),
    )  # fmt: skip
    read = context.builder.need(x, L.channels_last(shape))
    write = context.builder.result(y, L.channels_last(made))
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


def _cut_of(context: Context, tensor: str, axes: Sequence[int], ordered: bool) -> _Cut:
    """How to read the tensor along `axes`: as it lies if it can be, else with those dimensions innermost."""
    shape = context.shape(tensor)
    for layout in (context.layout_of(tensor), *context.builder.layouts(tensor)):
        found = _cut(layout, shape, axes, ordered)
        if found is not None:
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
    "AveragePool": ops.ReduceKind.MEAN, "GlobalAveragePool": ops.ReduceKind.MEAN, "GlobalMaxPool": ops.ReduceKind.MAX,
    "MaxPool": ops.ReduceKind.MAX,
}  # fmt: skip


def _reduce(context: Context, node: Node) -> None:
    is_pool = node.op.startswith("Global")
    _reduce_over(context, node, range(2, len(context.shape(node.inputs[0]))) if is_pool else _axes(context, node))


def _reduce_over(context: Context, node: Node, axes: Sequence[int]) -> None:
    cut = _cut_of(context, node.inputs[0], axes, ordered=False)
    if cut.inner == 1:
        space = RowSpace(context.shape(node.inputs[0]), tuple(axes))
        lower_rows(context.builder, space, [node], [node.output], cut.layout)
        return
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
    if cut.inner == 1:
        _rows(context, node)
        return
    scale = float(node.attrs.get(INPUT_SCALE, 1.0))
    operation = ops.Softmax(node.op == "LogSoftmax", cut.outer, cut.axis, cut.inner, scale)
    read = context.builder.need_any(node.inputs[0], cut.layout)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, cut.layout),))


def _rows(context: Context, node: Node) -> None:
    """One node as a pass over its rows."""
    space = space_of(context.builder.graph, node)
    assert space is not None
    used = [t for t in node.outputs if t and (context.builder.graph.consumers(t) or t in context.builder.graph.outputs)]
    lower_rows(context.builder, space, [node], used, context.preferred(node.output))


_RULES: dict[str, Callable[[Context, Node], None]] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _reshape),
    **dict.fromkeys(_REDUCE, _reduce),
    **dict.fromkeys((*NORMS, "ReduceLogSum", "ReduceLogSumExp"), _rows),
    "ArgMax": _arg_reduce, "ArgMin": _arg_reduce, "AveragePool": _pool, "Concat": lower_concat,
    "CumSum": lower_cum_sum, "DepthToSpace": _depth_to_space, "Gather": lower_gather,
    "GatherElements": lower_gather_elements, "GatherND": lower_gather_nd, "Resize": lower_resize,
    "ScatterElements": lower_scatter_elements, "ScatterND": lower_scatter_nd, "TopK": lower_top_k, "LRN": _lrn,
    "LogSoftmax": _softmax, "MaxPool": _pool, "Pad": lower_pad, "Slice": lower_slice, "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth, "Split": lower_split, "Transpose": _transpose,
}  # fmt: skip
