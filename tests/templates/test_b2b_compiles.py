"""The pair kernels through nvcc; what their host code says without a GPU against the rules in Python."""

import ctypes
from pathlib import Path

import pytest

from core.build.nvcc import base_command, parse_ptxas, run
from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from templates import families
from templates.emit import namespace_of
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS
from templates.sm90_b2b import geometry
from templates.sm90_b2b.family import base_registers, instance_of
from templates.workload import B2bConvWorkload, B2bGemmWorkload, Chain, ConvWorkload, GemmWorkload, Pair, TowerWorkload

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(600)]
H200 = KNOWN_GPUS["h200"]


def gemm(m: int, k: int, n0: int, n1: int, inner: str, outer: str) -> B2bGemmWorkload:
    return B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=parse_epilogue(inner)), n1, parse_epilogue(outer))


def kernel(family: str, pair: Pair, stem: str) -> Kernel:
    found = next(k for k in families()[family].kernels(pair, H200) if k.stem.startswith(f"{stem}_"))
    assert families()[family].illegal(found, pair, H200) is None
    return found


def build(kernels: list[Kernel], folder: Path, appended: str = "") -> ctypes.CDLL:
    """One file of all kernels; none may spill or have its wgmma serialized."""
    family = families()[kernels[0].family]
    file, library = folder / "kernels.cu", folder / "kernels.so"
    file.write_text("".join(family.source(k) for k in kernels) + appended)
    flags = family.flags(kernels[0], H200)
    ran = run([*base_command(find_toolchain()), *flags, "-Xptxas=-v", "-shared", file, "-o", library], folder)
    assert ran.status == 0, ran.log[-3000:]
    usage = parse_ptxas(ran.log)
    assert len(usage) == len(kernels)
    assert all(u.spill_bytes == 0 for u in usage), usage
    assert "wgmma" not in ran.log and "warning" not in ran.log, ran.log
    return ctypes.CDLL(str(library))


def check(library: ctypes.CDLL, kernel: Kernel, pair: Chain, launch: Launch | None = None) -> int:
    args = args_of(pair, launch or Launch(), H200.sm_count)
    third = ("b2", "bias2") if isinstance(pair, TowerWorkload) else ()
    for name in ("a", "b", "bias", "source", "d", "b1", "bias1", "source1", *third):
        setattr(args, name, 1 << 20)  # never read: any aligned address
    return int(getattr(library, f"bolt_check_{kernel.name}")(ctypes.byref(args)))


def test_hopper_pairs_compile_as_the_rules_count_them(tmp_path: Path) -> None:
    """Resident, streamed and chunked, a cluster, two subtiles, im2col; a light and the heaviest chain."""
    plain = gemm(65536, 576, 128, 64, "bias+relu", "bias+relu")
    wide = gemm(65536, 256, 512, 64, "bias+gelu_erf", "scale(0.5)+bias+add+tanh")
    narrow = gemm(128320, 96, 32, 96, "identity", "bias+silu")
    image = B2bConvWorkload(
        ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1), epilogue=parse_epilogue("bias+hard_swish")), 256
    )
    wanted: list[tuple[str, Pair]] = [
        ("128x64x64g2s_m2d1", plain), ("128x64x64g2r_m1d1_x2", plain), ("128c4x64x64g2s_m1d1", wide),
        ("32x96x96g3r_m1d1", narrow), ("64x256x64g2r_m1d1_conv", image),
    ]  # fmt: skip
    kernels = [kernel("sm90_b2b", pair, stem) for stem, pair in wanted]
    facts = "".join(
        f'extern "C" BOLT_EXPORT int {what}_{i}(int k_blocks, int stages) '
        f"{{ using K = bolt::b2b::Kernel<{namespace_of(k)}::Config>; return {expression}; }}\n"
        for i, k in enumerate(kernels)
        for what, expression in (
            ("stages", "K::pick_stages(k_blocks, stages)"),
            ("shared", "K::shared_bytes(k_blocks, stages)"),
            ("registers", "K::kRegistersNeeded"),
            ("moves", "K::kMoveRegisters"),
        )
    )
    library = build(kernels, tmp_path, facts)
    for i, (k, (_, pair)) in enumerate(zip(kernels, wanted, strict=True)):
        instance, base = instance_of(k), base_registers(k)
        blocks = geometry.k_blocks_of(instance, pair)
        assert getattr(library, f"stages_{i}")(blocks, 32) == geometry.pick_stages(instance, blocks)
        assert getattr(library, f"shared_{i}")(blocks, 3) == geometry.smem_bytes(instance, blocks, 3)
        assert getattr(library, f"registers_{i}")(0, 0) == geometry.registers(instance, base)
        assert bool(getattr(library, f"moves_{i}")(0, 0)) == geometry.moves_registers(instance, base)
        assert all(check(library, k, pair, launch) == 0 for launch in families()["sm90_b2b"].launches(k, pair, H200))
    assert check(library, kernels[0], gemm(65536, 576, 128, 72, "bias+relu", "bias+relu")) == -1, "N1 is not covered"
    assert check(library, kernels[0], gemm(65536, 576, 136, 64, "bias+relu", "bias+relu")) == -1, "N0 is not covered"
    assert check(library, kernels[0], gemm(65536, 576, 120, 64, "bias+relu", "bias+relu")) == 0, "N0 is filled up"
    assert check(library, kernels[0], gemm(65536, 572, 128, 64, "bias+relu", "bias+relu")) == -1, "K is misaligned"


@pytest.mark.parametrize("gpu_name", ["a100", "t4"])
def test_mma_sync_pairs_compile(gpu_name: str, tmp_path: Path) -> None:
    """Both residences, GEMM and conv; the generated source asserts that the rules count its shared memory."""
    gpu, family = KNOWN_GPUS[gpu_name], families()["sm80_b2b"]
    first = ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1), epilogue=parse_epilogue("bias+relu"))
    pairs = (gemm(65536, 576, 128, 64, "gelu_erf", "add+tanh"), B2bConvWorkload(first, 64, parse_epilogue("bias+silu")))
    kernels = {}
    for pair in pairs:
        for k in family.kernels(pair, gpu):
            if family.illegal(k, pair, gpu) is None:
                kernels.setdefault((pair.op, k["residence"]), (k, pair))
    assert len(kernels) == 4
    file, out = tmp_path / "kernels.cu", tmp_path / "kernels.so"
    file.write_text("".join(family.source(k) for k, _ in kernels.values()))
    flags = family.flags(next(iter(kernels.values()))[0], gpu)
    ran = run([*base_command(find_toolchain()), *flags, "-Xptxas=-v", "-shared", file, "-o", out], tmp_path)
    assert ran.status == 0, ran.log[-3000:]
    assert all(u.spill_bytes == 0 for u in parse_ptxas(ran.log)) and "warning" not in ran.log
    library = ctypes.CDLL(str(out))
    for kernel_, pair in kernels.values():
        assert check(library, kernel_, pair) == 0
        args = args_of(pair, Launch(), gpu.sm_count)
        assert getattr(library, f"bolt_check_{kernel_.name}")(ctypes.byref(args)) == -1, "null operands"
