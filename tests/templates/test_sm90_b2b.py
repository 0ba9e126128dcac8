"""The Hopper pair family's rules: residence, registers, shared memory, names, refusals; nothing is compiled."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.search.rank import rank
from templates import families
from templates.emit import c_identifier
from templates.epilogue import parse_epilogue
from templates.family import candidate_from_dict, candidate_to_dict
from templates.gpu import KNOWN_GPUS
from templates.sm90_b2b import geometry, space
from templates.sm90_b2b.family import Sm90B2b, inner_of, instance_of, part_of
from templates.types import DType, MatrixLayout
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair

H200, A100 = KNOWN_GPUS["h200"], KNOWN_GPUS["a100"]
FAMILY = families()["sm90_b2b"]
BIAS_RELU = parse_epilogue("bias+relu")


def gemm(m: int, k: int, n0: int, n1: int, inner: str = "bias+relu", outer: str = "bias+relu") -> B2bGemmWorkload:
    return B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=parse_epilogue(inner)), n1, parse_epilogue(outer))


def conv(hw: int, c: int, k: int, n1: int, stride: int = 1) -> B2bConvWorkload:
    first = ConvWorkload(32, hw, hw, c, k, 3, 3, (1, 1, 1, 1), (stride, stride), epilogue=BIAS_RELU)
    return B2bConvWorkload(first, n1, BIAS_RELU)


# The shapes the reference kernel was measured on, and the paper's.
SHAPES = [
    gemm(16384, 256, 64, 16), gemm(32768, 576, 128, 64), gemm(128320, 96, 32, 96), gemm(16384, 256, 512, 64),
    gemm(32768, 512, 256, 64), gemm(777, 96, 48, 24), gemm(2464, 8, 8, 8), conv(56, 64, 64, 64), conv(56, 64, 64, 256),
    conv(112, 48, 48, 48, 2), conv(224, 8, 64, 64, 2),
]  # fmt: skip


@pytest.mark.parametrize("pair", SHAPES, ids=lambda p: p.key)
def test_every_known_shape_has_several_candidates(pair: Pair) -> None:
    ranking = rank(pair, H200, {"sm90_b2b": FAMILY})
    assert len(ranking.candidates) >= 8
    assert [r.score.us for r in ranking.candidates] == sorted(r.score.us for r in ranking.candidates)
    floor = pair.bytes / (H200.dram_gbs * 1e3)
    assert all(floor < r.score.us < 4 * floor + 10 for r in ranking.candidates)
    names = [r.kernel.name for r in ranking.candidates]
    assert len(set(names)) == len(names) and all(c_identifier(n) for n in names)
    for ranked in ranking.candidates:
        assert candidate_from_dict(candidate_to_dict(ranked.candidate)) == ranked.candidate


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 200_000), st.integers(1, 300), st.integers(1, 130), st.integers(1, 40),
    st.sampled_from(["bias+relu", "bias+gelu_erf", "identity", "scale(2)+bias+silu"]),
)  # fmt: skip
def test_what_is_legal_fits_the_sm(m: int, k8: int, n8: int, o8: int, chain: str) -> None:
    pair = gemm(m, 8 * k8, 8 * n8, 8 * o8, chain, chain)
    kernels = [k for k in FAMILY.kernels(pair, H200) if FAMILY.illegal(k, pair, H200) is None]
    for kernel in kernels:
        i = instance_of(kernel)
        layout = geometry.lay(i, pair)
        assert not isinstance(layout, str)
        assert layout.smem * i.blocks_per_sm <= H200.smem_per_sm - 1024 * i.blocks_per_sm and layout.stages >= 2
        assert layout.rows <= 256 and layout.stages * geometry.rings(i) <= geometry.MAX_STAGES
        assert i.n0 * i.chunks >= pair.second.k > i.n0 * (i.chunks - 1) and i.n1 == pair.n1
        threads = 128 * i.groups + (128 if geometry.moves_registers(i, 40) else 32 * geometry.rings(i))
        assert threads <= 1024
        assert all(FAMILY.launches(kernel, pair, H200))
    if 8 * n8 <= 128 and 8 * o8 <= 128 and 8 * k8 <= 1024:
        assert kernels, "small pairs are served"


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (gemm(2464, 4, 8, 8), "K = 4 is not a multiple of 8"),
        (gemm(2464, 8, 1, 8), "N0 = 1 is not a multiple of 8"),
        (gemm(2464, 8, 8, 4), "N1 = 4 is not a multiple of 8"),
        (gemm(2464, 64, 64, 264), "residence: a block covers N1 up to 256, N1 = 264"),
        (gemm(2464, 64, 1032, 64), "residence: a block covers N0 up to 1024, N0 = 1032"),
        (gemm(2464, 16, 512, 256), "residence: B1 and a result tile take 296 KB, a block has 227 KB"),
        (conv(56, 64, 264, 64), "residence: a block covers N0 up to 256, N0 = 264"),
        (conv(224, 4, 48, 48, 2), "C = 4 is not a multiple of 8"),
        (gemm(64, 64, 64, 64, "bias+add+relu"), "the first epilogue reads a tensor"),
        (gemm(64, 64, 64, 64, outer="bias->f32"), "writes its operands' type f16, not f32"),
        (B2bGemmWorkload(GemmWorkload(64, 64, 64, layout_b=MatrixLayout.ROW), 64), "row-major A and a column-major B"),
        (B2bGemmWorkload(GemmWorkload(64, 64, 64, accumulator=DType.F16), 64), "accumulates in f32"),
        (
            B2bGemmWorkload(GemmWorkload(64, 64, 64, dtype=DType.TF32, epilogue=parse_epilogue("identity->f32")), 64),
            "operands of type tf32",
        ),
        (replace(conv(56, 64, 64, 64), first=replace(conv(56, 64, 64, 64).first, groups=2)), "2 groups"),
        (replace(conv(56, 64, 64, 64), first=replace(conv(56, 64, 64, 64).first, stride=(9, 9))), "stride 9"),
        (GemmWorkload(64, 64, 64), "two products"),
    ],
    ids=lambda p: p if isinstance(p, str) else p.key,
)
def test_refusals_name_their_reason(pair: Pair, reason: str) -> None:
    assert reason in str(FAMILY.refuses(pair, H200))


def test_other_gpus_are_refused() -> None:
    assert "compute capability 9.0" in str(FAMILY.refuses(gemm(64, 64, 64, 64), A100))


def test_kernels_are_for_one_pair_of_epilogues_and_one_kind() -> None:
    pair = gemm(65536, 64, 64, 64)
    kernel = rank(pair, H200, {"sm90_b2b": FAMILY}).candidates[0].kernel
    assert inner_of(kernel) == BIAS_RELU
    assert "another epilogue" in str(FAMILY.illegal(kernel, gemm(65536, 64, 64, 64, "bias+silu"), H200))
    assert "another epilogue" in str(FAMILY.illegal(kernel, gemm(65536, 64, 64, 64, outer="bias"), H200))
    assert "residence" in str(FAMILY.illegal(kernel, gemm(65536, 64, 96, 64), H200))
    assert "residence" in str(FAMILY.illegal(kernel, gemm(65536, 64, 64, 72), H200))
    assert "matrix product" in str(FAMILY.illegal(kernel, conv(56, 64, 64, 64), H200))
    silu = next(iter(FAMILY.kernels(gemm(65536, 64, 64, 64, "bias+silu"), H200)))
    assert silu.name != next(iter(FAMILY.kernels(pair, H200))).name


def test_chunks_cover_wide_intermediates_and_padding_those_between_steps() -> None:
    chunked = {(instance_of(k).n0, instance_of(k).chunks) for k in FAMILY.kernels(gemm(65536, 256, 512, 64), H200)}
    assert chunked == {(64, 8), (128, 4), (192, 3), (256, 2)}
    assert {instance_of(k).n0 for k in FAMILY.kernels(gemm(65536, 256, 40, 64), H200)} == {48}


def test_the_reference_configurations_are_in_the_space() -> None:
    """Configurations that were measured; registers and shared memory must not exclude them."""
    wanted = {
        "64x16x64g2r_m1d2": SHAPES[0], "128x64x64g2s_m2d1": SHAPES[1], "128x64x32g2s_m2d2": SHAPES[1],
        "128x64x64g2r_m1d1_x2": SHAPES[1], "32x96x96g3r_m1d1": SHAPES[2], "128c4x64x64g2s_m1d1": SHAPES[3],
        "256x64x64g2s_m1d2_x2": SHAPES[4], "64x64x64g2r_m1d2_conv": SHAPES[7], "64x256x64g2r_m1d1_conv": SHAPES[8],
    }  # fmt: skip
    for stem, pair in wanted.items():
        instance = next(i for i in space.instances(pair.second.k, pair.n1, "conv" in stem) if i.stem == stem)
        base = geometry.base_registers(BIAS_RELU, BIAS_RELU)
        assert geometry.register_objection(instance, base) is None, stem
        assert not isinstance(geometry.lay(instance, pair), str), stem


def test_a_leading_bias_starts_the_accumulators_and_a_last_relu_is_a_modifier() -> None:
    part = part_of(parse_epilogue("bias+silu+relu"), "X")
    assert (part.bias_first, part.bias, part.final_relu) == (True, True, True)
    assert "silu" in part.chain and "x + bias" not in part.chain and "bolt::relu" not in part.chain
    part = part_of(parse_epilogue("scale(2)+bias"), "X")
    assert (part.bias_first, part.bias, part.final_relu) == (False, True, False)
    assert "kBias = true" in part.chain and "x + bias" in part.chain


def test_source_holds_both_chains_and_every_parameter() -> None:
    pair = gemm(65536, 64, 48, 24, "bias+leaky_relu(0.01)", "bias+add+gelu_erf")
    kernel = next(k for k in FAMILY.kernels(pair, H200) if FAMILY.illegal(k, pair, H200) is None)
    source = FAMILY.source(kernel)
    assert "struct InnerChain" in source and "struct OuterChain" in source and "leaky_relu" in source
    assert "kN0 = 48" in source and "kN1 = 24" in source and "bolt/sm90_b2b.hpp" in source
    assert "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED" in FAMILY.flags(kernel, H200)
    assert isinstance(FAMILY, Sm90B2b)
