"""Spaces, legality and ranking of sm80_gemm, sm80_conv and direct_conv, against CUTLASS's rules and measurements."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates import families
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Candidate, Family, Kernel, candidate_from_dict, candidate_to_dict
from templates.gpu import KNOWN_GPUS
from templates.tensorop import occupancy, tiles
from templates.types import DType, MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload, Workload
from tests.gpu.sm80_cases import CASES, kernels_of

H200, A100, A10, T4 = (KNOWN_GPUS[n] for n in ("h200", "a100", "a10", "t4"))
BIAS_RELU = parse_epilogue("bias+relu")
PAD = (1, 1, 1, 1)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


def family(workload: Workload) -> Family:
    if isinstance(workload, GemmWorkload):
        return families()["sm80_gemm"]
    return families()["sm80_conv" if workload.groups == 1 else "direct_conv"]


def legal(workload: Workload, gpu=H200, of: Family | None = None) -> list[Kernel]:
    of = of or family(workload)
    return [k for k in of.kernels(workload, gpu) if of.illegal(k, workload, gpu) is None]


def best(workload: Workload, gpu=H200) -> tuple[Candidate, float]:
    of = family(workload)
    found = [Candidate(k, launch) for k in legal(workload, gpu) for launch in of.launches(k, workload, gpu)]
    return min(((c, of.score(c, workload, gpu).us) for c in found), key=lambda pair: pair[1])


@pytest.mark.parametrize("sm", [75, 80, 90])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.TF32, DType.F32])
@pytest.mark.parametrize("alignment", [1, 2, 4, 8])
def test_warps_have_widths_whose_results_are_staged_right(sm: int, dtype: DType, alignment: int) -> None:
    """Where results of 16 bits are stored in eights, the epilogue permutes the columns of a warp of any other width
    (CUTLASS 4.2, epilogue/warp/tile_iterator_tensor_op_mixed.h)."""
    assert {tile.warp[1] for tile in tiles(sm, dtype, alignment)} <= {32, 64}


SPREAD = [
    GemmWorkload(4096, 4096, 4096),
    GemmWorkload(1, 1, 1),
    GemmWorkload(107, 105, 705, epilogue=BIAS_RELU),
    GemmWorkload(64, 64, 64, batch=12, layout_a=MatrixLayout.COL, layout_b=MatrixLayout.ROW),
    GemmWorkload(100, 100, 100, dtype=DType.TF32, epilogue=Epilogue((), DType.F32)),
    ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1)),
    ConvWorkload(1, 224, 224, 3, 64, 7, 7, (3, 3, 3, 3), (2, 2)),
    ConvWorkload(1, 224, 224, 4, 64, 7, 7, (3, 3, 3, 3), (2, 2)),
    ConvWorkload(1, 1, 1, 1, 1, 1, 1),
    ConvWorkload(1, 64, 64, 9, 7, 40, 3),
    ConvWorkload(8, 14, 14, 512, 512, 3, 3, (1, 1, 1, 1), groups=512),
    ConvWorkload(8, 28, 28, 272, 136, 1, 1, groups=4),
    ConvWorkload(1, 9, 9, 3, 6, 3, 3, groups=3, dtype=DType.BF16),
]


@pytest.mark.parametrize("gpu", [H200, A100, A10, T4], ids=lambda g: g.name)
@pytest.mark.parametrize("workload", SPREAD, ids=lambda w: w.key)
def test_every_workload_has_legal_kernels_with_unique_names(workload, gpu):
    of = family(workload)
    if gpu.sm < 80 and workload.dtype != DType.F16 and of.name != "direct_conv":
        assert "sm80" in (of.refuses(workload, gpu) or "")
        return
    space = list(of.kernels(workload, gpu))
    names = [k.name for k in space]
    assert len(set(names)) == len(names)
    assert all(IDENTIFIER.match(n) for n in names)
    usable = legal(workload, gpu)
    assert usable
    for kernel in usable:
        for launch in of.launches(kernel, workload, gpu):
            candidate = Candidate(kernel, launch)
            score = of.score(candidate, workload, gpu)
            assert 0 < score.us < 1e9 and score.why
            assert candidate_from_dict(candidate_to_dict(candidate)) == candidate


def test_names_are_unique_over_types_layouts_and_alignments():
    seen: dict[str, Kernel] = {}
    for gpu in (H200, T4):
        for workload in SPREAD:
            for of in families().values():
                if of.name in ("sm80_gemm", "sm80_conv", "sm80_group", "direct_conv"):
                    for kernel in of.kernels(workload, gpu):
                        assert seen.setdefault(kernel.name, kernel) == kernel


@given(
    m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000), batch=st.integers(1, 64),
    row_a=st.booleans(), row_b=st.booleans(), gpu=st.sampled_from([H200, A100, A10, T4]),
)  # fmt: skip
def test_no_gemm_lacks_a_kernel(m, n, k, batch, row_a, row_b, gpu):
    layout = {True: MatrixLayout.ROW, False: MatrixLayout.COL}
    assert legal(GemmWorkload(m, n, k, batch, layout_a=layout[row_a], layout_b=layout[row_b]), gpu)


@given(
    n=st.integers(1, 8), size=st.integers(1, 40), groups=st.integers(1, 12), c=st.integers(1, 12), k=st.integers(1, 12),
    r=st.integers(1, 7), stride=st.integers(1, 3), dilation=st.integers(1, 2), gpu=st.sampled_from([H200, A10, T4]),
)  # fmt: skip
def test_no_convolution_lacks_a_kernel(n, size, groups, c, k, r, stride, dilation, gpu):
    pad = (r * dilation, r, r, r * dilation)
    workload = ConvWorkload(
        n, size, size, c * groups, k * groups, r, r, pad, (stride, stride), (dilation, dilation), groups
    )
    assert legal(workload, gpu)
    assert legal(workload, gpu, families()["direct_conv"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family}-{c.workload.key}")
def test_gpu_cases_name_kernels_that_exist(case):
    assert len(kernels_of(case, H200)) == len(case.stems)


def test_alignment_follows_the_contiguous_extents():
    gemm = GemmWorkload(100, 36, 64)
    assert {k.alignment for k in legal(gemm)} == {(8, 8, 4)}
    assert {k.alignment for k in legal(replace(gemm, layout_a=MatrixLayout.COL))} == {(4, 8, 4)}
    assert {k.alignment for k in legal(replace(gemm, layout_b=MatrixLayout.ROW, n=7))} == {(8, 1, 1)}
    assert {k.alignment for k in legal(replace(gemm, epilogue=Epilogue((), DType.F32), n=64))} == {(8, 8, 4)}


def test_a_kernel_for_another_alignment_layout_or_epilogue_is_illegal():
    of = families()["sm80_gemm"]
    kernel = legal(GemmWorkload(64, 64, 64))[0]
    assert "not a multiple of 8" in (of.illegal(kernel, GemmWorkload(64, 64, 46), H200) or "")
    assert of.illegal(kernel, GemmWorkload(64, 64, 64, layout_b=MatrixLayout.ROW), H200)
    assert of.illegal(kernel, GemmWorkload(64, 64, 64, epilogue=BIAS_RELU), H200)


def test_shared_memory_of_this_gpu_decides():
    """256x128x64 with three stages takes 144 KB: an A100 block has it, an A10 block does not (99 KB)."""
    workload, of = GemmWorkload(4096, 4096, 4096), families()["sm80_gemm"]
    kernel = next(k for k in of.kernels(workload, A100) if k.stem.startswith("256x128x64"))
    assert of.illegal(kernel, workload, A100) is None
    assert "shared memory" in (of.illegal(kernel, workload, A10) or "")


def test_two_byte_accesses_need_two_stages():
    """cp.async moves 4, 8 or 16 bytes (PTX ISA), so a single 16-bit element goes through registers."""
    assert {t.stages for t in tiles(90, DType.F16, 1)} == {2}
    assert min(t.stages for t in tiles(90, DType.F16, 2)) > 2
    assert {t.inst_k for t in tiles(75, DType.F16, 8)} == {8}


def test_fp32_is_computed_by_three_tf32_products():
    w = GemmWorkload(256, 132, 100, dtype=DType.F32, epilogue=Epilogue(BIAS_RELU.ops, DType.F32))
    family = families()["sm80_gemm"]
    kernels = [k for k in family.kernels(w, A100) if family.illegal(k, w, A100) is None]
    assert kernels and all("OpMultiplyAddFastF32" in family.source(k) for k in kernels)
    assert all(t.accumulators <= 64 for t in tiles(80, DType.F32, 4))
    assert "sm80" in (family.refuses(w, KNOWN_GPUS["t4"]) or "")
    one = replace(w, dtype=DType.TF32)
    cost = [best(v)[1] for v in (w, one)]
    assert cost[0] > cost[1]


def test_tiles_are_whole_warps_and_instructions():
    for sm, dtype in ((75, DType.F16), (80, DType.F16), (80, DType.TF32)):
        for tile in tiles(sm, dtype, 8):
            warp_m, warp_n, warp_k = tile.warp
            assert warp_m % 16 == 0 and warp_n % 8 == 0 and warp_k % tile.inst_k == 0
            assert (warp_m * tile.warps_m, warp_n * tile.warps_n) == (tile.m, tile.n)
            assert tile.threads <= 512 and 1 <= occupancy(tile, dtype.itemsize, A100) <= 16


def test_big_gemm_is_estimated_at_the_measured_share_of_hopper():
    """4096^3 with wgmma took 199.5 us on the H200; sm80-class kernels reach 60-70 % of that rate."""
    _, us = best(GemmWorkload(4096, 4096, 4096, epilogue=BIAS_RELU))
    assert 199.5 / 0.70 < us < 199.5 / 0.60


def test_small_gemms_are_estimated_near_the_measured_best_of_all_kernels():
    """Measured on the H200 (best of CUTLASS or cuBLASLt): the estimate ranks, so a factor of two is enough."""
    for (m, n, k), measured in {(1280, 768, 768): 5.89, (1280, 3072, 768): 12.86, (32, 1000, 2048): 6.14}.items():
        _, us = best(GemmWorkload(m, n, k, epilogue=BIAS_RELU))
        assert 0.8 * measured < us < 2 * measured


@pytest.mark.parametrize(
    ("shape", "chain", "measured"),
    [
        ((100352, 256, 64), "bias+add+relu", 54.4), ((100352, 256, 64), "bias+relu", 30.5),
        ((25088, 512, 128), "bias+add+relu", 32.2), ((100352, 64, 256), "bias+relu", 20.8),
    ],
)  # fmt: skip
def test_epilogues_that_move_most_bytes_are_priced(shape, chain, measured):
    """Fastest of the sm80_gemm kernels in the shipped records of the H200."""
    _, us = best(GemmWorkload(*shape, epilogue=parse_epilogue(chain)))
    assert 0.8 * measured < us < 1.2 * measured


def test_ranking_prefers_big_tiles_for_big_problems_and_many_blocks_for_small_ones():
    big, _ = best(GemmWorkload(4096, 4096, 4096))
    small, _ = best(GemmWorkload(32, 1000, 2048))
    assert big.kernel.int("tb_m") * big.kernel.int("tb_n") >= 128 * 128
    assert small.kernel.int("tb_m") * small.kernel.int("tb_n") <= 64 * 64


def test_a_wasteful_tile_ranks_below_one_that_fits():
    workload, of = GemmWorkload(8192, 64, 1024), families()["sm80_gemm"]
    scores = {k.stem: of.score(Candidate(k), workload, H200).us for k in legal(workload)}
    assert scores["128x64x64_2x2_s3_i16"] < scores["128x128x64_2x2_s3_i16"]


def test_unaligned_operands_cost_more():
    aligned, odd = best(GemmWorkload(2048, 2048, 2048))[1], best(GemmWorkload(2048, 2048, 2047))[1]
    assert odd > 1.5 * aligned


def test_stem_layers_get_the_iterators_made_for_them():
    four = best(ConvWorkload(32, 224, 224, 4, 64, 7, 7, (3, 3, 3, 3), (2, 2), epilogue=BIAS_RELU))[0]
    three = best(ConvWorkload(32, 224, 224, 3, 64, 7, 7, (3, 3, 3, 3), (2, 2), epilogue=BIAS_RELU))[0]
    wide = best(ConvWorkload(32, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1), epilogue=BIAS_RELU))[0]
    assert (four.kernel["iterator"], three.kernel["iterator"], wide.kernel["iterator"]) == ("fixed", "few", "optimized")


def test_filters_beyond_the_mask_bits_use_the_analytic_iterators():
    found = legal(ConvWorkload(1, 64, 64, 64, 64, 33, 1, (16, 0, 16, 0)))
    assert {k["iterator"] for k in found} == {"analytic"}


def test_asymmetric_padding_and_dilation_are_served_groups_are_not():
    conv = ConvWorkload(1, 28, 28, 64, 64, 3, 3, (0, 1, 2, 3), (2, 1), (1, 2))
    assert legal(conv)
    assert "groups" in (families()["sm80_conv"].refuses(replace(conv, groups=2), H200) or "")


def test_depthwise_kernels_serve_depthwise_layers_only():
    direct = families()["direct_conv"]
    depthwise = ConvWorkload(8, 28, 28, 64, 64, 3, 3, (1, 1, 1, 1), groups=64)
    assert best(depthwise)[0].kernel["method"] == "depthwise"
    kernel = next(k for k in legal(depthwise) if k["method"] == "depthwise")
    assert direct.illegal(kernel, replace(depthwise, groups=32), H200)
    assert direct.illegal(kernel, replace(depthwise, stride=(2, 2)), H200)


def test_direct_convolution_ranks_below_tensor_cores():
    conv = ConvWorkload(32, 28, 28, 128, 128, 3, 3, (1, 1, 1, 1), epilogue=BIAS_RELU)
    direct = families()["direct_conv"]
    slow = min(direct.score(Candidate(k), conv, H200).us for k in legal(conv, H200, direct))
    assert slow > 3 * best(conv)[1]


def test_other_types_are_refused_with_a_reason():
    gemm = families()["sm80_gemm"]
    assert "i8" in (gemm.refuses(GemmWorkload(64, 64, 64, dtype=DType.I8), H200) or "")
    assert "f16" in (gemm.refuses(GemmWorkload(64, 64, 64, accumulator=DType.F16), H200) or "")
    assert "sm70" in (gemm.refuses(GemmWorkload(64, 64, 64), replace(T4, sm=70)) or "")
    assert gemm.refuses(ConvWorkload(1, 8, 8, 8, 8, 1, 1), H200) == "not a GEMM"


def test_grouped_pointwise_convolution_is_a_batched_gemm():
    group, direct = families()["sm80_group"], families()["direct_conv"]
    conv = ConvWorkload(32, 28, 28, 512, 512, 1, 1, groups=4, epilogue=BIAS_RELU)
    found = legal(conv, H200, group)
    assert {k.alignment[:2] for k in found} == {(8, 8)} and not any(k.int("split") for k in found)
    fast = min(group.score(Candidate(k), conv, H200).us for k in found)
    assert fast < min(direct.score(Candidate(k), conv, H200).us for k in legal(conv, H200, direct))
    for other in (replace(conv, groups=1), replace(conv, stride=(2, 2)), replace(conv, pad=PAD), replace(conv, r=3)):
        assert group.refuses(other, H200)


def test_split_k_is_for_few_tiles_and_long_k():
    gemm = families()["sm80_gemm"]
    small, big = GemmWorkload(49, 512, 4608), GemmWorkload(4096, 4096, 4096)
    assert best(small)[0].launch.splits > 1
    assert not any(k.int("split") for k in legal(big) if k.int("tb_m") <= 128)
    for workload in (small, GemmWorkload(1, 64, 256), GemmWorkload(33, 1000, 2050)):
        for kernel in legal(workload):
            splits = [launch.splits for launch in gemm.launches(kernel, workload, H200)]
            steps = -(-workload.k // kernel.int("tb_k"))
            assert splits and (min(splits) > 1) == bool(kernel.int("split"))
            assert max(splits) == 1 or max(splits) <= steps // 2


def test_stores_are_as_wide_as_the_warps_of_a_narrow_block_allow():
    """32x64 by four warps leaves each warp two rows of eight 16-byte accesses: half a warp (RowArrangement)."""
    wide = {k.stem: k.alignment[2] for k in legal(GemmWorkload(64, 64, 256)) if not k.int("split")}
    assert wide["64x64x64_2x2_s5_i16"] == 8
    assert wide["32x64x64_1x2x2_s5_i16"] == 4
    assert wide["32x32x64_1x1x2_s6_i16"] == 4


@pytest.mark.parametrize(
    "workload",
    [
        GemmWorkload(64, 64, 256),
        ConvWorkload(1, 8, 8, 256, 64, 1, 1),
        ConvWorkload(1, 8, 8, 128, 128, 1, 1, groups=2),
    ],
    ids=lambda w: w.key,
)
def test_wider_stores_than_that_are_illegal(workload):
    """Such kernels can still come from a record or a file; nvcc stops at "Iteration Count Row must be > 0"."""
    of = families()["sm80_group"] if isinstance(workload, ConvWorkload) and workload.groups > 1 else family(workload)
    refused = set()
    for kernel in legal(workload, of=of):
        widest = replace(kernel, alignment=(*kernel.alignment[:2], 8))
        if why := of.illegal(widest, workload, H200):
            assert "stores of 8 elements" in why
            refused.add(kernel.stem.partition("_i16")[0])
    assert refused == {"32x64x64_1x2x2_s5", "64x32x64_2x1x2_s5", "32x32x64_1x1x2_s6"}


def test_big_tiles_with_narrow_accesses_are_left_out_because_they_spill():
    """ptxas: 256x64x32 at alignment 2 spills a kilobyte a thread, 128x128x32 at alignment 1 132 bytes."""
    for workload in (GemmWorkload(4096, 4096, 4095), GemmWorkload(4096, 4096, 4094)):
        assert (
            max(k.int("tb_m") * k.int("tb_n") // k.int("warps_m") // k.int("warps_n") for k in legal(workload)) < 4096
        )
    assert any(k.stem.startswith("128x128x32_2x2") for k in legal(GemmWorkload(4096, 4096, 4092)))


def test_convolution_tiles_that_spill_are_left_out():
    """Found with ptxas: 256x64x64 by four warps, fixed-channel iterators of 4 channels at 128 accumulators a thread."""
    wide = {k.stem.partition("_")[0] for k in legal(ConvWorkload(32, 56, 56, 64, 64, 3, 3, PAD))}
    assert "256x64x64" not in wide and {"256x64x32", "128x128x64"} <= wide
    stems = legal(ConvWorkload(32, 224, 224, 4, 128, 7, 7, (3, 3, 3, 3), (2, 2)))
    fixed = [k for k in stems if k["iterator"] == "fixed"]
    assert fixed and not any(k.stem.startswith("128x128x32_2x2") for k in fixed)
    assert {k.int("tb_k") for k in stems if k["iterator"] == "few"} == {32}
    # 76 bytes: 64 accumulators a thread beside 24 accesses of 8 bytes, each with its n, p and q.
    assert not any(k.stem.startswith(("128x64x64_2x2", "64x128x64_2x2")) for k in fixed)
    assert any(k.stem.startswith("64x64x64_2x1x2") for k in fixed)
