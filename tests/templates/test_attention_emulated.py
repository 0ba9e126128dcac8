"""Both attention kernels on the CPU, thread by thread, against the definition: masks, odd lengths, odd widths.

Their instructions come from tests/templates/emulated/bolt; all else is the kernels as they are compiled for a GPU.
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
from templates import families
from templates.attention import AttentionWorkload, MaskKind, heads_inside
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS
from tests.templates.attention_cases import attention, defined, operands

pytestmark = pytest.mark.compiles
H200 = KNOWN_GPUS["h200"]
SM_COUNT = 3  # a persistent grid of few blocks walks several tiles
PACKED = (33 * 3 * 48, 24, 3 * 48)  # queries, keys and values of two heads in one row
MMA, HOPPER = "sm80_attention", "sm90_attention"
# family, workload, tile of the kernel to run it
CASES = [
    (MMA, attention(1, 2, 40, 40, 32, mask=MaskKind.ADD, mask_strides=(40, 0, 0)), "48x48_s1"),
    (MMA, attention(2, 1, 19, 70, 20, 36, inside=False), "32x32_s2"),
    (MMA, attention(1, 4, 37, 37, 24, kv_heads=2, causal=True), "16x16_s2"),
    (MMA, attention(1, 1, 50, 21, 16, causal=True, mask=MaskKind.KEEP), "32x16_s1"),
    (MMA, attention(1, 2, 9, 65, 33, 7, mask=MaskKind.DROP, mask_strides=(0, 0, 65)), "16x64_s2"),
    (MMA, attention(1, 1, 20, 5, 8, mask=MaskKind.DROP_LOW), "16x16_s1"),
    (MMA, attention(1, 1, 20, 6, 8, mask=MaskKind.KEEP_LOW, causal=True), "16x16_s1"),
    (MMA, attention(1, 1, 17, 33, 160, mask=MaskKind.ADD), "32x32_s1"),
    (MMA, replace(attention(2, 2, 33, 33, 24), q=PACKED, k=PACKED, v=PACKED, out=heads_inside(2, 33, 24)), "16x32_s2"),
    (MMA, attention(1, 1, 1, 1, 8), "16x16_s1"),
    (HOPPER, attention(1, 2, 70, 150, 64, mask=MaskKind.ADD, mask_strides=(0, 0, 150)), "64x64_s2"),
    (HOPPER, attention(1, 2, 130, 200, 80, 128, kv_heads=1, causal=True), "128x64_s2_turns"),
    (HOPPER, attention(1, 1, 129, 193, 128, inside=False), "128x96_s2_turns"),
    (HOPPER, attention(1, 1, 200, 130, 32, 24, mask=MaskKind.KEEP, causal=True), "192x64_s2"),
    (HOPPER, attention(1, 1, 5, 3, 8, mask=MaskKind.DROP_LOW), "64x64_s2"),
]  # fmt: skip


def kernel_of(family: str, work: AttentionWorkload, tile: str) -> Kernel:
    kernel = next(k for k in families()[family].kernels(work, H200) if k.stem.startswith(f"{tile}_d"))
    assert families()[family].illegal(kernel, work, H200) is None
    return kernel


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    toolchain, folder = find_toolchain(), tmp_path_factory.mktemp("attention")
    cuda = toolchain.nvcc.resolve().parent.parent
    unit, out = folder / "kernels.cpp", folder / "kernels.so"
    sources = {families()[family].source(kernel_of(family, work, tile)) for family, work, tile in CASES}
    unit.write_text('#include "attention_emulated.h"\n' + "".join(sorted(sources)))
    folders = [ROOT / "tests/templates/emulated", ROOT / "tests/core/export", INCLUDE, toolchain.cutlass / "include",
               cuda / "include", cuda / "include/cccl", cuda / "targets/x86_64-linux/include"]  # fmt: skip
    flags = ["-std=c++20", "-O2", "-w", "-shared", "-fPIC", "-pthread", "-fsanitize=alignment",
             "-fsanitize-undefined-trap-on-error"]  # fmt: skip
    subprocess.run([compiler, *flags, *(f"-I{d}" for d in folders), str(unit), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


@pytest.mark.parametrize(("family", "work", "tile"), CASES, ids=lambda c: str(getattr(c, "key", c)).replace(" ", "-"))
def test_the_kernel_computes_its_definition(
    family: str, work: AttentionWorkload, tile: str, library: ctypes.CDLL
) -> None:
    kernel, memory = kernel_of(family, work, tile), operands(work)
    guard = 64
    d = np.full(work.out_elements + 2 * guard, 7.0, np.float16)
    d[guard:-guard] = np.nan
    args = args_of(work, Launch(), SM_COUNT)
    args.a, args.b, args.b1 = (memory[name].ctypes.data for name in ("q", "k", "v"))
    args.source = memory["mask"].ctypes.data if "mask" in memory else None
    args.d = d.ctypes.data + 2 * guard
    assert getattr(library, f"bolt_run_{kernel.name}")(ctypes.byref(args), None) == 0
    wanted = defined(work, memory)
    assert (d[:guard] == 7).all() and (d[-guard:] == 7).all()
    np.testing.assert_allclose(d[guard:-guard], wanted, atol=2e-3)


@pytest.mark.parametrize("family", [MMA, HOPPER])
def test_what_the_rules_refuse_the_kernel_refuses(family: str, library: ctypes.CDLL) -> None:
    """The kernel's own check and the rules of its family, over what could differ from what it was built for."""
    _, work, tile = next(
        c for c in CASES if c[0] == family and c[1].mask is not MaskKind.ADD and not c[1].head_dim % 16
    )
    kernel = kernel_of(family, work, tile)
    check = getattr(library, f"bolt_check_{kernel.name}")

    def said(changed: AttentionWorkload, address: int = 1 << 20, mask: int = 1 << 20) -> tuple[bool, bool]:
        args = args_of(changed, Launch(), SM_COUNT)
        args.a = args.b = args.b1 = args.d = address
        args.source = mask or None
        return check(ctypes.byref(args)) == 0, families()[family].illegal(kernel, changed, H200) is None

    assert said(work) == (True, True)
    odd = tuple(s + 1 if s else 0 for s in work.k)
    assert said(replace(work, k=odd)) == (False, False), "strides that no access or TMA begins at"
    wider = replace(work, head_dim=work.head_dim + 64, q=tuple(4 * s for s in work.q), k=tuple(4 * s for s in work.k))
    assert said(wider) == (False, False), "a wider head than it was built for"
    longer = replace(work, q_len=work.q_len + 8, out=heads_inside(work.heads, work.q_len + 8, work.value_dim))
    assert said(longer) == (True, True), "any length"
    assert said(work, address=(1 << 20) + 2)[0] is False, "operands that are not aligned"
    if work.mask is not MaskKind.NONE:
        assert said(work, mask=0)[0] is False, "a mask that is not there"
