"""Lowers what reads or writes where data says, resampling, running sums and selections."""

from math import prod

import numpy as np

from core.export import layout as L
from core.export import operations as ops
from core.export.context import Context
from core.export.expressions import attribute
from core.export.operations_indexed import Combine
from core.export.resampling import taps_of
from core.graph.ir import Node
from templates.types import DType


def _plain(context: Context, tensor: str, dtype: DType | None = None) -> int:
    return context.builder.need(tensor, L.row_major(context.shape(tensor)), dtype)


def _write_plain(context: Context, node: Node) -> int:
    """The output, row-major in the type that its data is stored in: these kernels move elements as they are."""
    return context.builder.result(
        node.output, L.row_major(context.shape(node.output)), context.builder.storage(node.output)
    )


def lower_gather_elements(context: Context, node: Node) -> None:
    data, indices = node.inputs
    shape = context.shape(data)
    operation = ops.GatherElements(context.shape(indices), shape, int(attribute(node, "axis", 0)) % len(shape))
    reads = _plain(context, data), _plain(context, indices)
    context.builder.emit((node.name,), operation, reads, (_write_plain(context, node),))


def lower_gather_nd(context: Context, node: Node) -> None:
    data, indices = node.inputs
    shape, index_shape = context.shape(data), context.shape(indices)
    lead, depth = int(attribute(node, "batch_dims", 0)), index_shape[-1]
    operation = ops.GatherNd(
        prod(shape[:lead]), prod(index_shape[lead:-1]), shape[lead : lead + depth], prod(shape[lead + depth :])
    )
    reads = _plain(context, data), _plain(context, indices)
    context.builder.emit((node.name,), operation, reads, (_write_plain(context, node),))


def lower_scatter_elements(context: Context, node: Node) -> None:
    data, indices, _ = node.inputs
    shape = context.shape(data)
    operation = ops.ScatterElements(
        shape, context.shape(indices), int(attribute(node, "axis", 0)) % len(shape),
        Combine(attribute(node, "reduction", "none")),
    )  # fmt: skip
    context.builder.emit(
        (node.name,), operation, [_plain(context, t) for t in node.inputs], (_write_plain(context, node),)
    )


def lower_scatter_nd(context: Context, node: Node) -> None:
    data, indices, _ = node.inputs
    shape, index_shape = context.shape(data), context.shape(indices)
    depth = index_shape[-1]
    operation = ops.ScatterNd(
        shape[:depth], prod(index_shape[:-1]), prod(shape[depth:]), Combine(attribute(node, "reduction", "none"))
    )
    context.builder.emit(
        (node.name,), operation, [_plain(context, t) for t in node.inputs], (_write_plain(context, node),)
    )


def lower_cum_sum(context: Context, node: Node) -> None:
    shape = context.shape(node.inputs[0])
    axis = (context.ints(node, 1) or [0])[0] % len(shape)
    operation = ops.CumSum(
        prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), bool(attribute(node, "exclusive", 0)),
        bool(attribute(node, "reverse", 0)),
    )  # fmt: skip
    plain = L.row_major(shape)
    read = context.builder.need_any(node.inputs[0], plain)
    context.builder.emit((node.name,), operation, (read,), (context.builder.result(node.output, plain),))


def lower_top_k(context: Context, node: Node) -> None:
    """Rows innermost; the results lie in the same order. Both outputs are made, read or not."""
    builder, shape = context.builder, context.shape(node.inputs[0])
    axis = int(attribute(node, "axis", -1)) % len(shape)
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    k = (context.ints(node, 1) or [0])[0]
    operation = ops.TopK(prod(shape) // shape[axis], shape[axis], k, bool(attribute(node, "largest", 1)))
    read = builder.need_any(node.inputs[0], L.layout(shape, order))
    target = L.layout([k if i == axis else e for i, e in enumerate(shape)], order)
    unnamed = ["", ""]
    names = [*node.outputs, *unnamed][:2]
    types = builder.storage(node.inputs[0]), DType.I64
    writes = [
        builder.result(t, target, dtype if i else None) if t else builder.scratch(dtype, target.size, node.name)
        for i, (t, dtype) in enumerate(zip(names, types, strict=True))
    ]
    builder.emit((node.name,), operation, (read,), writes)


def lower_resize(context: Context, node: Node) -> None:
    builder, x = context.builder, node.inputs[0]
    shape, made = context.shape(x), context.shape(node.output)
    wanted = context.preferred(node.output) or context.preferred(x)
    last = len(shape) > 2 and (wanted is not None or L.channels_last(shape) in builder.layouts(x))
    order = (0, *range(2, len(shape)), 1) if last else tuple(range(len(shape)))
    places, weights, taps, starts = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [], []
    scales = _scales(context, node)
    for d in order:
        if shape[d] == made[d] and scales[d] == 1:
            taps.append(1)
            starts.append(-1)
            continue
        found = taps_of(shape[d], made[d], scales[d], node.attrs)
        starts.append(sum(len(p) for p in places))
        taps.append(found.places.shape[1])
        places.append(found.places.reshape(-1))
        weights.append(found.weights.reshape(-1))
    operation = ops.Resize(tuple(made[d] for d in order), tuple(shape[d] for d in order), tuple(taps), tuple(starts))
    tables = [np.concatenate(t) if len(t) > 1 else np.zeros(1, t[0].dtype) for t in (places, weights)]
    reads = [builder.need_any(x, L.layout(shape, order))]
    for table, dtype in zip(tables, (DType.I32, DType.F32), strict=True):
        reads.append(builder.constant(table, dtype, f"{node.name}/table", table.tobytes()))
    builder.emit((node.name,), operation, reads, (builder.result(node.output, L.layout(made, order)),))


def _scales(context: Context, node: Node) -> list[float]:
    """For each dimension: what the model gives as scale, or the quotient that its sizes make (ONNX, `sizes`)."""
    shape, made = context.shape(node.inputs[0]), context.shape(node.output)
    constant = context.builder.graph.constant
    given = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    axes = [int(a) % len(shape) for a in attribute(node, "axes", range(len(shape)))]
    scales = [1.0] * len(shape)
    if given is not None and given.size:
        for axis, scale in zip(axes, given.reshape(-1), strict=True):
            scales[axis] = float(scale)
        return scales
    sizes = constant(node.inputs[3])
    assert sizes is not None
    quotients = [int(s) / shape[a] for a, s in zip(axes, sizes.reshape(-1), strict=True)]
    policy = str(attribute(node, "keep_aspect_ratio_policy", "stretch"))
    if policy != "stretch":
        quotients = [(min if policy == "not_larger" else max)(quotients)] * len(axes)
    for axis, scale in zip(axes, quotients, strict=True):
        scales[axis] = scale if policy != "stretch" else made[axis] / shape[axis]
    return scales
