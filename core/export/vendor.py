"""Vendor kernels inside an exported library, where the user allows them: GEMMs through cuBLASLt.

The library finds cuBLASLt at run time. A convolution's cuDNN plan can't be carried over: its engines are compiled by
cuDNN's own front end, so the best template kernel is exported instead and a note says so.
"""

import re
from dataclasses import dataclass

from core.export.c_text import c_float
from core.tuner.choice import Choice
from core.vendor.cublaslt import fusions
from templates.types import DType, MatrixLayout
from templates.workload import GemmWorkload, Workload

# cudaDataType and cublasComputeType_t, library_types.h and cublas_api.h.
_TYPE = {DType.F16: 2, DType.BF16: 14, DType.F32: 0, DType.TF32: 0}
_COMPUTE_32F, _COMPUTE_TF32 = 68, 77
_DETAIL = re.compile(r"heuristic \d+ algo (\d+) tile (\d+) stages (\d+) splitK (-?\d+); fused [^;]*\Z")


@dataclass(frozen=True)
class VendorGemm:
    """What decides a cuBLASLt call besides its operands; templates/operators/cublaslt.cuh has the same fields."""

    algorithm: int
    tile: int
    stages: int
    splits: int
    epilogue: int
    alpha: float
    type: int
    output: int
    compute: int
    row_a: bool
    row_b: bool

    @property
    def initializer(self) -> str:
        """The C++ aggregate."""
        numbers = [self.algorithm, self.tile, self.stages, self.splits & 0xFFFFFFFF, self.epilogue]
        fields = [f"{n}u" for n in numbers] + [c_float(self.alpha)]
        fields += [str(n) for n in (self.type, self.output, self.compute)]
        return ", ".join([*fields, str(self.row_a).lower(), str(self.row_b).lower()])


def vendor_gemm(workload: Workload, choice: Choice) -> VendorGemm | str:
    """The call that was measured as the vendor's best; a string is why it can't be exported."""
    if choice.vendor is None:
        return "no vendor kernel is on record"
    found = _DETAIL.match(choice.vendor.detail)
    if not isinstance(workload, GemmWorkload) or not choice.vendor.source.startswith("cublasLt"):
        return f"a kernel of {choice.vendor.source} can't be put into a library"
    if found is None:
        return f"{choice.vendor.source} runs it in more than one kernel ({choice.vendor.detail})"
    output = workload.epilogue.output
    fusion = next(fusions(workload.epilogue, _TYPE[output] == _TYPE[workload.dtype]))
    if fusion.rest:
        return f"{choice.vendor.source} does not fuse {workload.epilogue}"
    algorithm, tile, stages, splits = map(int, found.groups())
    compute = _COMPUTE_TF32 if workload.dtype == DType.TF32 else _COMPUTE_32F
    return VendorGemm(
        algorithm, tile, stages, splits, fusion.epilogue, fusion.alpha, _TYPE[workload.dtype], _TYPE[output],
        compute, workload.layout_a == MatrixLayout.ROW, workload.layout_b == MatrixLayout.ROW,
    )  # fmt: skip


def vendor_unit(kernels: dict[VendorGemm, str]) -> str:
    """The file that defines each vendor kernel (by its name) with the interface of bolt/abi.h."""
    parts = ['#include "cublaslt.cuh"\n']
    for gemm, name in kernels.items():
        parts.append(
            f"namespace {{ constexpr bolt::cublaslt::Gemm k_{name}{{{gemm.initializer}}}; }}\n"
            f'extern "C" int bolt_check_{name}(bolt_args const* a) {{ return bolt::cublaslt::check(k_{name}, *a); }}\n'
            f'extern "C" size_t bolt_workspace_{name}(bolt_args const* a) '
            f"{{ return bolt::cublaslt::workspace(k_{name}, *a); }}\n"
            f'extern "C" int bolt_run_{name}(bolt_args const* a, cudaStream_t stream) '
            f"{{ return bolt::cublaslt::run(k_{name}, *a, stream); }}\n"
        )
    return "\n".join(parts)
