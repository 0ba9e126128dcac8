"""From an anchor node (Conv, Gemm, MatMul) to the workload of its kernel, before any epilogue is grown onto it.

What the operands are: the constant `b` of a Conv is its ONNX weight (K, C/groups, R, S); of a MatMul it is (..., K, N);
of a Gemm (K, N), or (N, K) where the node has transB = 1. Activations are read as they lie: `layout_a`, `layout_b` say
how.
"""

from dataclasses import dataclass, replace
from math import prod

from core.fusion.plan import Kind, Operands
from core.fusion.values import attr, per_channel, scalar, shape_text, stored_dtype
from core.graph.ir import Graph, Node
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload


@dataclass(frozen=True)
class Anchor:
    """A node that a tensor-core kernel grows around. `axis` is the output axis that is N of the GEMM."""

    node: Node
    kind: Kind
    workload: GemmWorkload | ConvWorkload
    operands: Operands
    axis: int


def anchor_of(graph: Graph, node: Node, dtype: DType, native: DType) -> Anchor | str:
    """The anchor that the node makes, or why no template serves it."""
    for tensor in node.inputs[:2]:
        stored = stored_dtype(graph.types[tensor].dtype, native, dtype)
        if stored != (DType.F32 if dtype == DType.TF32 else dtype):
            return f"{tensor} is {stored}, the plan computes in {dtype}"
    output = stored_dtype(graph.types[node.output].dtype, native, dtype)
    return _conv(graph, node, dtype, output) if node.op == "Conv" else _gemm(graph, node, dtype, output)


# --- convolution ---------------------------------------------------------------------------------------------------


def _conv(graph: Graph, node: Node, dtype: DType, output: DType) -> Anchor | str:
    x, w = node.inputs[0], node.inputs[1]
    shape, filters = graph.shape(x), graph.shape(w)
    spatial = len(shape) - 2
    if spatial not in (1, 2):
        return f"{node.name} is a {spatial}-D convolution, templates serve 1-D and 2-D ones"
    if graph.constant(w) is None:
        return f"the weights of {node.name} are computed at run time, a convolution template needs them constant"
    pads = conv_pads(node, shape[2:], filters[2:])
    if min(pads) < 0:
        return f"{node.name} has a negative pad, templates serve pads of at least 0"
    strides = tuple(attr(node, "strides", [1] * spatial))
    dilations = tuple(attr(node, "dilations", [1] * spatial))
    groups = int(attr(node, "group", 1))
    n, c, k = shape[0], shape[1], filters[0]
    h, width = (1, *shape[2:])[-2:]
    r, s = (1, *filters[2:])[-2:]
    pad = (pads[0], pads[1], pads[2], pads[3]) if spatial == 2 else (0, pads[0], 0, pads[1])
    stride, dilation = (1, *strides)[-2:], (1, *dilations)[-2:]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    ops = (EpilogueOp("bias"),) if bias else ()
    operands = Operands(x, w, bias)
    epilogue = Epilogue(ops, output)
    if groups == 1 and (r, s) == (1, 1) and stride == (1, 1) and not any(pad):
        gemm = GemmWorkload(n * h * width, k, padded_channels(graph, x, gemm=True), dtype=dtype, epilogue=epilogue)
        return Anchor(node, Kind.GEMM, gemm, operands, 1)
    if groups == 1:
        c = padded_channels(graph, x, gemm=False)
    conv = ConvWorkload(n, h, width, c, k, r, s, pad, stride, dilation, groups, dtype, epilogue=epilogue)
    kind = Kind.DEPTHWISE_CONV if groups > 1 and groups == c else Kind.CONV
    return Anchor(node, kind, conv, operands, 1)


def conv_pads(node: Node, extent: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Pads in ONNX's order (all begins, then all ends), `auto_pad` resolved as the Conv operator defines it."""
    spatial = len(kernel)
    mode = attr(node, "auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return tuple(attr(node, "pads", [0] * (2 * spatial)))
    if mode == "VALID":
        return (0,) * (2 * spatial)
    begins, ends = [], []
    strides, dilations = attr(node, "strides", [1] * spatial), attr(node, "dilations", [1] * spatial)
    for size, window, stride, dilation in zip(extent, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)


def padded_channels(graph: Graph, tensor: str, gemm: bool) -> int:
    """C of a stem: a model input with few channels is padded where it enters (paper section 3.2.3), 3 becoming 4.

    A convolution template for few channels takes 4; everything else wants 16-byte accesses, 8 channels. Padding is free
    only for a model input whose every reader is an ungrouped convolution: its copy into NHWC happens anyway.
    """
    channels = graph.shape(tensor)[1]
    readers = graph.consumers(tensor)
    stem = tensor in graph.inputs and tensor not in graph.outputs
    if channels % 8 == 0 or not stem or any(r.op != "Conv" or int(attr(r, "group", 1)) != 1 for r in readers):
        return channels
    pointwise = gemm or any(all(e == 1 for e in graph.shape(r.inputs[1])[2:]) for r in readers)
    return 4 if channels <= 4 and not pointwise else -(-channels // 8) * 8


# --- matrix product ------------------------------------------------------------------------------------------------


def _gemm(graph: Graph, node: Node, dtype: DType, output: DType) -> Anchor | str:
    if node.op == "MatMul":
        return _matmul(graph, node, dtype, output)
    a, b = node.inputs[0], node.inputs[1]
    trans_a, trans_b = bool(attr(node, "transA", 0)), bool(attr(node, "transB", 0))
    m, k = graph.shape(a)[::-1] if trans_a else graph.shape(a)
    n = graph.shape(node.output)[1]
    constant_b = graph.constant(b) is not None
    ops: tuple[EpilogueOp, ...] = ()
    alpha, beta = float(attr(node, "alpha", 1.0)), float(attr(node, "beta", 1.0))
    if alpha != 1.0:
        ops += (EpilogueOp("scale", (alpha,)),)
    operands = Operands(a, b)
    c = node.inputs[2] if len(node.inputs) > 2 else ""
    if c:
        if beta != 1.0:
            return f"beta = {beta:g} of {node.name} is not folded into C; core.fusion.prepare does it"
        joined = _gemm_c(graph, node, c, operands)
        if isinstance(joined, str):
            return joined
        step, operands = joined
        ops += (step,)
    workload = GemmWorkload(
        m, n, k, dtype=dtype, epilogue=Epilogue(ops, output),
        layout_a=MatrixLayout.COL if trans_a else MatrixLayout.ROW,
        layout_b=MatrixLayout.COL if trans_b or constant_b else MatrixLayout.ROW,
    )  # fmt: skip
    return Anchor(node, Kind.GEMM, workload, operands, 1)


def _gemm_c(graph: Graph, node: Node, c: str, operands: Operands) -> tuple[EpilogueOp, Operands] | str:
    out = graph.shape(node.output)
    value = scalar(graph, c)
    if per_channel(graph, c, out, 1) or (value is not None and out[1] == 1):
        return EpilogueOp("bias"), replace(operands, bias=c)
    if value is not None:
        return EpilogueOp("shift", (value,)), operands
    if graph.shape(c) == out:
        return EpilogueOp("add"), replace(operands, source=c)
    shape = shape_text(graph.shape(c))
    return f"C of {node.name} is {shape}, an epilogue adds one value for each column or a whole tensor"


def _matmul(graph: Graph, node: Node, dtype: DType, output: DType) -> Anchor | str:
    a, b = node.inputs[0], node.inputs[1]
    shape_a, shape_b = graph.shape(a), graph.shape(b)
    if len(shape_b) < 2 or len(shape_a) < 2:
        return f"{node.name} multiplies by a vector, templates serve matrices"
    k, n = shape_b[-2:]
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    constant_b = graph.constant(b) is not None
    layout_b = MatrixLayout.COL if constant_b else MatrixLayout.ROW
    epilogue = Epilogue((), output)
    axis = len(graph.shape(node.output)) - 1
    if prod(batch_b) == 1:
        m = prod(shape_a[:-1])
        workload = GemmWorkload(m, n, k, dtype=dtype, layout_b=layout_b, epilogue=epilogue)
        return Anchor(node, Kind.GEMM, workload, Operands(a, b), axis)
    if _trimmed(batch_a) != _trimmed(batch_b):
        return (
            f"{node.name} broadcasts a batch of {shape_text(batch_a)} against {shape_text(batch_b)}, "
            "a batched template needs equal batches"
        )
    workload = GemmWorkload(shape_a[-2], n, k, prod(batch_a), dtype, layout_b=layout_b, epilogue=epilogue)
    return Anchor(node, Kind.BATCHED_GEMM, workload, Operands(a, b), axis)


def _trimmed(batch: tuple[int, ...]) -> tuple[int, ...]:
    while batch and batch[0] == 1:
        batch = batch[1:]
    return batch
