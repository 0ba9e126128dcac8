"""One kernel of each kind compiled: no spills, the right exports, and host checks that answer without a GPU."""

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from core.build.nvcc import Ran, Usage, base_command, first_error, gencode, parse_ptxas, run
from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import KNOWN_GPUS
from templates.workload import B2bGemmWorkload, ConvWorkload, GemmWorkload, Workload

H200, A100, T4 = (KNOWN_GPUS[n] for n in ("h200", "a100", "t4"))
RESIDUAL = parse_epilogue("bias+add+relu")
PAD = (1, 1, 1, 1)
GEMM = GemmWorkload(1280, 768, 768, epilogue=RESIDUAL)
CONV = ConvWorkload(32, 28, 28, 128, 128, 3, 3, PAD, epilogue=RESIDUAL)
SPLIT = ConvWorkload(1, 7, 7, 512, 512, 3, 3, PAD, epilogue=parse_epilogue("bias+silu"))
DEPTHWISE = ConvWorkload(32, 56, 56, 64, 64, 3, 3, PAD, groups=64, epilogue=parse_epilogue("bias+clip(0,6)"))
# family, workload, text of the stem, GPU compiled for
KINDS = [
    ("sm80_gemm", GEMM, "128x128x64_2x2_s3", H200),
    ("sm80_conv", CONV, "128x128x32_2x2_s4_i16_optimized", A100),
    ("sm80_conv", SPLIT, "64x64x64_2x2_s5_i16_optimized_split", H200),
    ("direct_conv", DEPTHWISE, "dw8x4_8x16_w3s1", T4),
]


def kernel_of(family: str, workload: Workload, stem: str, gpu) -> Kernel:
    space = families()[family].kernels(workload, gpu)
    return next(k for k in space if stem in k.stem and families()[family].illegal(k, workload, gpu) is None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Kernel, ctypes.CDLL, list[Usage]]]:
    toolchain, folder = find_toolchain(), tmp_path_factory.mktemp("kinds")

    def build(kind: tuple) -> tuple[str, tuple[Kernel, ctypes.CDLL, list[Usage]]]:
        family, _, stem, gpu = kind
        kernel = kernel_of(*kind)
        work: Path = folder / kernel.name
        work.mkdir()
        source, library = work / "kernel.cu", work / "kernel.so"
        source.write_text(families()[family].source(kernel))
        command = [*base_command(toolchain), *gencode(gpu.nvcc_arch), "-Xptxas=-v", "-shared", source, "-o", library]
        ran = run(command, work)
        assert ran.status == 0, first_error(ran.log, ran.status)
        assert "warning" not in ran.log
        return stem, (kernel, ctypes.CDLL(str(library)), parse_ptxas(ran.log))

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(build, KINDS))


def check(library: ctypes.CDLL, kernel: Kernel, workload: Workload, **changed: int) -> int:
    args = args_of(workload, Launch(splits=2 if "split" in kernel.stem else 1), 132)
    for name, value in changed.items():
        setattr(args, name, value)
    return getattr(library, f"bolt_check_{kernel.name}")(ctypes.byref(args))


@pytest.mark.compiles
def test_nothing_spills(built):
    for kernel, _, usages in built.values():
        assert usages
        for usage in usages:
            assert usage.spill_bytes == 0, f"{kernel.name}: {usage}"


@pytest.mark.compiles
def test_only_the_c_entry_points_are_exported(built):
    for kernel, library, _ in built.values():
        for entry in ("check", "workspace", "run"):
            assert getattr(library, f"bolt_{entry}_{kernel.name}")


@pytest.mark.compiles
def test_gemm_checks(built):
    kernel, library, _ = built["128x128x64_2x2_s3"]
    assert check(library, kernel, GEMM) == 0
    assert check(library, kernel, replace(GEMM, batch=7)) == 0
    assert check(library, kernel, replace(GEMM, k=764)) == -1
    assert check(library, kernel, replace(GEMM, n=1001)) == -1
    assert check(library, kernel, GEMM, lda=770) == -1
    assert check(library, kernel, GEMM, splits=2) == -1
    assert check(library, kernel, GEMM, source=4) == -1
    assert check(library, kernel, GEMM, m=0) == -1


@pytest.mark.compiles
def test_conv_checks(built):
    kernel, library, _ = built["128x128x32_2x2_s4_i16_optimized"]
    assert check(library, kernel, CONV) == 0
    assert check(library, kernel, replace(CONV, pad=(0, 2, 3, 1), stride=(2, 1), dilation=(1, 2))) == 0
    assert check(library, kernel, replace(CONV, c=124)) == -1
    assert check(library, kernel, replace(CONV, groups=2)) == -1
    assert check(library, kernel, replace(CONV, r=33, pad=(16, 1, 16, 1))) == -1
    assert check(library, kernel, CONV, p=27) == -1, "an output height that the padding does not give"


@pytest.mark.compiles
def test_split_k_asks_for_its_partial_sums(built):
    kernel, library, _ = built["64x64x64_2x2_s5_i16_optimized_split"]
    workspace = getattr(library, f"bolt_workspace_{kernel.name}")
    workspace.restype = ctypes.c_size_t
    args = args_of(SPLIT, Launch(splits=4), 132)
    assert workspace(ctypes.byref(args)) == 4 * 7 * 7 * 512 * 4
    assert check(library, kernel, SPLIT) == 0
    args.a = args.b = args.bias = args.d = 1 << 20
    assert getattr(library, f"bolt_run_{kernel.name}")(ctypes.byref(args), None) == -2, "no workspace was given"


@pytest.mark.compiles
def test_depthwise_checks(built):
    kernel, library, _ = built["dw8x4_8x16_w3s1"]
    assert check(library, kernel, DEPTHWISE) == 0
    assert check(library, kernel, replace(DEPTHWISE, r=5, pad=(2, 1, 2, 1))) == 0, "only the width is compiled in"
    assert check(library, kernel, replace(DEPTHWISE, stride=(1, 2))) == -1
    assert check(library, kernel, replace(DEPTHWISE, groups=32)) == -1


def to_ptx(kernel: Kernel, folder: Path) -> tuple[Ran, Path]:
    source, ptx = folder / "kernel.cu", folder / "kernel.ptx"
    source.write_text(families()[kernel.family].source(kernel))
    flag = f"-gencode=arch=compute_{A100.sm},code=compute_{A100.sm}"
    return run([*base_command(find_toolchain()), flag, "-ptx", source, "-o", ptx], folder), ptx


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("family", "workload", "stem"),
    [
        ("sm80_gemm", GEMM, "64x64x64_2x1x2_s4_i16"),
        ("sm80_conv", CONV, "32x64x64_1x2x2_s5_i16_optimized"),
    ],
)
def test_sliced_k_with_a_source_adds_the_sums_of_the_other_slice(tmp_path, family, workload, stem):
    """The epilogue stages 8 rows a warp row and slice, 8 columns padded: slice 1 lies that far behind slice 0."""
    kernel = kernel_of(family, workload, stem, A100)
    ran, ptx = to_ptx(kernel, tmp_path)
    assert ran.status == 0, first_error(ran.log, ran.status)
    read = {int(at or 0) for at in re.findall(r"ld\.shared\.v4\.f32[^[]*\[%r\d+(?:\+(\d+))?\]", ptx.read_text())}
    slice_bytes = 8 * kernel.int("warps_m") * (kernel.int("tb_n") + 8) * 4
    assert {at for at in read if at < slice_bytes}
    assert {at for at in read if at >= slice_bytes} == {at + slice_bytes for at in read if at < slice_bytes}


@pytest.mark.compiles
def test_stores_wider_than_the_rule_allows_do_not_compile(tmp_path):
    kernel = kernel_of("sm80_gemm", GemmWorkload(64, 64, 256), "32x32x64_1x1x2_s6_i16", A100)
    wider = replace(kernel, alignment=(*kernel.alignment[:2], 2 * kernel.alignment[2]))
    ran, _ = to_ptx(kernel, tmp_path)
    assert ran.status == 0, first_error(ran.log, ran.status)
    ran, _ = to_ptx(wider, tmp_path)
    assert ran.status != 0 and "Iteration Count Row must be > 0" in ran.log


@pytest.mark.compiles
def test_pairs_whose_warps_have_128_columns_store_four_at_a_time(tmp_path):
    """In eights, columns 4 to 7 and 0 to 3 of every other 32 change places; the header asserts that they do not."""
    pair = B2bGemmWorkload(GemmWorkload(467, 96, 24), 128)
    ran, ptx = to_ptx(kernel_of("sm80_b2b", pair, "64x96x128x32rf_4x1_4x1_s4", A100), tmp_path)
    assert ran.status == 0, first_error(ran.log, ran.status)
    assert "st.global.v2.u32" in ptx.read_text() and "st.global.v4" not in ptx.read_text()
