"""What tests/gpu/test_kernels_b2b.py runs: pair kernels and the shapes each gets. Needs no GPU and no torch."""

from dataclasses import dataclass, replace
from random import Random

from core.search.rank import rank
from templates import families
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.types import DType
from templates.workload import B2bConvWorkload, B2bGemmWorkload, Chain, ConvWorkload, GemmWorkload, Pair, TowerWorkload


def gemm(m: int, k: int, n0: int, n1: int) -> B2bGemmWorkload:
    return B2bGemmWorkload(GemmWorkload(m, n0, k), n1)


def conv(
    image: tuple[int, int, int, int], n0: int, n1: int, r: int = 3, s: int = 3,
    pad: tuple[int, int, int, int] = (1, 1, 1, 1), stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> B2bConvWorkload:  # fmt: skip
    return B2bConvWorkload(ConvWorkload(*image, n0, r, s, pad, stride, dilation), n1)


@dataclass(frozen=True)
class Case:
    """One kernel by the stem of its instance, and what else decides its code."""

    family: str
    stem: str
    shapes: tuple[Chain, ...]
    inner: str = "bias+relu"
    outer: str = "bias+relu"
    dtype: DType = DType.F16

    def specialise(self, shape: Chain) -> Chain:
        inner, outer = parse_epilogue(f"{self.inner}{self._stored}"), parse_epilogue(f"{self.outer}{self._stored}")
        first = replace(shape.first, dtype=self.dtype, epilogue=inner)
        if isinstance(shape, TowerWorkload):
            return replace(shape, pair=replace(shape.pair, first=first, epilogue=inner), epilogue=outer)
        return replace(shape, first=first, epilogue=outer)  # type: ignore[arg-type]

    @property
    def _stored(self) -> str:
        return "" if self.dtype == DType.F16 else f"->{self.dtype}"

    @property
    def pairs(self) -> list[Chain]:
        return [self.specialise(shape) for shape in self.shapes]

    def kernel(self, gpu: GpuSpec) -> Kernel:
        """Raises StopIteration if the family has no such instance."""
        pair = self.pairs[0]
        idents = "_".join(part.epilogue.ident for part in pair.parts[:-1])
        stem = f"{self.stem}_{idents}"
        return next(k for k in families()[self.family].kernels(pair, gpu) if k.stem == stem)

    def launches(self, gpu: GpuSpec) -> list[Launch]:
        if self.family == "sm80_b2b":
            return [Launch(), *([Launch(pdl=True)] if gpu.sm >= 90 else [])]
        return [Launch(), Launch(pdl=True), Launch(variant=2), Launch(variant=3, pdl=True)]

    def launches_for(self, pair: Chain, gpu: GpuSpec) -> list[Launch]:
        """The family's own where `variant` is no number of stages, as of the direct pair; else `launches`."""
        if self.family in ("sm90_direct_b2b", "sm90_tower_b2b"):
            return families()[self.family].launches(self.kernel(gpu), pair, gpu)
        return self.launches(gpu)

    @property
    def name(self) -> str:
        three = "-of3" * isinstance(self.shapes[0], TowerWorkload)
        return f"{self.family}-{self.stem}-{self.inner}-{self.outer}-{self.dtype}{three}"


def triple(m: int, k: int, n0: int, n1: int, n2: int) -> TowerWorkload:
    return TowerWorkload(B2bGemmWorkload(GemmWorkload(m, n0, k), n1), n2)


def gemms(n0: int, n1: int, *shapes: tuple[int, int]) -> tuple[Pair, ...]:
    return tuple(gemm(m, k, n0, n1) for m, k in shapes)


# Tails in M and K, one tile and many rounds; the paper's pairs (its 2464: 4 -> 1 -> 4 filled up to 8), and those the
# kernels' forerunner was measured on.
_64_16 = gemms(64, 16, (10, 256), (777, 256), (16384, 256), (20000, 96), (777, 8), (150001, 256)) + gemms(
    56, 16, (777, 96)
)
_128_64 = gemms(128, 64, (10, 576), (130, 576), (777, 576), (32768, 576), (50001, 320), (50001, 8)) + gemms(
    120, 64, (777, 200)
)
_64_64 = gemms(64, 64, (10, 64), (777, 8), (50001, 256), (16384, 200))
_64_64_DEEP = (*_64_64, gemm(16384, 1000, 64, 64))
_512_64 = gemms(512, 64, (10, 256), (777, 96), (16384, 256), (50001, 8)) + gemms(504, 64, (777, 320))
HOPPER_GEMMS = [
    Case("sm90_b2b", "64x16x64g2r_m1d2", _64_16),
    Case("sm90_b2b", "128x64x64g2s_m2d1", (*_128_64, gemm(50001, 2048, 128, 64))),
    Case("sm90_b2b", "128x64x32g2s_m2d2", _128_64),
    Case("sm90_b2b", "128x64x64g2r_m1d1_x2", _128_64),
    Case("sm90_b2b", "32x96x96g3r_m1d1", gemms(32, 96, (10, 96), (777, 96), (128320, 96), (5000, 200))),
    Case("sm90_b2b", "128c4x64x64g2s_m1d1", _512_64),
    Case("sm90_b2b", "256c2x64x64g2s_m1d2_x2", _512_64),
    Case("sm90_b2b", "256x64x64g2s_m1d2_x2", gemms(256, 64, (10, 96), (777, 2304), (30001, 512))),
    Case("sm90_b2b", "256x256x32g1s_m1d1_x2", gemms(256, 256, (10, 96), (16384, 512))),
    Case("sm90_b2b", "48x24x32g2r_m1d2", gemms(48, 24, (10, 96), (777, 8), (50000, 1000)) + gemms(40, 24, (777, 96))),
    Case("sm90_b2b", "16x8x32g1r_m1d2", gemms(8, 8, (2464, 8), (777, 24)) + gemms(16, 8, (20000, 40))),
    Case("sm90_b2b", "64x64x64g4r_m1d2", _64_64),
    Case("sm90_b2b", "64x64x64g1s_m1d1_o2", _64_64_DEEP),
    Case("sm90_b2b", "64x64x64g2r_m2d2", _64_64, "bias+silu", "bias+gelu_erf", DType.BF16),
    Case("sm90_b2b", "64x64x32g3s_m1d2", _64_64_DEEP, "gelu_erf", "bias+add+relu"),
    Case("sm90_b2b", "64x64x64g2s_m2d2_x2", _64_64_DEEP, "bias+hard_swish", "scale(0.5)+bias+mul+tanh"),
    Case("sm90_b2b", "64x64x128g1r_m1d2", _64_64, "scale(0.5)+bias+softplus", "identity"),
    Case("sm90_b2b", "64x64x96g2r_m1d2", _64_64, "bias+elu(1)", "add"),
]  # fmt: skip
_IMAGES = (
    conv((1, 8, 8, 64), 64, 64), conv((2, 13, 17, 64), 64, 64), conv((32, 56, 56, 64), 64, 64),
    conv((3, 28, 30, 48), 64, 64), conv((3, 29, 31, 64), 64, 64, stride=(2, 2)),
    conv((2, 20, 20, 128), 64, 64, 1, 1, (0,) * 4), conv((2, 20, 23, 64), 64, 64, 5, 3, (2, 0, 1, 1)),
    conv((2, 21, 19, 72), 64, 64, pad=(2, 2, 2, 2), dilation=(2, 2)),
    conv((2, 18, 20, 64), 64, 64, pad=(0, 0, 1, 1), stride=(2, 1)),
)  # fmt: skip
_PAPER_48 = (
    conv((32, 224, 224, 8), 48, 48, stride=(2, 2)), conv((32, 112, 112, 48), 48, 48, stride=(2, 2)),
    conv((32, 56, 56, 48), 48, 48), conv((1, 9, 7, 24), 40, 48),
)  # fmt: skip
_PAPER_64 = (
    conv((32, 224, 224, 8), 64, 64, stride=(2, 2)), conv((32, 112, 112, 64), 64, 64, stride=(2, 2)),
    conv((32, 56, 56, 64), 64, 64),
)  # fmt: skip
HOPPER_CONVS = [
    Case("sm90_b2b", "64x64x64g2r_m1d2_conv", _IMAGES),
    Case("sm90_b2b", "64x64x32g2r_m2d2_conv", _IMAGES, "bias+gelu_tanh", "bias+add+silu"),
    Case("sm90_b2b", "64x64x32g4s_m1d2_conv", _IMAGES, "bias+leaky_relu(0.01)", "bias+hard_swish", DType.BF16),
    Case("sm90_b2b", "64x256x64g2r_m1d1_conv", (conv((2, 13, 17, 64), 64, 256), conv((32, 56, 56, 64), 64, 256))),
    Case("sm90_b2b", "64x64x16g3r_m2d2_conv", _PAPER_64),
    Case("sm90_b2b", "48x48x16g3r_m2d2_conv", _PAPER_48),
    Case("sm90_b2b", "48x48x64g4r_m1d1_conv", _PAPER_48[1:]),
]
# Direct pairs: tails along both axes of the image, whole rows and patches, chunks of channels that are not full, other
# filters, asymmetric padding, dilation; result channels in one pass and in several, more and fewer than the middle.
_DIRECT_64 = (
    conv((1, 8, 8, 64), 64, 64), conv((2, 13, 17, 64), 64, 64), conv((32, 56, 56, 64), 64, 64),
    conv((3, 28, 30, 48), 64, 64), conv((2, 20, 23, 72), 64, 64, 5, 3, (2, 0, 1, 1)), conv((5, 19, 21, 8), 40, 24),
    conv((2, 21, 19, 72), 64, 64, pad=(2, 2, 2, 2), dilation=(2, 2)), conv((2, 9, 50, 64), 56, 64, 1, 1, (0,) * 4),
    conv((32, 56, 56, 48), 48, 48),
)  # fmt: skip
_DIRECT_ONE_CHUNK = tuple(p for p in _DIRECT_64 if p.first.c <= 64 and p.first.r <= 3)  # whose weights may stay
_DIRECT_WIDE = (conv((2, 13, 17, 64), 64, 256), conv((32, 56, 56, 64), 64, 256), conv((3, 7, 7, 24), 64, 136))
_DIRECT_96 = (
    conv((32, 28, 28, 96), 96, 96), conv((2, 13, 17, 200), 128, 128), conv((3, 28, 30, 64), 72, 40),
    conv((1, 6, 5, 128), 128, 96),
)  # fmt: skip
_DIRECT_192 = (
    conv((32, 14, 14, 192), 192, 192), conv((3, 14, 14, 64), 136, 192), conv((2, 13, 11, 192), 192, 64),
    conv((1, 5, 6, 8), 160, 168),
)  # fmt: skip
_DIRECT_256 = (conv((32, 14, 14, 256), 256, 256), conv((2, 9, 11, 72), 200, 248))
DIRECT = [
    Case("sm90_direct_b2b", "64_1x4_resident", _DIRECT_ONE_CHUNK),
    Case("sm90_direct_b2b", "112_1x2_resident_u", _DIRECT_ONE_CHUNK, "bias+silu"),
    Case("sm90_direct_b2b", "112_1x2_streamed", _DIRECT_64, "bias+relu", "bias+add+relu"),
    Case("sm90_direct_b2b", "224_1x1_streamed", _DIRECT_64, "bias+hard_swish", "scale(0.5)+bias+mul+sigmoid"),
    Case("sm90_direct_b2b", "112_1x1_streamed_u_o2", _DIRECT_64, "bias", "bias+gelu_tanh", DType.BF16),
    Case("sm90_direct_b2b", "64_1x4_resident", _DIRECT_WIDE, "bias+leaky_relu(0.01)", "identity"),
    Case("sm90_direct_b2b", "128_2x1_streamed", _DIRECT_96, "bias+gelu_erf", "bias+add+relu"),
    Case("sm90_direct_b2b", "112_2x2_streamed_u", (*_DIRECT_96[:2], _DIRECT_96[3])),
    Case("sm90_direct_b2b", "64_3x1_streamed", _DIRECT_192),
    Case("sm90_direct_b2b", "64_3x1_streamed_u", _DIRECT_192, "bias+elu(1)", "bias+softplus"),
    Case("sm90_direct_b2b", "64_3x1_streamed", (*_DIRECT_192, conv((2, 13, 17, 64), 192, 512)), "identity", "add"),
    Case("sm90_direct_b2b", "64_4x1_streamed", _DIRECT_256, "bias+relu", "bias+relu", DType.BF16),
]  # fmt: skip
# Towers: rows of one tile and of many, depths that fill no chunk, middles of one chunk and of sixteen, passes with and
# without channels for every group, results of one column, of ten, and wider than a pass.
_TOWER = (
    gemm(10, 8, 64, 64), gemm(777, 96, 256, 256), gemm(16384, 512, 256, 64), gemm(5000, 784, 512, 256),
    gemm(2048, 512, 256, 1), gemm(777, 40, 72, 10), gemm(3000, 256, 1024, 64), gemm(20001, 64, 136, 520),
)  # fmt: skip
_TOWER_128 = tuple(p for p in _TOWER if p.second.k <= 512)  # what 128 rows leave room for
TOWERS = [
    Case("sm90_tower_b2b", "16x64_g1", _TOWER),
    Case("sm90_tower_b2b", "16x256_g4", _TOWER, "bias+silu", "bias+add+relu"),
    Case("sm90_tower_b2b", "32x128_g2", _TOWER, "bias+gelu_erf", "bias+sigmoid"),
    Case("sm90_tower_b2b", "64x128_g2", _TOWER, "bias+hard_swish", "scale(0.5)+bias+mul+tanh"),
    Case("sm90_tower_b2b", "64x256_g4", _TOWER[:6], "bias+relu", "bias+relu", DType.BF16),
    Case("sm90_tower_b2b", "128x64_g1", _TOWER_128, "identity", "add"),
    Case("sm90_tower_b2b", "128x128_g2", _TOWER_128),
    Case("sm90_tower_b2b", "128x256_g4", tuple(p for p in _TOWER if p.second.k <= 256), "bias+relu", "bias+gelu_tanh"),
]  # fmt: skip
# Chains of three: DLRM's (13 features filled up to 16; a result of one column), few rows and many, widths that fill no
# chunk, middles of up to sixteen chunks.
_TRIPLE = (
    triple(10, 16, 64, 64, 64), triple(2048, 16, 512, 256, 64), triple(16384, 16, 512, 256, 64),
    triple(2048, 512, 512, 256, 1), triple(777, 40, 72, 136, 10), triple(5000, 784, 512, 256, 264),
    triple(1000, 64, 512, 512, 64),
)  # fmt: skip
_TRIPLE_64 = tuple(t for t in _TRIPLE if sum(p.n for p in t.parts[:-1]) <= 768)  # what 64 rows leave room for
TRIPLES = [
    Case("sm90_tower_b2b", "16x64_g1", _TRIPLE),
    Case("sm90_tower_b2b", "16x256_g4", _TRIPLE, "bias+gelu_erf", "bias+add+relu"),
    Case("sm90_tower_b2b", "32x128_g2", _TRIPLE, "bias+relu", "bias+sigmoid"),
    Case("sm90_tower_b2b", "64x128_g2", _TRIPLE_64, "bias+hard_swish", "scale(0.5)+bias+mul+tanh", DType.BF16),
    Case("sm90_tower_b2b", "64x256_g4", _TRIPLE_64),
    Case("sm90_tower_b2b", "128x64_g1", (_TRIPLE[0], _TRIPLE[4], triple(30001, 96, 128, 64, 96)), "identity", "add"),
]  # fmt: skip
AMPERE = [
    Case("sm80_b2b", "64x64x128x32rf_4x1_4x1_s3_i16", gemms(64, 128, (10, 8), (777, 96), (50001, 576))),
    Case("sm80_b2b", "64x64x256x32smem_2x2_1x4_s3_i16", gemms(64, 256, (10, 8), (777, 96), (50001, 576))),
    Case("sm80_b2b", "64x128x64x32rf_4x1_4x1_s3_i16", _128_64[:6], "bias+gelu_erf", "bias+silu"),
    Case("sm80_b2b", "128x128x64x32smem_4x2_4x2_s3_i16", _128_64[:6], "identity", "add+relu"),
    Case("sm80_b2b", "64x64x64x32smem_2x2_2x2_s4_i16", _64_64, "bias+relu", "bias+tanh", DType.BF16),
    Case("sm80_b2b", "64x96x64x32rf_4x1_4x1_s3_i16", gemms(96, 64, (10, 8), (777, 96), (50001, 256))),
    Case("sm80_b2b", "64x96x128x32rf_4x1_4x1_s4_i16", gemms(96, 128, (10, 8), (467, 24), (50001, 256))),
    Case("sm80_b2b", "64x64x256x32smem_2x2_2x2_s3_i16", gemms(64, 256, (10, 8), (777, 96), (50001, 576))),
    Case("sm80_b2b", "64x64x64x32rf_4x1_4x1_s3_i16_conv", (*_IMAGES, *_PAPER_64)),
    Case("sm80_b2b", "64x64x128x32rf_4x1_4x1_s3_i16_conv", (conv((2, 13, 17, 64), 64, 128),)),
    Case(
        "sm80_b2b", "64x64x128x32smem_2x2_2x2_s3_i16_conv",
        (conv((2, 13, 17, 64), 64, 128), conv((32, 56, 56, 64), 64, 128)),
    ),
]  # fmt: skip
CASES = [*HOPPER_GEMMS, *HOPPER_CONVS, *DIRECT, *TOWERS, *TRIPLES, *AMPERE]


# Widths of the random shapes: few, because every pair of widths is a kernel of its own to compile.
_RANDOM_WIDTHS = ((16, 8), (48, 24), (64, 64), (96, 128), (128, 40), (160, 96), (192, 192), (256, 256), (256, 64))
_RANDOM_CHAINS = ("bias+relu", "bias+silu", "identity")


def random_pairs(seed: int, count: int) -> list[Pair]:
    """Pairs of any size within what a block holds: rows, depths, widths, filters, padding, stride, dilation."""
    draw = Random(seed)
    found: list[Pair] = []
    while len(found) < count:
        n0, n1 = draw.choice(_RANDOM_WIDTHS)
        n0 -= 8 * draw.randint(0, 1)  # kernels fill N0 up to 16
        inner, outer = parse_epilogue(draw.choice(_RANDOM_CHAINS)), parse_epilogue("bias+relu")
        if draw.random() < 0.5:
            m = draw.choice((draw.randint(1, 300), draw.randint(300, 20_000), draw.randint(20_000, 120_000)))
            n0 = 2 * n0 if n0 > 128 and n1 <= 64 and draw.random() < 0.5 else n0
            first: GemmWorkload | ConvWorkload = GemmWorkload(m, n0, 8 * draw.randint(1, 96), epilogue=inner)
        else:
            r, s = draw.choice((1, 3, 3, 3, 5)), draw.choice((1, 3, 3, 3, 5))
            pad = (draw.randint(0, r // 2 + 1), draw.randint(0, s // 2 + 1))
            stride = (draw.randint(1, 2), draw.randint(1, 2)) if draw.random() < 0.3 else (1, 1)
            first = ConvWorkload(
                draw.randint(1, 5), draw.randint(5, 60), draw.randint(5, 60), 8 * draw.randint(1, 24), n0, r, s,
                (*pad, draw.randint(0, r // 2 + 1), draw.randint(0, s // 2 + 1)), stride,
                (draw.randint(1, 2), draw.randint(1, 2)), epilogue=inner,
            )  # fmt: skip
            if min(first.p, first.q) < 1:
                continue
        made = B2bGemmWorkload if isinstance(first, GemmWorkload) else B2bConvWorkload
        found.append(made(first, n1, outer))  # type: ignore[arg-type]
    return found


def random_runs(gpu: GpuSpec, seed: int, count: int) -> list[tuple[Kernel, Pair]]:
    """Every random pair with a kernel of each family that serves it: one chosen for an earlier pair if it is legal for
    this one too, else the family's best by its own ranking.
    """
    chosen: dict[str, list[Kernel]] = {}
    runs: list[tuple[Kernel, Pair]] = []
    for pair in random_pairs(seed, count):
        for name, family in families().items():
            if not family.min_sm <= gpu.sm <= family.max_sm or family.refuses(pair, gpu) is not None:
                continue
            kept = chosen.setdefault(name, [])
            fitting = next((k for k in kept if family.illegal(k, pair, gpu) is None), None)
            if fitting is None:
                ranked = rank(pair, gpu, {name: family}, limit=1).candidates
                if not ranked:
                    continue
                fitting = ranked[0].kernel
                kept.append(fitting)
            runs.append((fitting, pair))
    return runs
