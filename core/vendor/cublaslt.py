"""cuBLASLt through its plain C API: matmul with the epilogues it can fuse, every algorithm its heuristic proposes.

cuBLASLt is column-major. Our row-major D (M, N) is its column-major D^T (N, M), so it computes D^T = B^T A^T: its A is
our B, its B is our A, and the bias along our N is its bias along rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from core.vendor import WORKSPACE_BYTES, Peer, VendorAbsent, VendorContext, VendorError, described
from core.vendor.libraries import load
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import DType, MatrixLayout
from templates.workload import GemmWorkload

ALGORITHMS = 8
# cublasLt.h
_EPILOGUE = {(): 1, ("relu",): 2, ("bias",): 4, ("bias", "relu"): 6, ("gelu_tanh",): 32, ("bias", "gelu_tanh"): 36}
_TRANSA, _TRANSB, _DESC_EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_LAYOUT_BATCH, _LAYOUT_STRIDE = 5, 6
_PREF_WORKSPACE = 1
_CONFIG_ID, _CONFIG_TILE, _CONFIG_SPLITK, _CONFIG_STAGES = 0, 1, 2, 6
# cublas_api.h and library_types.h
_OP_N, _OP_T = 0, 1
_COMPUTE_32F, _COMPUTE_TF32 = 68, 77
_CUDA_TYPE = {DType.F16: 2, DType.BF16: 14, DType.F32: 0, DType.TF32: 0}
_R_32F = 0


class MatmulAlgo(ctypes.Structure):
    """`cublasLtMatmulAlgo_t`."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = [
        ("algo", MatmulAlgo), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


@dataclass(frozen=True)
class Fusion:
    """How much of an epilogue one matmul can do: D = epilogue(alpha A B + beta C), the bias inside the epilogue."""

    steps: tuple[EpilogueOp, ...]
    rest: tuple[EpilogueOp, ...]
    epilogue: int
    alpha: float
    source: bool

    @property
    def name(self) -> str:
        return "+".join(map(str, self.steps)) or "nothing"


def fusions(epilogue: Epilogue, output_is_input_type: bool = True) -> Iterator[Fusion]:
    """Prefixes of the chain that one matmul can run, the longest first, the empty one last.

    A leading scale is alpha; the source tensor is C with beta 1, before the activation; bias, ReLU and the tanh form
    of GELU are its epilogues (its GELU is the tanh approximation, so gelu_erf is not fused). Its bias has the output's
    type and ours has A's, so a bias is fused only where the two are one.
    """
    for length in range(len(epilogue.ops), -1, -1):
        steps = epilogue.ops[:length]
        scaled = bool(steps) and steps[0].op == "scale"
        names = [s.op for s in steps[scaled:]]
        activations = [n for n in names if n not in ("bias", "add")]
        if activations and names[-1] != activations[0]:
            continue  # something follows the activation
        key = tuple(n for n in names if n != "add")
        if key in _EPILOGUE and (output_is_input_type or "bias" not in key):
            alpha = steps[0].params[0] if scaled else 1.0
            yield Fusion(steps, epilogue.ops[length:], _EPILOGUE[key], alpha, "add" in names)


class CublasLt:
    """The loaded library and its handle."""

    def __init__(self) -> None:
        library = load("cublasLt", (13, 12))
        if library is None:
            raise VendorAbsent("libcublasLt.so.13 and .12 are not installed (pip package nvidia-cublas)")
        self._library: Any = library
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        version = int(library.cublasLtGetVersion())
        self.source = f"cublasLt {version // 10000}.{version // 100 % 100}.{version % 100}"
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise VendorError(f"{name} gave status {status}")

    def set_desc(self, desc: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self.call(
            "cublasLtMatmulDescSetAttribute",
            desc,
            attribute,
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )

    def set_layout(self, layout: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.call("cublasLtMatrixLayoutSetAttribute", layout, attribute, ctypes.byref(value), size)

    def config(self, algo: MatmulAlgo, attribute: int) -> int:
        """A setting of an algorithm; -1 where this version does not tell."""
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        status = self._library.cublasLtMatmulAlgoConfigGetAttribute(
            ctypes.byref(algo), attribute, ctypes.byref(value), ctypes.c_size_t(4), ctypes.byref(written)
        )
        return int(value.value) if status == 0 else -1


@cache
def _cublaslt() -> CublasLt:
    return CublasLt()


class Matmul:
    """Descriptors of one workload. They live as long as the process: graphs do not need them, later launches do."""

    def __init__(self, lt: CublasLt, gemm: GemmWorkload, fusion: Fusion, context: VendorContext) -> None:
        self._lt, self.fusion, self._context = lt, fusion, context
        self._alpha = ctypes.c_float(fusion.alpha)
        self._beta = ctypes.c_float(1.0 if fusion.source else 0.0)
        m, n, k = gemm.m, gemm.n, gemm.k
        compute = _COMPUTE_TF32 if gemm.dtype == DType.TF32 else _COMPUTE_32F
        self._desc = ctypes.c_void_p()
        lt.call("cublasLtMatmulDescCreate", ctypes.byref(self._desc), compute, _R_32F)
        b_stored_nk = gemm.layout_b == MatrixLayout.COL
        a_stored_km = gemm.layout_a == MatrixLayout.COL
        lt.set_desc(self._desc, _TRANSA, ctypes.c_int32(_OP_T if b_stored_nk else _OP_N))
        lt.set_desc(self._desc, _TRANSB, ctypes.c_int32(_OP_T if a_stored_km else _OP_N))
        lt.set_desc(self._desc, _DESC_EPILOGUE, ctypes.c_uint32(fusion.epilogue))
        stride_b = 0 if gemm.shared_b else n * k
        kind, out = _CUDA_TYPE[gemm.dtype], _CUDA_TYPE[gemm.epilogue.output]
        self._a = self._layout(kind, (k, n) if b_stored_nk else (n, k), gemm.batch, stride_b)
        self._b = self._layout(kind, (m, k) if a_stored_km else (k, m), gemm.batch, m * k)
        self._d = self._layout(out, (n, m), gemm.batch, m * n)

    def _layout(self, kind: int, shape: tuple[int, int], batch: int, stride: int) -> ctypes.c_void_p:
        """A dense column-major matrix of (rows, columns), its leading dimension the rows."""
        layout, (rows, columns) = ctypes.c_void_p(), shape
        self._lt.call(
            "cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns),
            ctypes.c_int64(rows),
        )  # fmt: skip
        if batch > 1:
            self._lt.set_layout(layout, _LAYOUT_BATCH, ctypes.c_int32(batch))
            self._lt.set_layout(layout, _LAYOUT_STRIDE, ctypes.c_int64(stride))
        return layout

    def _point_at_bias(self, slot: int) -> None:
        if any(s.op == "bias" for s in self.fusion.steps):
            self._lt.set_desc(self._desc, _BIAS_POINTER, ctypes.c_void_p(self._context.slots[slot].bias))

    def algorithms(self) -> list[HeuristicResult]:
        """What the heuristic proposes, best first, within the workspace."""
        self._point_at_bias(0)  # its alignment is taken into account
        preference = ctypes.c_void_p()
        self._lt.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        try:
            limit = ctypes.c_uint64(WORKSPACE_BYTES)
            self._lt.call(
                "cublasLtMatmulPreferenceSetAttribute", preference, _PREF_WORKSPACE, ctypes.byref(limit),
                ctypes.c_size_t(8),
            )  # fmt: skip
            results, found = (HeuristicResult * ALGORITHMS)(), ctypes.c_int()
            self._lt.call(
                "cublasLtMatmulAlgoGetHeuristic", self._lt.handle, self._desc, self._a, self._b, self._d, self._d,
                preference, ALGORITHMS, results, ctypes.byref(found),
            )  # fmt: skip
        finally:
            self._lt.call("cublasLtMatmulPreferenceDestroy", preference)
        return [r for r in results[: found.value] if r.state == 0]

    def launcher(self, result: HeuristicResult) -> Callable[[int, int], None]:
        def launch(stream: int, slot: int) -> None:
            at = self._context.slots[slot]
            self._point_at_bias(slot)
            c = at.source if self.fusion.source else at.d
            self._lt.call(
                "cublasLtMatmul", self._lt.handle, self._desc, ctypes.byref(self._alpha), ctypes.c_void_p(at.b),
                self._a, ctypes.c_void_p(at.a), self._b, ctypes.byref(self._beta), ctypes.c_void_p(c), self._d,
                ctypes.c_void_p(at.d), self._d, ctypes.byref(result.algo), ctypes.c_void_p(self._context.workspace),
                ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_void_p(stream),
            )  # fmt: skip
            if self.fusion.rest:
                self._context.rest(self.fusion.rest, stream, slot)

        return launch


def _proposed(lt: CublasLt, gemm: GemmWorkload, context: VendorContext) -> tuple[Matmul, list[HeuristicResult]]:
    """The matmul with the longest fused prefix that the library has an algorithm for, and its algorithms."""
    reason = "its heuristic proposes no algorithm"
    same = _CUDA_TYPE[gemm.epilogue.output] == _CUDA_TYPE[gemm.dtype]
    for fusion in fusions(gemm.epilogue, same):
        matmul = Matmul(lt, gemm, fusion, context)
        try:
            results = matmul.algorithms()
        except VendorError as error:  # how it says that it does not support the combination
            reason = str(error)
            continue
        if results:
            return matmul, results
    raise VendorError(reason)


def peers(context: VendorContext) -> list[Peer]:
    """The heuristic's algorithms for a GEMM workload. Raises VendorError when there is no library or no algorithm."""
    gemm = context.workload
    assert isinstance(gemm, GemmWorkload)
    if gemm.accumulator != DType.F32:
        raise VendorError(f"it is compared with float32 accumulation only, not {gemm.accumulator}")
    lt = _cublaslt()
    matmul, results = _proposed(lt, gemm, context)
    fusion = matmul.fusion
    found = []
    for rank, result in enumerate(results):
        algo, tile, split, stages = (
            lt.config(result.algo, c) for c in (_CONFIG_ID, _CONFIG_TILE, _CONFIG_SPLITK, _CONFIG_STAGES)
        )
        words = f"heuristic {rank} algo {algo} tile {tile} stages {stages} splitK {split}"
        found.append(Peer(lt.source, f"{words}; {described(fusion.name, fusion.rest)}", matmul.launcher(result)))
    return found
