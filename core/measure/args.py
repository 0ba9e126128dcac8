"""The argument block of a generated kernel, filled from a workload. Pure: no GPU, no library.

The measurer and the exporter both use `args_of`, so a kernel runs in the exported library with the very strides it was
measured with.
"""

import ctypes
from dataclasses import astuple, dataclass

from templates.attention import AttentionWorkload, span
from templates.family import Launch
from templates.types import MatrixLayout
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    Chain,
    ConvWorkload,
    GemmWorkload,
    Single,
    TowerWorkload,
    Workload,
)

_POINTERS = ("a", "b", "bias", "source", "d", "workspace")
_GEMM_SHAPE = ("m", "n", "k", "batch")
_STRIDES = ("lda", "ldb", "ldsource", "ldd", "stride_a", "stride_b", "stride_source", "stride_d")
_CONV_SHAPE = (
    "cn", "h", "w", "c", "cout", "r", "s", "p", "q", "pad_top", "pad_left", "pad_bottom", "pad_right",
    "stride_h", "stride_w", "dilation_h", "dilation_w", "groups",
)  # fmt: skip
_PAIR_POINTERS = ("b1", "bias1", "source1")
_ATTENTION_SHAPE = ("heads", "kv_heads", "q_length", "kv_length", "head_dim", "value_dim")
_ATTENTION_STRIDES = tuple(f"{t}_{s}" for t in ("q", "k", "v", "out", "mask") for s in ("batch", "head", "row"))
_LAUNCH = ("raster", "swizzle", "splits", "pdl", "variant")


class BoltArgs(ctypes.Structure):
    """`bolt_args` of templates/include/bolt/abi.h, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("workspace_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in _GEMM_SHAPE),
        *((name, ctypes.c_int64) for name in _STRIDES),
        *((name, ctypes.c_int32) for name in _CONV_SHAPE + _LAUNCH),
        ("sm_count", ctypes.c_int32),
        ("reserved", ctypes.c_int32 * 6),
        *((name, ctypes.c_void_p) for name in _PAIR_POINTERS),
        ("ldb1", ctypes.c_int64), ("ldsource1", ctypes.c_int64), ("n1", ctypes.c_int32),
        *((name, ctypes.c_int32) for name in _ATTENTION_SHAPE), ("scale", ctypes.c_float),
        *((name, ctypes.c_int64) for name in _ATTENTION_STRIDES),
        ("b2", ctypes.c_void_p), ("bias2", ctypes.c_void_p), ("ldb2", ctypes.c_int64), ("n2", ctypes.c_int32),
    ]  # fmt: skip


ERROR_NAMES = {
    -1: "BOLT_E_UNSUPPORTED: this instance does not serve the shape, padding or alignment",
    -2: "BOLT_E_WORKSPACE: the workspace is too small",
    -3: "BOLT_E_LAUNCH: the launch failed",
}


@dataclass(frozen=True)
class OperandBytes:
    """Bytes of each operand of one run; 0 for an operand the workload lacks. `b1`, `bias1` are those of a chain's
    second operator, `b2`, `bias2` of its third, `source1` of its last.

    Attention: a queries, b keys, b1 values, source the mask, each from its first to its last element.
    """

    a: int
    b: int
    bias: int
    source: int
    d: int
    b1: int = 0
    bias1: int = 0
    source1: int = 0
    b2: int = 0
    bias2: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


def args_of(workload: Workload, launch: Launch, sm_count: int) -> BoltArgs:
    """Shapes, strides and launch choices; every pointer and the workspace are left null for the caller.

    GEMM: leading dimensions of densely packed operands (row-major A: k, column-major A: m; row-major B: n,
    column-major B, stored (N, K): k; D and source: n), batch strides of densely packed batches, `stride_b` 0 when one
    B serves all. An absent source has ldsource and stride_source 0. Conv fields are 0.
    Conv: NHWC, KRSC, NPQK, dense; GEMM fields are 0 except batch 1. `c` is the physical channel count.
    Chains: the first operator's fields, then the second's b1 (n1, n), of three the third's b2 (n2, n1); source1 and d
    are (rows, n1 or n2), dense, ldd is that width and there is no stride_d.
    Attention: `batch` and the fields of its own, strides as the workload gives them.
    """
    args = BoltArgs()
    first = workload.first if isinstance(workload, Chain) else workload
    if isinstance(first, AttentionWorkload):
        _fill_attention(args, first)
    elif isinstance(first, GemmWorkload):
        _fill_gemm(args, first)
    else:
        _fill_conv(args, first)
    if isinstance(workload, Chain):
        _fill_rest(args, workload)
    args.raster, args.swizzle, args.splits = launch.raster, launch.swizzle, launch.splits
    args.pdl, args.variant, args.sm_count = int(launch.pdl), launch.variant, sm_count
    return args


def _fill_gemm(args: BoltArgs, gemm: GemmWorkload) -> None:
    m, n, k = gemm.m, gemm.n, gemm.k
    args.m, args.n, args.k, args.batch = m, n, k, gemm.batch
    args.lda = k if gemm.layout_a == MatrixLayout.ROW else m
    args.ldb = n if gemm.layout_b == MatrixLayout.ROW else k
    args.ldd = n
    args.stride_a, args.stride_b, args.stride_d = m * k, 0 if gemm.shared_b else n * k, m * n
    if gemm.epilogue.has_source:
        args.ldsource, args.stride_source = n, m * n


def _fill_conv(args: BoltArgs, conv: ConvWorkload) -> None:
    args.batch = 1
    args.cn, args.h, args.w, args.c = conv.n, conv.h, conv.w, conv.c
    args.cout, args.r, args.s, args.p, args.q = conv.k, conv.r, conv.s, conv.p, conv.q
    args.pad_top, args.pad_left, args.pad_bottom, args.pad_right = conv.pad
    args.stride_h, args.stride_w = conv.stride
    args.dilation_h, args.dilation_w = conv.dilation
    args.groups = conv.groups


def _fill_rest(args: BoltArgs, chain: Chain) -> None:
    pair = chain.pair if isinstance(chain, TowerWorkload) else chain
    args.n1, args.ldb1 = pair.n1, pair.second.k
    if isinstance(chain, TowerWorkload):
        args.n2, args.ldb2 = chain.n2, pair.n1
    args.ldd, args.stride_d = chain.parts[-1].n, 0
    if chain.epilogue.has_source:
        args.ldsource1 = args.ldd


def _fill_attention(args: BoltArgs, work: AttentionWorkload) -> None:
    args.batch, args.heads, args.kv_heads = work.batch, work.heads, work.kv_heads
    args.q_length, args.kv_length = work.q_len, work.kv_len
    args.head_dim, args.value_dim, args.scale = work.head_dim, work.value_dim, work.scale
    strides = (*work.q, *work.k, *work.v, *work.out, *work.mask_strides)
    for name, stride in zip(_ATTENTION_STRIDES, strides, strict=True):
        setattr(args, name, stride)


def strides_of(workload: Workload, operand: str) -> tuple[str, ...]:
    """The fields with the strides of a matrix operand of activations: a (of GEMMs and of chains of them), or of
    attention a, b (keys) or b1 (values)."""
    if isinstance(workload, AttentionWorkload):
        letter = {"a": "q", "b": "k", "b1": "v"}[operand]
        return f"{letter}_batch", f"{letter}_head", f"{letter}_row"
    assert operand == "a", operand
    return "lda", "stride_a"


def output_shape(workload: Workload) -> tuple[int, int]:
    """(rows, columns) of the output as a dense matrix: batch*M x N, or N*P*Q x K; of a chain the last operator's.

    Of attention a row is one head of one query, in the order in which they lie in memory.
    """
    match workload:
        case AttentionWorkload():
            return workload.batch * workload.heads * workload.q_len, workload.value_dim
        case GemmWorkload():
            return workload.batch * workload.m, workload.n
        case ConvWorkload():
            return workload.n * workload.p * workload.q, workload.k
        case B2bGemmWorkload() | B2bConvWorkload() | TowerWorkload():
            return workload.parts[-1].m, workload.parts[-1].n


def reduction_length(workload: Workload) -> int:
    """Products summed into one output element; of a chain those of its last operator, of attention P V's."""
    match workload:
        case AttentionWorkload():
            return workload.kv_len
        case GemmWorkload():
            return workload.k
        case ConvWorkload():
            return workload.implicit_gemm[2]
        case B2bGemmWorkload() | B2bConvWorkload() | TowerWorkload():
            return workload.parts[-1].k


def operand_bytes(workload: Workload) -> OperandBytes:
    """Bytes of A, B, bias (the workload's type), source and D (the epilogue's output type)."""
    if isinstance(workload, Chain):
        first, second, *third = (operand_bytes(part) for part in workload.parts)
        last = third[0] if third else second
        b2, bias2 = (last.b, last.bias) if third else (0, 0)
        rest = second.b, second.bias, last.source, b2, bias2
        return OperandBytes(first.a, first.b, first.bias, first.source, last.d, *rest)
    return _attention_bytes(workload) if isinstance(workload, AttentionWorkload) else _single_bytes(workload)


def _attention_bytes(work: AttentionWorkload) -> OperandBytes:
    size, keys = work.dtype.itemsize, (work.batch, work.kv_heads, work.kv_len)
    queries = (work.batch, work.heads, work.q_len)
    mask = span(work.mask_strides, queries, work.kv_len) * work.mask_itemsize
    return OperandBytes(
        a=span(work.q, queries, work.head_dim) * size, b=span(work.k, keys, work.head_dim) * size, bias=0,
        source=mask, d=work.out_elements * size, b1=span(work.v, keys, work.value_dim) * size,
    )  # fmt: skip


def _single_bytes(workload: Single) -> OperandBytes:
    size, out = workload.dtype.itemsize, workload.epilogue.output.itemsize
    rows, columns = output_shape(workload)
    if isinstance(workload, GemmWorkload):
        a = workload.batch * workload.m * workload.k
        b = workload.n * workload.k * (1 if workload.shared_b else workload.batch)
    else:
        a = workload.n * workload.h * workload.w * workload.c
        b = workload.k * workload.r * workload.s * workload.c // workload.groups
    d = rows * columns * out
    epilogue = workload.epilogue
    return OperandBytes(a * size, b * size, columns * size * epilogue.has_bias, d * epilogue.has_source, d)
