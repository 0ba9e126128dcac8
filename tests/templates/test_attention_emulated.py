"""The mma.sync attention kernel on the CPU, thread by thread, against the definition: masks, odd lengths, odd widths.

Its instructions come from tests/templates/emulated/bolt/sm80_ptx.cuh; everything else is the kernel as it is compiled
for a GPU.
"""

import ctypes
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from core.paths import INCLUDE, ROOT
from templates.attention import AttentionWorkload, MaskKind, heads_inside
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS
from templates.sm80_attention import FAMILY
from tests.templates.attention_cases import attention, defined, operands

pytestmark = pytest.mark.compiles
A100 = KNOWN_GPUS["a100"]
PACKED = (33 * 3 * 48, 24, 3 * 48)  # queries, keys and values of two heads in one row
# workload, tile of the kernel to run it
CASES = [
    (attention(1, 2, 40, 40, 32, mask=MaskKind.ADD, mask_strides=(40, 0, 0)), "48x48_s1"),
    (attention(2, 1, 19, 70, 20, 36, inside=False), "32x32_s2"),
    (attention(1, 4, 37, 37, 24, kv_heads=2, causal=True), "16x16_s2"),
    (attention(1, 1, 50, 21, 16, causal=True, mask=MaskKind.KEEP), "32x16_s1"),
    (attention(1, 2, 9, 65, 33, 7, mask=MaskKind.DROP, mask_strides=(0, 0, 65)), "16x64_s2"),
    (attention(1, 1, 20, 5, 8, mask=MaskKind.DROP_LOW), "16x16_s1"),
    (attention(1, 1, 20, 6, 8, mask=MaskKind.KEEP_LOW, causal=True), "16x16_s1"),
    (attention(1, 1, 17, 33, 160, mask=MaskKind.ADD), "32x32_s1"),
    (replace(attention(2, 2, 33, 33, 24), q=PACKED, k=PACKED, v=PACKED, out=heads_inside(2, 33, 24)), "16x32_s2"),
    (attention(1, 1, 1, 1, 8), "16x16_s1"),
]


def kernel_of(work: AttentionWorkload, tile: str) -> Kernel:
    kernel = next(k for k in FAMILY.kernels(work, A100) if k.stem.startswith(f"{tile}_"))
    assert FAMILY.illegal(kernel, work, A100) is None
    return kernel


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    toolchain, folder = find_toolchain(), tmp_path_factory.mktemp("attention")
    cuda = toolchain.nvcc.resolve().parent.parent
    unit, out = folder / "kernels.cpp", folder / "kernels.so"
    memory = "#undef __shared__\n#define __shared__\n"
    memory += "namespace bolt::attention {\nalignas(16) unsigned char shared[1 << 18];\n}\n"
    runtime = "inline void __syncwarp() { bolt::ptx::warp_meets(); }\n"
    attribute = "#define cudaFuncSetAttribute(...) cudaSuccess\n"
    sources = {FAMILY.source(kernel_of(*case)) for case in CASES}
    head = f'#include "emulator.h"\n#include "bolt/sm80_ptx.cuh"\n{runtime}{attribute}{memory}'
    unit.write_text(head + "".join(sorted(sources)))
    folders = [ROOT / "tests/templates/emulated", ROOT / "tests/core/export", INCLUDE, toolchain.cutlass / "include",
               cuda / "include", cuda / "targets/x86_64-linux/include"]  # fmt: skip
    flags = ["-std=c++20", "-O2", "-w", "-shared", "-fPIC", "-pthread", "-fsanitize=alignment",
             "-fsanitize-undefined-trap-on-error"]  # fmt: skip
    subprocess.run([compiler, *flags, *(f"-I{d}" for d in folders), str(unit), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


@pytest.mark.parametrize(("work", "tile"), CASES, ids=lambda c: c if isinstance(c, str) else c.key.replace(" ", "-"))
def test_the_kernel_computes_its_definition(work: AttentionWorkload, tile: str, library: ctypes.CDLL) -> None:
    kernel, memory = kernel_of(work, tile), operands(work)
    guard = 64
    d = np.full(work.out_elements + 2 * guard, 7.0, np.float16)
    d[guard:-guard] = np.nan
    args = args_of(work, Launch(), 108)
    args.a, args.b, args.b1 = (memory[name].ctypes.data for name in ("q", "k", "v"))
    args.source = memory["mask"].ctypes.data if "mask" in memory else None
    args.d = d.ctypes.data + 2 * guard
    assert getattr(library, f"bolt_run_{kernel.name}")(ctypes.byref(args), None) == 0
    wanted = defined(work, memory)
    assert (d[:guard] == 7).all() and (d[-guard:] == 7).all()
    np.testing.assert_allclose(d[guard:-guard], wanted, atol=2e-3)
