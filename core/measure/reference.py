"""The measuring library (reference.cu) seen from Python: inputs, the independent reference, the comparison.

It is compiled once per GPU architecture and compiler into the user's cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import DeviceError
from core.measure.runtime import GpuError, Runtime
from core.paths import cache_dir
from templates.attention import AttentionWorkload, MaskKind
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import DType, MatrixLayout
from templates.workload import Chain, GemmWorkload, Single, Workload

if TYPE_CHECKING:
    from core.build.toolchain import Toolchain

_HERE = Path(__file__).resolve().parent
SOURCES = tuple(_HERE / n for n in ("reference.cu", "reference_attention.cu", "reference.h", "epilogue_ops.h"))

MAX_OPS = 24
# Keep in step with the enum in epilogue_ops.h.
OP_CODES = {
    "bias": 0, "add": 1, "mul": 2, "scale": 3, "shift": 4, "relu": 5, "leaky_relu": 6, "clip": 7, "gelu_erf": 8,
    "gelu_tanh": 9, "silu": 10, "sigmoid": 11, "hard_swish": 12, "hard_sigmoid": 13, "softplus": 14, "tanh": 15,
    "elu": 16,
}  # fmt: skip
_UNIT = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8}  # unit roundoff
DTYPE_CODES = {DType.F16: 0, DType.BF16: 1, DType.F32: 2, DType.TF32: 3}
_FILL_CODES = DTYPE_CODES | {DType.BOOL: 4}
MASK_CODES = {kind: code for code, kind in enumerate(MaskKind)}  # in the order of reference.h


class RefOp(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("p0", ctypes.c_float), ("p1", ctypes.c_float)]


class RefOps(ctypes.Structure):
    """`bolt_ref_ops`: the epilogue as data."""

    _fields_ = [("count", ctypes.c_int32), ("op", RefOp * MAX_OPS)]


class RefProblem(ctypes.Structure):
    """`bolt_ref_problem`: shapes and layouts, no strides."""

    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            "is_conv", "dtype", "out_dtype", "m", "n", "k", "batch", "a_col", "b_col", "shared_b",
            "cn", "h", "w", "c", "cout", "r", "s", "pad_top", "pad_left", "pad_bottom", "pad_right",
            "stride_h", "stride_w", "dilation_h", "dilation_w", "groups",
        )
    ]  # fmt: skip


class RefAttention(ctypes.Structure):
    """`bolt_ref_attention`."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "dtype", "mask_kind", "causal", "batch", "heads", "kv_heads", "q_length", "kv_length", "head_dim",
            "value_dim",
        )),
        ("scale", ctypes.c_float), ("pad", ctypes.c_int32),
        *((name, ctypes.c_int64 * 3) for name in ("q", "k", "v", "out", "mask")),
    ]  # fmt: skip


class RefResult(ctypes.Structure):
    """`bolt_ref_result`."""

    _fields_ = [
        ("difference2", ctypes.c_double), ("reference2", ctypes.c_double), ("max_abs_bits", ctypes.c_uint32),
        ("pad", ctypes.c_uint32), ("non_finite", ctypes.c_ulonglong),
    ]  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """An output against the reference. `relative_l2` is |d - r| / |r| over the finite elements of d."""

    relative_l2: float
    max_abs: float
    non_finite: int


def ops_of(steps: Sequence[EpilogueOp]) -> RefOps:
    """The op-code list. Raises ValueError on a chain longer than the library holds."""
    if len(steps) > MAX_OPS:
        raise ValueError(f"an epilogue of {len(steps)} steps; the reference evaluates at most {MAX_OPS}")
    ops = RefOps(count=len(steps))
    for i, step in enumerate(steps):
        p0, p1 = (*step.params, 0.0, 0.0)[:2]
        ops.op[i] = RefOp(OP_CODES[step.op], p0, p1)
    return ops


def problem_of(workload: Single) -> RefProblem:
    """Raises ValueError for element types the reference does not compute in."""
    for dtype in (workload.dtype, workload.epilogue.output):
        if dtype not in DTYPE_CODES:
            raise ValueError(f"there is no reference for the type {dtype}")
    problem = RefProblem(dtype=DTYPE_CODES[workload.dtype], out_dtype=DTYPE_CODES[workload.epilogue.output])
    if isinstance(workload, GemmWorkload):
        problem.m, problem.n, problem.k, problem.batch = workload.m, workload.n, workload.k, workload.batch
        problem.a_col = workload.layout_a == MatrixLayout.COL
        problem.b_col = workload.layout_b == MatrixLayout.COL
        problem.shared_b = workload.shared_b
    else:
        problem.is_conv = 1
        problem.cn, problem.h, problem.w, problem.c = workload.n, workload.h, workload.w, workload.c
        problem.cout, problem.r, problem.s, problem.groups = workload.k, workload.r, workload.s, workload.groups
        problem.pad_top, problem.pad_left, problem.pad_bottom, problem.pad_right = workload.pad
        problem.stride_h, problem.stride_w = workload.stride
        problem.dilation_h, problem.dilation_w = workload.dilation
    return problem


def attention_of(work: AttentionWorkload) -> RefAttention:
    """Raises ValueError for element types the reference does not compute in."""
    if work.dtype not in (DType.F16, DType.BF16):
        raise ValueError(f"there is no reference for attention in {work.dtype}")
    problem = RefAttention(
        DTYPE_CODES[work.dtype], MASK_CODES[work.mask], work.causal, work.batch, work.heads, work.kv_heads, work.q_len,
        work.kv_len, work.head_dim, work.value_dim, work.scale,
    )  # fmt: skip
    for name, strides in (
        ("q", work.q), ("k", work.k), ("v", work.v), ("out", work.out), ("mask", work.mask_strides)
    ):  # fmt: skip
        getattr(problem, name)[:] = strides
    return problem


def refuse_unknown(workload: Workload) -> None:
    """Raises ValueError for a type or an epilogue that the reference does not compute."""
    if isinstance(workload, AttentionWorkload):
        attention_of(workload)
        return
    for part in workload.parts if isinstance(workload, Chain) else (workload,):
        problem_of(part), ops_of(part.epilogue.ops)


def tolerance(workload: Workload, reduction: int) -> float:
    """The relative L2 error a right kernel stays under.

    With u the unit roundoff of the output type (f16 2^-11, bf16 2^-8), rounding the exact result alone gives at most u
    and about u/2 in the L2 sense. Four u leaves room for one more rounding (a fused
    step stored in between, as vendor libraries do) and for CUTLASS's approximate tanh and exp (2^-11). An f32 output
    still has those approximations: 1e-3. A 16-bit ACCUMULATOR adds a random walk of `reduction` roundings.

    A pair is compared with two products whose intermediate is rounded once, as two kernels would. A kernel that keeps
    it unrounded, or rounds it twice (a step the vendor runs on its own), is right as well: independent errors of at
    most u, about u/2 in the L2 sense, on the second product's operand, which its sum of zero-mean terms hands on at the
    same relative size. That is one more u, and another for a third product. A 16-bit accumulator of a product before
    the last does the same to the operand behind it.
    Attention rounds the softmax's numerators, which the reference does not: again one more u, on P V's left operand.
    """
    limit = max(4 * _UNIT.get(workload.epilogue.output, 0.0), 1e-3)
    accumulator = _UNIT.get(workload.accumulator, 0.0)
    limit += 2 * accumulator * math.sqrt(reduction)
    for part in workload.parts[:-1] if isinstance(workload, Chain) else ():
        depth = part.k if isinstance(part, GemmWorkload) else part.implicit_gemm[2]
        limit += _UNIT.get(workload.dtype, 0.0) + 2 * accumulator * math.sqrt(depth)
    if isinstance(workload, AttentionWorkload):
        limit += _UNIT.get(workload.dtype, 0.0)
    return limit


class Reference:
    """The loaded library on one runtime's device. Enqueues on the stream it is given; raises GpuError."""

    def __init__(self, library: Path, runtime: Runtime) -> None:
        try:
            self._library: Any = ctypes.CDLL(str(library))
        except OSError as error:
            raise DeviceError(f"the measuring library {library.name} can't be loaded: {error}") from None
        self._runtime = runtime
        self._result = runtime.alloc(ctypes.sizeof(RefResult))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise GpuError(f"cudaError {code}", name)

    def fill(self, pointer: int, dtype: DType, count: int, seed: int, scale: float, stream: int) -> None:
        """`count` elements uniform in [-scale, scale], a function of the seed and the index alone."""
        self._call(
            "bolt_ref_fill", ctypes.c_void_p(pointer), _FILL_CODES[dtype], ctypes.c_int64(count),
            ctypes.c_uint64(seed), ctypes.c_float(scale), ctypes.c_void_p(stream),
        )  # fmt: skip

    def run(
        self, workload: Single, a: int, b: int, bias: int, source: int, out: int, stream: int,
        epilogue: Epilogue | None = None,
    ) -> None:  # fmt: skip
        """The workload's result in float32 at `out`, accumulated in float32, with its (or another) epilogue."""
        ops = ops_of((epilogue or workload.epilogue).ops)
        pointers = (ctypes.c_void_p(p or None) for p in (a, b, bias, source, out))
        problem = problem_of(workload)
        self._call("bolt_ref_run", ctypes.byref(problem), ctypes.byref(ops), *pointers, ctypes.c_void_p(stream))

    def attend(self, work: AttentionWorkload, q: int, k: int, v: int, mask: int, out: int, stream: int) -> None:
        """The workload's result in float32, at the places of its output, accumulated in float32."""
        problem = attention_of(work)
        pointers = (ctypes.c_void_p(p or None) for p in (q, k, v, mask, out))
        self._call("bolt_ref_attend", ctypes.byref(problem), *pointers, ctypes.c_void_p(stream))

    def round(self, values: int, out: int, dtype: DType, count: int, stream: int) -> None:
        """float32 `values` as a kernel would have stored them in `dtype`."""
        self._call(
            "bolt_ref_round", ctypes.c_void_p(values), ctypes.c_void_p(out), DTYPE_CODES[dtype], ctypes.c_int64(count),
            ctypes.c_void_p(stream),
        )  # fmt: skip

    def compare(self, d: int, dtype: DType, reference: int, count: int, stream: int) -> Comparison:
        """Waits for the stream's work; `reference` is float32."""
        import numpy as np

        self._call(
            "bolt_ref_compare", ctypes.c_void_p(d), DTYPE_CODES[dtype], ctypes.c_void_p(reference),
            ctypes.c_int64(count), ctypes.c_void_p(self._result), ctypes.c_void_p(stream),
        )  # fmt: skip
        raw = np.zeros(ctypes.sizeof(RefResult), np.uint8)
        self._runtime.to_host(raw, self._result)
        found = RefResult.from_buffer_copy(raw.tobytes())
        max_abs = float(np.array([found.max_abs_bits], np.uint32).view(np.float32)[0])
        if found.reference2 > 0:
            relative = math.sqrt(found.difference2 / found.reference2)
        else:
            relative = 0.0 if found.difference2 == 0 else math.inf
        return Comparison(relative, max_abs, int(found.non_finite))

    def changed(self, base: int, count: int, stride: int, begin: int, end: int, value: int, stream: int) -> int:
        """Bytes unequal to `value` outside [begin, end) of each of `count` blocks of `stride` bytes. Waits."""
        import numpy as np

        self._call(
            "bolt_ref_guard", ctypes.c_void_p(base), *(ctypes.c_int64(v) for v in (count, stride, begin, end)),
            ctypes.c_int(value), ctypes.c_void_p(self._result), ctypes.c_void_p(stream),
        )  # fmt: skip
        found = np.zeros(1, np.uint64)
        self._runtime.to_host(found, self._result)
        return int(found[0])

    def digest(self, base: int, nbytes: int, stream: int) -> int:
        """A checksum of `nbytes` (a multiple of 4) of device memory. Waits."""
        import numpy as np

        self._call(
            "bolt_ref_digest", ctypes.c_void_p(base), ctypes.c_int64(nbytes), ctypes.c_void_p(self._result),
            ctypes.c_void_p(stream),
        )  # fmt: skip
        found = np.zeros(1, np.uint64)
        self._runtime.to_host(found, self._result)
        return int(found[0])

    def elementwise(
        self, d: int, out_dtype: DType, bias: int, bias_dtype: DType, source: int, rows: int, columns: int,
        steps: Sequence[EpilogueOp], stream: int,
    ) -> None:  # fmt: skip
        """Epilogue steps as a kernel of its own, in place on D: what a library that can't fuse them must run."""
        ops = ops_of(steps)
        self._call(
            "bolt_ref_elementwise", ctypes.c_void_p(d), DTYPE_CODES[out_dtype], ctypes.c_void_p(bias or None),
            DTYPE_CODES[bias_dtype], ctypes.c_void_p(source or None), ctypes.c_int64(rows), ctypes.c_int64(columns),
            ctypes.byref(ops), ctypes.c_void_p(stream),
        )  # fmt: skip


def library_path(arch: str, toolchain: Toolchain) -> Path:
    """Where the compiled library lies, whether it does yet or not; named by its sources, compiler and target."""
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update(source.read_bytes())
    digest.update(f"{arch} {toolchain.nvcc_version} {toolchain.host_version}".encode())
    return cache_dir() / "measure" / f"reference-sm{arch}-{digest.hexdigest()[:16]}.so"


def build(arch: str, toolchain: Toolchain | None = None) -> Path:
    """The library for an architecture ("90a"), compiled if it is not there yet (seconds). Raises ToolchainError."""
    from core.build.nvcc import compile_library
    from core.build.toolchain import find_toolchain

    toolchain = toolchain or find_toolchain()
    path = library_path(arch, toolchain)
    if not path.is_file():
        compile_library([s for s in SOURCES if s.suffix == ".cu"], path, arch, toolchain)
    return path
