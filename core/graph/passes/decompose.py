"""Operators that are others in disguise, written out in those. Proves: each is its ONNX definition in other operators.

Einsum becomes MatMul, ConvTranspose a Conv and a shuffle of its channels, quantisation arithmetic, Tile an Expand: what
is left for kernels are operators that need one.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from core.graph.ir import Graph
from core.graph.passes.einsum import contract
from core.graph.passes.transposed import convolve_transposed
from core.graph.passes.writer import Writer
from core.graph.proto import element_code, numpy_dtype
from core.graph.walk import Walker, names_of
from templates.types import DType

# A mask of Trilu, or the numbers of OneHot, is a constant: no larger than this.
_MOST_CONSTANT = 1 << 26


def decompose(graph: Graph) -> Graph:
    """Rewrites every operator that its rule can express; the last node of each keeps the node's name."""
    if not any(n.op in RULES and not n.domain for n in graph):
        return graph
    walker = Walker(graph.opset, names_of(graph), graph.types)
    for tensor in graph.inputs:
        walker.add_input(tensor, graph.types[tensor])
    for tensor, value in graph.constants.items():
        walker.add_constant(tensor, value)
    for node in graph.nodes:
        rule = RULES.get(node.op) if not node.domain and len([t for t in node.outputs if t]) == 1 else None
        result = graph.types.get(node.output)
        known = result is not None and all(t in walker.types for t in node.inputs if t)
        if not (rule and result and known and rule(Writer(walker, node, result))):
            walker.add(node)
    made = walker.finish(graph.name, graph.inputs, graph.outputs)
    return made.replaced(made.nodes, absorbed={**graph.absorbed, **made.absorbed})


# --- quantisation --------------------------------------------------------------------------------------------------


def _spread(w: Writer, tensor: str, shape: tuple[int, ...]) -> str | None:
    """A scale or zero point as it broadcasts against `shape`: one value, one for each index of `axis` or each block."""
    own, axis = w.shape(tensor), int(w.node.attrs.get("axis", 1)) % max(len(shape), 1)
    if prod(own) == 1:
        return w.reshape(tensor, ())
    if len(own) == 1:
        return w.reshape(tensor, [own[0] if i == axis else 1 for i in range(len(shape))])
    block = int(w.node.attrs.get("block_size", 0))
    if not block or len(own) != len(shape) or own[axis] * block != shape[axis]:
        return None
    cut = [*own[: axis + 1], 1, *own[axis + 1 :]]
    wide = [*own[: axis + 1], block, *own[axis + 1 :]]
    return w.reshape(w.op("Expand", w.reshape(tensor, cut), w.ints(wide)), shape)


def _dequantize(w: Writer) -> bool:
    """(x - zero point) * scale."""
    shape, dtype = w.shape(w.input(0)), w.dtype(w.input(1))
    scale = _spread(w, w.input(1), shape)
    zero = _spread(w, w.input(2), shape) if w.input(2) else None
    if scale is None or (w.input(2) and zero is None):
        return False
    x = w.cast(w.input(0), dtype)
    x = w.op("Sub", x, w.cast(zero, dtype)) if zero else x
    w.finish("Mul", x, scale)
    return True


def _quantize(w: Writer) -> bool:
    """saturate(round(x / scale) + zero point), rounding halves to even."""
    shape, dtype, target = w.shape(w.input(0)), w.dtype(w.input(0)), w.result.dtype
    if not dtype.is_float or target not in (DType.I8, DType.U8):
        return False
    scale = _spread(w, w.input(1), shape)
    zero = _spread(w, w.input(2), shape) if w.input(2) else None
    if scale is None or (w.input(2) and zero is None):
        return False
    x = w.op("Round", w.op("Div", w.input(0), w.cast(scale, dtype)))
    x = w.op("Add", x, w.cast(zero, dtype)) if zero else x
    limits = np.iinfo(numpy_dtype(target))
    x = w.op("Clip", x, w.constant(limits.min, w.input(0)), w.constant(limits.max, w.input(0)))
    w.finish("Cast", x, to=element_code(target))
    return True


# --- arithmetic ----------------------------------------------------------------------------------------------------


def _batch_norm(w: Writer) -> bool:
    """With statistics that are computed at run time; with constant ones it is folded before."""
    if w.node.attrs.get("training_mode", 0):
        return False
    x, rank = w.input(0), len(w.shape(w.input(0)))
    scale, bias, mean, variance = w.node.inputs[1:5]
    spread = w.op("Sqrt", w.op("Add", variance, w.constant(w.node.attrs["epsilon"], variance)))
    factor = w.op("Div", scale, w.cast(spread, w.dtype(scale)))
    wide = [w.shape(x)[1], *(1,) * (rank - 2)]
    centred = w.op("Sub", x, w.cast(w.reshape(mean, wide), w.dtype(x)))
    scaled = w.op("Mul", centred, w.cast(w.reshape(factor, wide), w.dtype(x)))
    w.finish("Add", scaled, w.cast(w.reshape(bias, wide), w.dtype(x)))
    return True


def _cast_like(w: Writer) -> bool:
    w.finish("Cast", w.input(0), to=element_code(w.result.dtype))
    return True


def _shrink(w: Writer) -> bool:
    x, limit, bias = w.input(0), float(w.node.attrs.get("lambd", 0.5)), float(w.node.attrs.get("bias", 0.0))
    if not w.dtype(x).is_float:
        return False
    inner = w.op("Where", w.op("Greater", x, w.constant(limit, x)), w.op("Sub", x, w.constant(bias, x)),
                 w.constant(0, x))  # fmt: skip
    w.finish("Where", w.op("Less", x, w.constant(-limit, x)), w.op("Add", x, w.constant(bias, x)), inner)
    return True


def _lp_pool(w: Writer) -> bool:
    """(sum over the window of |x|^p)^(1/p): the average with its padding, times the window."""
    power = float(w.node.attrs.get("p", 2))
    x = w.input(0)
    y = w.op("Mul", x, x) if power == 2 else w.op("Pow", w.op("Abs", x), w.constant(power, x))
    if w.node.op == "GlobalLpPool":
        total = w.op("ReduceSum", y, w.ints(range(2, len(w.shape(x)))), keepdims=1)
    else:
        if w.node.attrs.get("ceil_mode", 0):
            return False
        attrs = {k: v for k, v in w.node.attrs.items() if k != "p"}
        mean = w.op("AveragePool", y, **attrs, count_include_pad=1)
        total = w.op("Mul", mean, w.constant(prod(attrs["kernel_shape"]), x))
    if power == 2:
        w.finish("Sqrt", total)
    else:
        w.finish("Pow", total, w.constant(1 / power, x))
    return True


# --- masks and copies ----------------------------------------------------------------------------------------------


def _trilu(w: Writer) -> bool:
    shape, k = w.shape(w.input(0)), w.value(1)
    if (w.input(1) and k is None) or shape[-1] * shape[-2] > _MOST_CONSTANT:
        return False
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    ones = np.ones(shape[-2:], bool)
    mask = np.triu(ones, diagonal) if w.node.attrs.get("upper", 1) else np.tril(ones, diagonal)
    w.finish("Where", w.constant(mask), w.input(0), w.constant(0, w.input(0)))
    return True


def _one_hot(w: Writer) -> bool:
    """Each index compared with every position; one from the end counts back, one outside is nowhere."""
    depth, indices = w.value(1), w.input(0)
    if depth is None:
        return False
    count, shape = int(depth.reshape(-1)[0]), w.shape(indices)
    axis = int(w.node.attrs.get("axis", -1)) % (len(shape) + 1)
    whole = w.cast(indices, DType.I64)
    from_end = w.op("Add", whole, w.constant(np.int64(count)))
    turned = w.op("Where", w.op("Less", whole, w.constant(np.int64(0))), from_end, whole)
    place = w.reshape(turned, [*shape[:axis], 1, *shape[axis:]])
    numbers = w.constant(np.arange(count).reshape([-1, *(1,) * (len(shape) - axis)]))
    off, on = (w.op("Gather", w.input(2), w.constant(np.int64(i)), axis=0) for i in (0, 1))
    w.finish("Where", w.op("Equal", place, numbers), on, off)
    return True


def _hardmax(w: Writer) -> bool:
    x, axis = w.input(0), int(w.node.attrs["axis"])
    shape = w.shape(x)
    numbers = w.constant(np.arange(shape[axis]).reshape([-1, *(1,) * (len(shape) - axis - 1)]))
    w.finish("Cast", w.op("Equal", w.op("ArgMax", x, axis=axis, keepdims=1), numbers), to=element_code(w.dtype(x)))
    return True


def _tile(w: Writer) -> bool:
    """Each dimension as (repeats, extent): the repeats are an Expand."""
    repeats, shape = w.value(1), w.shape(w.input(0))
    if repeats is None:
        return False
    wide = [e for r, d in zip(repeats.tolist(), shape, strict=True) for e in (int(r), d)]
    narrow = [e for d in shape for e in (1, d)]
    tiled = w.op("Expand", w.reshape(w.input(0), narrow), w.ints(wide))
    w.finish("Reshape", tiled, w.ints(w.result.shape))
    return True


RULES: dict[str, Callable[[Writer], bool]] = {
    "BatchNormalization": _batch_norm, "CastLike": _cast_like, "ConvTranspose": convolve_transposed,
    "DequantizeLinear": _dequantize, "Einsum": contract, "GlobalLpPool": _lp_pool, "Hardmax": _hardmax,
    "LpPool": _lp_pool, "OneHot": _one_hot, "QuantizeLinear": _quantize, "Shrink": _shrink, "Tile": _tile,
    "Trilu": _trilu,
}  # fmt: skip
