"""The Hopper sources through nvcc, and what their host code says without a GPU against the rules in Python."""

import ctypes
import random
from dataclasses import replace
from pathlib import Path

import pytest

from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.build.nvcc import base_command, parse_ptxas, run
from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from templates import families
from templates.emit import namespace_of
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS
from templates.sm90_common import epilogue_smem
from templates.sm90_conv import rules as conv_rules
from templates.sm90_direct import geometry
from templates.sm90_direct.family import instance_of
from templates.sm90_gemm import rules as gemm_rules
from templates.sm90_split.family import point_of as split_point
from templates.workload import ConvWorkload, GemmWorkload, Workload

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(600)]
H200 = KNOWN_GPUS["h200"]
BIAS_RELU, RESIDUAL = parse_epilogue("bias+relu"), parse_epilogue("bias+add+relu")
IMAGE = ConvWorkload(32, 28, 28, 128, 128, 3, 3, (1, 1, 1, 1), epilogue=RESIDUAL)


def build(kernels: list[Kernel], folder: Path, appended: str = "") -> ctypes.CDLL:
    """One file of all kernels, compiled; no kernel may spill or have its wgmma serialized."""
    family = families()[kernels[0].family]
    file, library = folder / "kernels.cu", folder / "kernels.so"
    file.write_text("".join(families()[k.family].source(k) for k in kernels) + appended)
    flags = family.flags(kernels[0], H200)
    ran = run([*base_command(find_toolchain()), *flags, "-Xptxas=-v", "-shared", file, "-o", library], folder)
    assert ran.status == 0, ran.log[-3000:]
    usage = parse_ptxas(ran.log)
    assert len(usage) == len(kernels) + sum(k.family == "sm90_padded" for k in kernels)  # the copy is one of its own
    assert all(u.spill_bytes == 0 for u in usage), usage
    assert "wgmma" not in ran.log and "warning" not in ran.log, ran.log
    return ctypes.CDLL(str(library))


def kernel(workload: Workload, family: str, stem: str) -> Kernel:
    return next(k for k in families()[family].kernels(workload, H200) if k.stem == stem)


def check(library: ctypes.CDLL, kernel: Kernel, workload: Workload, launch: Launch) -> int:
    args = args_of(workload, launch, H200.sm_count)
    args.a = args.b = args.bias = args.source = args.d = 1 << 20  # never read: any aligned address
    return getattr(library, f"bolt_check_{kernel.name}")(ctypes.byref(args))


def test_gemm_and_persistent_conv_compile_as_the_rules_count_them(tmp_path):
    product = GemmWorkload(1280, 768, 768, epilogue=BIAS_RELU)
    gemm = kernel(product, "sm90_gemm", "64x128x64_1x2_pingpong")
    swapped = kernel(product, "sm90_gemm", "128x96x64_1x2_pingpong_swap")
    conv = kernel(IMAGE, "sm90_conv", "128x128x64_2x1_cooperative")
    named = ((gemm, "Gemm", "Gemm"), (swapped, "Gemm", "Swapped"), (conv, "Conv", "Conv"))
    facts = "".join(
        f'extern "C" BOLT_EXPORT int {what}_{label}() {{ return {namespace_of(k)}::{name}::{expression}; }}\n'
        for k, name, label in named
        for what, expression in (
            ("stages", "Mainloop::DispatchPolicy::Stages"),
            ("smem", "Kernel::SharedStorageSize"),
        )
    )
    facts += "".join(
        f'extern "C" BOLT_EXPORT int epilogue_{label}() '
        f"{{ return int(sizeof(typename {namespace_of(k)}::{name}::Epilogue::SharedStorage)); }}\n"
        for k, name, label in named
    )
    narrow = GemmWorkload(9, 77, 2048, epilogue=RESIDUAL)
    split = [kernel(IMAGE, "sm90_split", "128x128x64_conv"), kernel(narrow, "sm90_split", "64x16x128_swap")]
    facts += "".join(
        f'extern "C" BOLT_EXPORT int shared_{i}() {{ return {namespace_of(k)}::Runner::Kernel_::kSharedBytes; }}\n'
        for i, k in enumerate(split)
    )
    odd = replace(product, k=46)
    filled = kernel(odd, "sm90_padded", "64x64x64")
    library = build([gemm, swapped, conv, *split, filled], tmp_path, facts)
    assert library.stages_Gemm() == gemm_rules.stages(gemm, H200)
    assert library.stages_Swapped() == gemm_rules.stages(swapped, H200)
    assert library.epilogue_Swapped() == epilogue_smem(128, 96, False, BIAS_RELU, 2, swapped=True)
    assert library.stages_Conv() == conv_rules.stages(conv, H200)
    assert library.epilogue_Gemm() == epilogue_smem(64, 128, False, BIAS_RELU, 2)
    assert library.epilogue_Conv() == epilogue_smem(128, 128, True, RESIDUAL, 2)
    assert max(library.smem_Gemm(), library.smem_Conv()) <= H200.smem_per_block
    for i, k in enumerate(split):
        assert getattr(library, f"shared_{i}")() == split_point(k).shared_bytes(k.int("stages"), 2)
    assert check(library, split[0], IMAGE, Launch(splits=8, pdl=True)) == 0
    assert check(library, split[1], narrow, Launch(splits=8)) == 0
    assert check(library, split[1], narrow, Launch(splits=9)) == -1
    assert check(library, split[1], replace(narrow, k=1024), Launch(splits=8)) == 0
    assert check(library, split[1], replace(narrow, k=512), Launch(splits=8)) == -1
    assert check(library, filled, odd, Launch(pdl=True)) == 0
    assert check(library, filled, replace(odd, k=46, n=44), Launch()) == -1  # built for stores of eight columns
    assert check(library, swapped, product, Launch(pdl=True)) == 0
    assert check(library, gemm, product, Launch(pdl=True)) == 0
    assert check(library, gemm, GemmWorkload(1280, 768, 764, epilogue=BIAS_RELU), Launch()) == -1
    assert check(library, conv, IMAGE, Launch()) == 0
    wide = ConvWorkload(1, 300, 300, 8, 8, 3, 3, dilation=(1, 140), epilogue=RESIDUAL)
    assert families()["sm90_conv"].illegal(conv, wide, H200) and check(library, conv, wide, Launch()) == -1


def test_stream_k_compiles_through_the_builder(tmp_path):
    """Its flags are its own: with those of the other schedules CUTLASS's scheduler does not compile."""
    product = GemmWorkload(1280, 768, 768, epilogue=BIAS_RELU)
    gemm = next(k for k in families()["sm90_gemm"].kernels(product, H200) if k["schedule"] == "stream_k")
    [(_, built)] = Builder(find_toolchain(), H200, tmp_path).build([gemm])
    assert isinstance(built, BuiltKernel) and built.spill_bytes == 0, built
    library = ctypes.CDLL(str(built.library))
    assert check(library, gemm, product, Launch()) == 0


def test_every_direct_instance_compiles_and_agrees_on_what_it_serves(tmp_path):
    family = families()["sm90_direct"]
    kernels = list(family.kernels(IMAGE, H200))
    library = build(kernels, tmp_path)
    chance = random.Random(0)
    seen = set()
    for _ in range(400):
        pad = tuple(chance.randint(0, 3) for _ in range(4))
        size, taps = (chance.randint(1, 230) for _ in range(2)), (chance.choice([1, 2, 3, 5, 7]) for _ in range(2))
        c, k = (8 * chance.randint(1, 40) for _ in range(2))
        dilation = (chance.choice([1, 1, 2]), chance.choice([1, 1, 2]))
        w = ConvWorkload(2, *size, c, k, *taps, pad, (1, 1), dilation, epilogue=RESIDUAL)
        if w.p <= 0 or w.q <= 0:
            continue
        for kernel in kernels:
            for variant in (geometry.PATCH, geometry.ROWS):
                found = geometry.lay(instance_of(kernel), w, variant)
                served = check(library, kernel, w, Launch(variant=variant)) == 0
                assert served == (not isinstance(found, str)), (kernel.stem, w.key, variant, found)
                seen.add(served)
    assert seen == {True, False}
