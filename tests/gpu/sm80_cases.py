"""What tests/gpu/test_kernels_sm80.py runs: workloads and, for each, which kernels. Needs no GPU and no torch."""

from dataclasses import dataclass

from templates import families
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Kernel
from templates.gpu import GpuSpec
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload, Workload

BIAS_RELU = parse_epilogue("bias+relu")
RESIDUAL = parse_epilogue("bias+add+relu")
F32_OUT = Epilogue(BIAS_RELU.ops, DType.F32)
BF16_OUT = Epilogue(RESIDUAL.ops, DType.BF16)
PADDED = (1, 1, 1, 1)
ROW, COL = MatrixLayout.ROW, MatrixLayout.COL


@dataclass(frozen=True)
class Case:
    """A workload and the stems of the kernels to run it with: the first legal kernel whose stem holds each text."""

    family: str
    workload: Workload
    stems: tuple[str, ...]


def gemm(m: int, n: int, k: int, *stems: str, **more: object) -> Case:
    return Case("sm80_gemm", GemmWorkload(m, n, k, **{"epilogue": BIAS_RELU, **more}), stems)  # type: ignore[arg-type]


def conv(family: str, shape: tuple[int, ...], *stems: str, **more: object) -> Case:
    return Case(family, ConvWorkload(*shape, **{"epilogue": BIAS_RELU, **more}), stems)  # type: ignore[arg-type]


CHAINS = [
    "identity", "bias", "add", "mul", "bias+gelu_erf", "bias+gelu_tanh", "bias+silu", "bias+relu+add", "bias+silu+mul",
    "bias+sigmoid", "bias+hard_swish", "bias+hard_sigmoid(0.2,0.5)", "bias+softplus", "bias+tanh", "bias+elu(0.7)",
    "bias+leaky_relu(0.1)", "bias+clip(0,6)", "bias+scale(0.5)+shift(1)+add",
]  # fmt: skip
GEMMS = [
    gemm(1280, 768, 768, "128x128x64_2x2_s3", "128x256x32_2x4_s3", "64x64x64_2x1x2_s4"),
    gemm(
        200, 328, 96, "128x128x32_2x2_s4", "64x128x32_2x2_s6", "32x64x64_1x2x2", "64x64x32_2x2_s10", epilogue=RESIDUAL
    ),
    gemm(1280, 768, 768, "64x64x64_2x1x2_s4", epilogue=parse_epilogue("bias+add+gelu_erf")),
    gemm(1, 1000, 2048, "32x32x64_1x1x2", "32x64x64_1x2_s6", epilogue=parse_epilogue("bias")),
    gemm(1000, 91, 1024, "64x64x64_2x2_s5", "128x128x32_2x2_s4"),
    gemm(107, 105, 705, "64x64x32_2x2_s2", "128x64x32_2x2_s2", "64x64x64_2x1x2_s2", epilogue=RESIDUAL),
    gemm(130, 36, 44, "64x32x64_2x1_s6"),
    gemm(130, 34, 46, "64x32x64_2x1_s6", "128x32x32_4x1_s4"),
    gemm(128, 192, 80, "64x64x64_2x2_s5", layout_a=COL, layout_b=ROW, epilogue=RESIDUAL),
    gemm(136, 200, 77, "64x64x64_2x2_s5", layout_a=COL, layout_b=ROW),
    gemm(65, 67, 63, "64x64x32_2x2_s2", layout_a=COL, layout_b=ROW),
    gemm(40, 64, 40, "64x64x64_2x2_s5", batch=24, layout_b=ROW, epilogue=Epilogue()),
    gemm(40, 40, 64, "64x32x64_2x1_s6", batch=24, epilogue=parse_epilogue("scale(0.125)+add")),
    gemm(33, 72, 64, "64x64x64_2x2_s5", batch=3, shared_b=True, epilogue=RESIDUAL),
    gemm(256, 136, 128, "128x128x64_2x2_s3", dtype=DType.BF16, epilogue=BF16_OUT),
    gemm(256, 132, 128, "128x64x64_2x2_s3", epilogue=F32_OUT),
    gemm(256, 132, 100, "128x128x16_2x2_s4", "64x64x32_2x1x2", dtype=DType.TF32, epilogue=F32_OUT),
    gemm(70, 33, 51, "64x64x16_2x2_s10", dtype=DType.TF32, epilogue=F32_OUT),
    gemm(256, 132, 100, "128x64x16_2x2_s6", "32x64x32_1x2x2", "128x128x16_2x4_s4", dtype=DType.F32, epilogue=F32_OUT),
    gemm(70, 33, 51, "32x32x32_1x1x2", dtype=DType.F32, layout_a=COL, layout_b=ROW, epilogue=F32_OUT),
]
GEMMS += [
    gemm(49, 512, 4608, "64x64x32_2x2_s10_i16_split", "32x32x64_1x1x2_s6_i16_split", epilogue=RESIDUAL),
    gemm(33, 1000, 2050, "64x64x64_2x2_s5_i16_split"),
    gemm(70, 33, 1027, "64x64x32_2x2_s2_i16_split", epilogue=parse_epilogue("bias+gelu_erf")),
    gemm(64, 68, 512, "64x64x32_2x2_s5_i8_split", dtype=DType.TF32, epilogue=F32_OUT),
]
CHAIN_GEMMS = [gemm(72, 80, 64, "64x32x64_2x1_s6", epilogue=parse_epilogue(text)) for text in CHAINS]
CONVS = [
    conv("sm80_conv", (4, 28, 28, 64, 64, 3, 3), "128x64x64_2x2_s3_i16_optimized", "64x64x64_2x1x2", pad=PADDED),
    conv(
        "sm80_conv",
        (2, 15, 17, 96, 80, 3, 3),
        "64x64x32_2x2_s10",
        "32x64x64_1x2_s6",
        "64x64x64_2x1x2",
        "32x64x64_1x2x2",
        pad=PADDED,
        stride=(2, 2),
        epilogue=RESIDUAL,
    ),
    conv("sm80_conv", (3, 14, 14, 64, 128, 1, 1), "64x128x64_2x2_s3", stride=(2, 2)),
    conv("sm80_conv", (2, 13, 19, 40, 72, 5, 3), "64x64x64_2x2_s5", pad=(3, 0, 1, 2), stride=(1, 2), dilation=(2, 1)),
    conv("sm80_conv", (2, 12, 12, 32, 32, 3, 3), "64x32x64_2x1_s6", pad=(0, 0, 1, 1), stride=(2, 2), epilogue=RESIDUAL),
    conv("sm80_conv", (2, 20, 26, 46, 32, 3, 3), "optimized", "few", pad=PADDED),
    conv("sm80_conv", (2, 9, 9, 33, 35, 3, 3), "64x64x32_2x2_s2_i16_optimized", pad=PADDED, epilogue=RESIDUAL),
    conv(
        "sm80_conv",
        (2, 64, 64, 4, 64, 7, 7),
        "128x64x32_2x2_s6_i16_fixed",
        "64x64x32_2x2_s10_i16_fixed",
        "few",
        pad=(3, 3, 3, 3),
        stride=(2, 2),
    ),
    conv("sm80_conv", (2, 33, 31, 8, 24, 3, 3), "64x32x64_2x1_s6_i16_fixed", "few", pad=PADDED),
    conv(
        "sm80_conv",
        (2, 33, 31, 3, 32, 3, 3),
        "64x64x32_2x2_s2_i16_few",
        "64x64x32_2x2_s2_i16_optimized",
        pad=PADDED,
        stride=(2, 2),
    ),
    conv("sm80_conv", (1, 40, 40, 16, 16, 35, 3), "64x32x64_2x1_s6_i16_analytic", pad=(17, 1, 17, 1)),
    conv("sm80_conv", (2, 14, 14, 64, 40, 3, 3), "64x64x64_2x2_s5", pad=PADDED, dtype=DType.BF16, epilogue=BF16_OUT),
    conv("sm80_conv", (2, 14, 14, 36, 40, 3, 3), "64x64x32_2x2_s5", pad=PADDED, dtype=DType.TF32, epilogue=F32_OUT),
    conv("sm80_conv", (2, 14, 14, 36, 40, 3, 3), "64x64x32_2x2_s5", pad=PADDED, dtype=DType.F32, epilogue=F32_OUT),
    conv("sm80_conv", (2, 14, 14, 64, 40, 3, 3), "64x64x64_2x2_s5", pad=PADDED, epilogue=Epilogue()),
]
CONVS += [
    conv("sm80_conv", (1, 7, 7, 512, 128, 3, 3), "64x64x32_2x2_s10_i16_optimized_split", pad=PADDED, epilogue=RESIDUAL),
    conv(
        "sm80_conv", (1, 14, 13, 360, 100, 1, 3), "64x32x64_2x1_s6_i16_optimized_split", pad=(0, 1, 0, 1), stride=(2, 1)
    ),
]
DIRECT = [
    conv(
        "direct_conv",
        (4, 28, 28, 64, 64, 3, 3),
        "dw8x4_8x16_w3s1",
        "dw4x2_16x16",
        "fma128x8",
        pad=PADDED,
        groups=64,
    ),
    conv(
        "direct_conv",
        (2, 29, 31, 96, 96, 5, 5),
        "dw8x4_4x64_w5s2",
        "dw8x1_8x16_w5s2",
        pad=(2, 2, 2, 2),
        stride=(2, 2),
        groups=96,
        epilogue=RESIDUAL,
    ),
    conv("direct_conv", (2, 15, 15, 33, 33, 3, 3), "dw1x2", pad=(1, 1, 1, 1), dilation=(2, 2), groups=33),
    conv("direct_conv", (1, 20, 20, 20, 20, 9, 9), "dw4x1", "dw2x8", pad=(4, 0, 4, 8), stride=(3, 1), groups=20),
    conv(
        "direct_conv",
        (2, 28, 28, 272, 272, 1, 1),
        "fma64x32_4x4",
        "fma64x64_4x8",
        "fma128x8",
        groups=4,
        epilogue=parse_epilogue("bias+silu+mul"),
    ),
    conv("direct_conv", (2, 13, 14, 30, 6, 3, 3), "fma128x8", pad=(0, 1, 2, 0), groups=3),
    conv("direct_conv", (2, 13, 14, 6, 12, 3, 3), "fma256x8", pad=PADDED, groups=6, epilogue=Epilogue()),
    conv("direct_conv", (2, 13, 14, 64, 64, 3, 3), "fma256x4", pad=PADDED, groups=16),
    conv("direct_conv", (2, 13, 14, 64, 96, 3, 3), "fma128x64", "fma32x32", pad=PADDED, groups=2, epilogue=RESIDUAL),
    conv("direct_conv", (2, 13, 14, 5, 7, 3, 3), "fma128x8", pad=PADDED, dtype=DType.F32, epilogue=F32_OUT),
    conv("direct_conv", (2, 13, 14, 48, 48, 3, 3), "dw8x8", pad=PADDED, groups=48, dtype=DType.BF16, epilogue=BF16_OUT),
]
GROUPS = [
    conv("sm80_group", (2, 28, 28, 272, 136, 1, 1), "64x32x64_2x1_s6", "128x32x32_4x1_s4", groups=4, epilogue=RESIDUAL),
    conv("sm80_group", (3, 9, 7, 27, 33, 1, 1), "64x32x32_2x1_s2", groups=3),
]
CASES = GROUPS + GEMMS + CHAIN_GEMMS + CONVS + DIRECT


def kernels_of(case: Case, gpu: GpuSpec) -> list[Kernel]:
    family = families()[case.family]
    legal = [k for k in family.kernels(case.workload, gpu) if family.illegal(k, case.workload, gpu) is None]
    if gpu.sm < 80:  # other tiles there: take the first ones
        return legal[: len(case.stems)]
    found = []
    for stem in case.stems:
        found.append(next((k for k in legal if stem in k.stem), None))
        assert found[-1], f"{case.workload.key}: no legal kernel has {stem} in its stem"
    return found
