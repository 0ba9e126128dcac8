"""What tests/gpu/test_kernels_sm90.py runs: kernels, and the workloads each of them gets. Needs no GPU and no torch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.sm90_direct.space import INSTANCES
from templates.sm90_split import rules as split_rules
from templates.sm90_split.family import point_of as split_point
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload, Workload

ROW, COL = MatrixLayout.ROW, MatrixLayout.COL
CHAINS = ("identity", "bias", "bias+relu", "bias+add+relu", "bias+gelu_erf", "mul")


@dataclass(frozen=True)
class Case:
    """One kernel by its stem, with what else decides its code, and further workload fields such as a batch."""

    family: str
    stem: str
    epilogue: str = "bias+relu"
    dtype: DType = DType.F16
    layout_a: MatrixLayout = ROW
    layout_b: MatrixLayout = COL
    columns: int = 0  # of D, which decide how wide sm90_split stores; 0: as wide as it can
    depth: int = 0  # of K or the channels, which decide how wide sm90_padded reads

    @property
    def gemm(self) -> bool:
        of_gemm = self.family in ("sm90_split", "sm90_padded") and not self.stem.endswith("_conv")
        return of_gemm or self.family == "sm90_gemm"

    def specialise(self, workload: Workload) -> Workload:
        epilogue = parse_epilogue(self.epilogue)
        if isinstance(workload, GemmWorkload):
            layouts = {"layout_a": self.layout_a, "layout_b": self.layout_b}
            return replace(workload, epilogue=epilogue, dtype=self.dtype, **layouts)
        return replace(workload, epilogue=epilogue, dtype=self.dtype)

    def workloads(self, gpu: GpuSpec) -> Iterator[Workload]:
        """The shapes that the kernel is legal for."""
        family = families()[self.family]
        for shape in GEMM_SHAPES if self.gemm else CONV_SHAPES:
            workload = self.specialise(shape)
            if family.illegal(self.kernel(gpu), workload, gpu) is None:
                yield workload

    def kernel(self, gpu: GpuSpec) -> Kernel:
        shape: Workload = GEMM_SHAPES[0] if self.gemm else CONV_SHAPES[0]
        if self.columns:
            shape = replace(shape, n=self.columns) if self.gemm else replace(shape, k=self.columns)
        if self.depth:
            shape = replace(shape, k=self.depth) if self.gemm else replace(shape, c=self.depth)
        sample = self.specialise(shape)
        return next(k for k in families()[self.family].kernels(sample, gpu) if k.stem == self.stem)

    def launches(self, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        """What the tuner would try, and orders that only larger problems get."""
        found = families()[self.family].launches(self.kernel(gpu), workload, gpu)
        if self.family == "sm90_gemm" and not self.stem.endswith("stream_k"):
            orders = [(0, 1), (1, 1), (2, 1), (1, 2), (2, 8)]
            found = [Launch(raster=r, swizzle=s, pdl=p) for r, s in orders for p in (False, True)]
        if self.family in ("sm90_split", "sm90_padded"):
            k_tiles = split_rules.k_tiles(split_point(self.kernel(gpu)), workload)  # type: ignore[arg-type]
            every = [Launch(splits=s, raster=r, pdl=p) for s in range(1, 9) for r, p in ((0, False), (1, True))]
            found = [c for c in every if c.splits <= k_tiles]
        if self.stem.endswith("stream_k"):
            found = [*found, Launch(raster=1, swizzle=2), Launch(pdl=True), Launch(splits=3)]
        return found


# Tails in every dimension, one tile and many rounds, a batch.
GEMM_SHAPES = [
    GemmWorkload(336, 264, 136),
    GemmWorkload(1, 1000, 2048),
    GemmWorkload(32, 1000, 2048),
    GemmWorkload(105, 72, 200),
    GemmWorkload(257, 520, 8),
    GemmWorkload(2048, 2304, 512),
    GemmWorkload(72, 80, 64, batch=5),
    GemmWorkload(200, 77, 1032),  # these three only for families that store without TMA
    GemmWorkload(3, 250, 2048, batch=2),
    GemmWorkload(48, 333, 520),
    GemmWorkload(130, 72, 479),  # and these for operands that are filled up
    GemmWorkload(65, 40, 46, batch=3),
    GemmWorkload(33, 24, 300),
]
SHARED_B = GemmWorkload(200, 136, 72, batch=3, shared_b=True)  # a TMA stride of zero


def _conv(n: int, h: int, w: int, c: int, k: int, r: int, s: int, pad: int, stride: int, dilation: int) -> ConvWorkload:
    return ConvWorkload(n, h, w, c, k, r, s, (pad,) * 4, (stride,) * 2, (dilation,) * 2)  # type: ignore[arg-type]


CONV_SHAPES = [
    _conv(3, 35, 33, 48, 40, 3, 3, 1, 1, 1),
    _conv(3, 35, 33, 48, 40, 3, 3, 0, 2, 1),
    _conv(3, 35, 33, 48, 40, 3, 3, 1, 2, 1),
    _conv(3, 35, 33, 48, 40, 3, 3, 0, 1, 2),
    _conv(2, 30, 30, 72, 136, 3, 3, 1, 1, 1),
    _conv(2, 17, 13, 200, 328, 1, 1, 0, 2, 1),
    _conv(2, 20, 29, 64, 64, 5, 3, 2, 1, 1),
    _conv(2, 9, 7, 136, 64, 3, 3, 1, 1, 1),
    _conv(5, 14, 14, 64, 264, 3, 3, 1, 1, 1),
    _conv(16, 56, 56, 64, 64, 3, 3, 1, 1, 1),
    ConvWorkload(2, 19, 23, 64, 56, 3, 5, (1, 2, 0, 3), (1, 1), (2, 1)),
    ConvWorkload(2, 20, 18, 32, 64, 3, 3, (0, 0, 1, 1), (2, 2)),
    ConvWorkload(4, 12, 12, 16, 24, 3, 3, (2, 0, 2, 1)),
    _conv(3, 20, 26, 46, 32, 3, 3, 1, 1, 1),
    _conv(2, 14, 19, 174, 64, 5, 7, 2, 1, 1),
    _conv(2, 21, 17, 13, 40, 3, 3, 1, 2, 1),
    _conv(3, 7, 7, 256, 77, 3, 3, 1, 1, 1),  # the channels are for families that store without TMA
]

GEMMS = [
    *(Case("sm90_gemm", "128x128x64_2x1_pingpong", chain) for chain in CHAINS),
    *(Case("sm90_gemm", "128x96x64_1x2_pingpong_swap", chain) for chain in CHAINS),
    Case("sm90_gemm", "256x96x64_1x2_cooperative_swap", "bias+add+relu"),
    Case("sm90_gemm", "64x32x64_1x1_pingpong_swap"),
    Case("sm90_gemm", "128x96x64_1x1_pingpong_swap", "bias+add+relu", layout_a=COL, layout_b=ROW),
    Case("sm90_gemm", "128x96x64_1x1_cooperative_swap", "bias+add+relu->f32", DType.BF16),
    Case("sm90_gemm", "192x128x64_1x2_pingpong", "bias+add+relu"),
    Case("sm90_gemm", "192x64x64_2x2_pingpong"),
    Case("sm90_gemm", "256x192x64_1x2_cooperative", "bias+add+relu"),
    Case("sm90_gemm", "128x64x64_1x4_pingpong"),
    Case("sm90_gemm", "64x64x32_1x1_pingpong"),
    Case("sm90_gemm", "64x128x64_1x2_pingpong"),
    Case("sm90_gemm", "64x64x128_1x1_pingpong"),
    Case("sm90_gemm", "64x16x64_1x1_pingpong", "bias+add+relu"),
    Case("sm90_gemm", "64x192x64_1x1_pingpong"),
    Case("sm90_gemm", "128x192x64_1x1_pingpong", "bias+add+relu"),
    Case("sm90_gemm", "256x64x64_1x1_pingpong"),
    Case("sm90_gemm", "128x256x64_2x1_cooperative"),
    Case("sm90_gemm", "256x128x64_2x1_cooperative", "bias+add+relu"),
    Case("sm90_gemm", "256x128x64_1x4_cooperative", "bias"),
    Case("sm90_gemm", "128x128x64_1x1_stream_k", "bias+add+relu"),
    Case("sm90_gemm", "256x128x64_2x1_stream_k"),
    Case("sm90_gemm", "128x64x64_1x1_pingpong", "mul->bf16", DType.BF16, COL, ROW),
    Case("sm90_gemm", "128x64x64_1x1_pingpong", "bias+add+relu", layout_b=ROW),
    Case("sm90_gemm", "128x128x64_1x1_cooperative", "bias+add+relu->f32"),
    Case("sm90_gemm", "64x64x64_1x1_pingpong", "bias+gelu_erf->f32", DType.TF32),
]
CONVS = [
    *(Case("sm90_conv", "128x64x64_1x1_pingpong", chain) for chain in CHAINS),
    Case("sm90_conv", "64x128x64_1x1_pingpong"),
    Case("sm90_conv", "192x128x64_1x1_pingpong", "bias+add+relu"),
    Case("sm90_conv", "192x64x64_2x1_pingpong"),
    Case("sm90_conv", "256x64x64_1x1_pingpong"),
    Case("sm90_conv", "128x128x64_1x2_pingpong", "bias+add+relu"),
    Case("sm90_conv", "128x192x64_1x1_pingpong", "bias+silu+mul"),
    Case("sm90_conv", "128x128x64_2x1_cooperative", "bias+add+relu"),
    Case("sm90_conv", "256x96x64_1x2_cooperative", "bias+add+relu"),
    Case("sm90_conv", "64x64x32_1x1_pingpong", "bias+add+relu->f32", DType.BF16),
]
DIRECTS = [
    *(Case("sm90_direct", i.stem, chain) for i in INSTANCES for chain in ("bias+relu", "bias+add+relu")),
    *(Case("sm90_direct", "112_1x2_resident", chain) for chain in CHAINS if "relu" not in chain),
    *(Case("sm90_direct", "208_2x1_alternate", chain) for chain in CHAINS if "relu" not in chain),
    Case("sm90_direct", "216_1x1_streamed", "bias+silu+mul->bf16", DType.BF16),
    Case("sm90_direct", "224_2x1_alternate", "bias+add+relu->bf16", DType.BF16),
]
SPLIT_GEMMS = [
    *(Case("sm90_split", "128x128x64", chain) for chain in CHAINS),
    Case("sm90_split", "64x32x128", "bias+add+relu"),
    Case("sm90_split", "64x256x64"),
    Case("sm90_split", "192x128x64", "bias+add+relu"),
    Case("sm90_split", "128x96x64", columns=77),
    Case("sm90_split", "64x96x64", "bias+add+relu", columns=250),
    *(Case("sm90_split", "64x16x128_swap", chain) for chain in CHAINS),
    Case("sm90_split", "128x8x64_swap", "bias+add+relu"),
    Case("sm90_split", "128x64x64_swap", columns=77),
    Case("sm90_split", "128x96x64", "mul->bf16", DType.BF16, COL, ROW),
    Case("sm90_split", "64x32x64_swap", "bias+add+relu", layout_a=COL, layout_b=ROW),
    Case("sm90_split", "64x128x64", "bias+add+relu->f32"),
    Case("sm90_split", "128x64x32", "bias+gelu_erf->f32", DType.TF32),
    Case("sm90_split", "64x16x32_swap", "bias", DType.TF32),
]
SPLIT_CONVS = [
    *(Case("sm90_split", "128x128x64_conv", chain) for chain in CHAINS),
    Case("sm90_split", "64x128x64_conv", "bias+add+relu->f32", DType.BF16),
    Case("sm90_split", "192x64x64_conv"),
    Case("sm90_split", "128x192x64_conv", "bias+silu+mul"),
    Case("sm90_split", "64x96x64_conv", "bias+add+relu", columns=77),
]
PADDED = [
    Case("sm90_padded", "64x64x64", depth=479),
    Case("sm90_padded", "128x32x64", "bias+add+relu", depth=46),
    Case("sm90_padded", "64x32x128", "bias+gelu_erf->f32", DType.BF16, depth=300),
    Case("sm90_padded", "64x32x64_conv", depth=46),
    Case("sm90_padded", "192x64x64_conv", "bias+add+relu", depth=46),
    Case("sm90_padded", "128x32x64_conv", "bias", depth=13),
]
SPLITS = SPLIT_GEMMS + SPLIT_CONVS
CASES = GEMMS + CONVS + DIRECTS + SPLITS + PADDED
