"""The builder over the real compiler: one file of two tiny kernels, of which one is bad."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.build.nvcc import compile_library
from core.build.toolchain import find_toolchain
from core.errors import ToolchainError
from core.measure.measurement import Failure
from templates.emit import namespace_of
from templates.family import Kernel
from templates.gpu import GpuSpec
from tests.core.tuning_stubs import H200, StubFamily, kernels_of

pytestmark = pytest.mark.compiles

SOURCE = """
#include "bolt/abi.h"
namespace SPACE {
__global__ void body(float* p) { __shared__ float s[256]; s[threadIdx.x] = p[0]; __syncthreads(); p[1] = s[0] BAD; }
}
extern "C" __attribute__((visibility("default"))) int bolt_run_NAME(float* p) {
  SPACE::body<<<1, 32>>>(p);
  return 0;
}
"""


@dataclass(frozen=True)
class TinyFamily(StubFamily):
    def source(self, kernel: Kernel) -> str:
        bad = "+ undefined_thing" if kernel["tile"] == 13 else ""
        return SOURCE.replace("NAME", kernel.name).replace("SPACE", namespace_of(kernel)).replace("BAD", bad)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return ("-gencode", "arch=compute_90a,code=sm_90a")


def test_a_bad_kernel_in_a_file_costs_only_itself(tmp_path: Path):
    family = TinyFamily(tiles=(64, 13, 128))
    builder = Builder(find_toolchain(), H200, tmp_path, jobs=2, families_by_name={"stub": family})
    done = dict(builder.build(kernels_of(family)))
    (failure,) = [r for r in done.values() if isinstance(r, Failure)]
    assert 'identifier "undefined_thing" is undefined' in failure.reason
    good = {k: r for k, r in done.items() if isinstance(r, BuiltKernel)}
    assert len(good) == 2
    for kernel, built in good.items():
        assert built.registers and built.smem_bytes == 1024 and built.spill_bytes == 0
        assert hasattr(ctypes.CDLL(str(built.library)), f"bolt_run_{kernel.name}")


def test_a_library_of_two_files(tmp_path: Path):
    sources = []
    for name in ("a", "b"):
        sources.append(tmp_path / name / "unit.cu")
        sources[-1].parent.mkdir()
        sources[-1].write_text(SOURCE.replace("NAME", name).replace("SPACE", name).replace("BAD", ""))
    compile_library(sources, tmp_path / "out/lib.so", "90a", find_toolchain(), jobs=2)
    library = ctypes.CDLL(str(tmp_path / "out/lib.so"))
    assert hasattr(library, "bolt_run_a") and hasattr(library, "bolt_run_b")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["lib.so"]
    sources[1].write_text("int broken( {")
    with pytest.raises(ToolchainError, match=r"unit\.cu does not compile: .*error"):
        compile_library(sources, tmp_path / "out/lib.so", "90a", find_toolchain(), jobs=2)
