"""The mma.sync pair family's rules: what is known to be wrong is excluded, with its reason; nothing is compiled."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.search.rank import rank
from templates import families
from templates.emit import c_identifier
from templates.epilogue import parse_epilogue
from templates.family import candidate_from_dict, candidate_to_dict
from templates.gpu import KNOWN_GPUS, GpuSpec
from templates.sm80_b2b import space
from templates.sm80_b2b.family import instance_of
from templates.types import DType, Residence
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair

H200, A100, T4, RTX = (KNOWN_GPUS[n] for n in ("h200", "a100", "t4", "rtx4090"))
FAMILY = families()["sm80_b2b"]


def gemm(m: int, k: int, n0: int, n1: int, inner: str = "bias+relu", outer: str = "bias+relu") -> B2bGemmWorkload:
    return B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=parse_epilogue(inner)), n1, parse_epilogue(outer))


def conv(c: int, k: int, n1: int, r: int = 3, groups: int = 1) -> B2bConvWorkload:
    epilogue = parse_epilogue("bias+relu")
    return B2bConvWorkload(
        ConvWorkload(32, 56, 56, c, k, r, r, (1, 1, 1, 1), groups=groups, epilogue=epilogue), n1, epilogue
    )


@pytest.mark.parametrize(
    "pair", [gemm(32768, 576, 128, 64), gemm(777, 8, 64, 256), conv(64, 64, 64), conv(64, 64, 128)]
)
@pytest.mark.parametrize("gpu", [H200, A100, T4, RTX], ids=lambda g: g.name)
def test_pairs_within_the_tiles_have_candidates(pair: Pair, gpu: GpuSpec) -> None:
    ranking = rank(pair, gpu, {"sm80_b2b": FAMILY})
    assert ranking.candidates
    residences = {instance_of(r.kernel).residence for r in ranking.candidates}
    assert "smem" in residences
    for ranked in ranking.candidates:
        i = instance_of(ranked.kernel)
        assert c_identifier(ranked.kernel.name) and i.smem_bytes(2) <= gpu.smem_per_block
        assert i.inst_k == (8 if gpu.sm < 80 else 16) and (i.stages == 2) == (gpu.sm < 80)
        assert candidate_from_dict(candidate_to_dict(ranked.candidate)) == ranked.candidate
        assert ranked.candidate.launch.pdl == (gpu.sm >= 90)


def test_a_t4_and_an_rtx_have_less_shared_memory() -> None:
    wide = gemm(65536, 64, 64, 256)
    on = {
        g.name: {instance_of(r.kernel).stem for r in rank(wide, g, {"sm80_b2b": FAMILY}, 64).candidates}
        for g in (A100, RTX)
    }
    assert on[RTX.name] < on[A100.name]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (gemm(64, 64, 48, 64), "N0 = 48 is not a multiple of 32"),
        (gemm(64, 64, 64, 16), "N1 = 16 is not a multiple of 32"),
        (gemm(64, 64, 512, 64), "residence: a block covers N0 up to 256"),
        (gemm(64, 4, 64, 64), "K = 4 is not a multiple of 8"),
        (conv(4, 64, 64), "C = 4 is not a multiple of 8"),
        (conv(64, 64, 64, groups=2), "groups = 2"),
        (conv(64, 64, 64, r=33), "32 at most"),
        (gemm(64, 64, 64, 64, "bias+add"), "the first epilogue reads a tensor"),
        (gemm(64, 64, 64, 64, outer="bias+add"), "a bias and a source"),
        (gemm(64, 64, 64, 64, outer="bias->f32"), "writes its operands' type"),
        (ConvWorkload(1, 8, 8, 8, 8, 3, 3), "two products"),
    ],
    ids=lambda p: p if isinstance(p, str) else p.key,
)
def test_refusals_name_their_reason(pair: Pair, reason: str) -> None:
    assert reason in str(FAMILY.refuses(pair, A100))


def test_bf16_needs_sm80_and_half_accumulators_are_for_f16() -> None:
    first = GemmWorkload(64, 64, 64, dtype=DType.BF16, epilogue=parse_epilogue("relu->bf16"))
    pair = B2bGemmWorkload(first, 64, parse_epilogue("relu->bf16"))
    assert FAMILY.refuses(pair, A100) is None and "bf16 on sm75" in str(FAMILY.refuses(pair, T4))
    half = B2bGemmWorkload(GemmWorkload(64, 64, 64, accumulator=DType.F16), 64)
    assert FAMILY.refuses(half, T4) is None
    kernel = next(iter(FAMILY.kernels(half, T4)))
    assert "using Accumulator = cutlass::half_t;" in FAMILY.source(kernel)


def objection(**changes: object) -> str:
    known = {
        "residence": "rf", "m": 64, "n0": 64, "n1": 128, "k": 32, "warps_m0": 4, "warps_n0": 1, "warps_m1": 4,
        "warps_n1": 1, "stages": 3, "inst_k": 16, "conv": 0,
    }  # fmt: skip
    return str(space.tile_objection(space.Instance(**(known | changes)), 2))  # type: ignore[arg-type]


def test_tiles_that_were_seen_to_be_wrong_are_excluded() -> None:
    assert objection() == "None", "example 13's own"
    assert "no power of two" in objection(n0=32, n1=96), "64x32 -> 64x96: relative error 0.42"
    assert "do not compile" in objection(n1=16), "warp N 16"
    assert "do not compile" in objection(residence="smem", warps_m0=2, warps_n0=2, warps_m1=1, warps_n1=4, n1=64)
    assert "out of step" in objection(n0=48)
    assert "spill" in objection(n0=128, n1=256)
    wrong = gemm(16384, 64, 64, 16)
    assert FAMILY.refuses(wrong, A100), "a 64x128x32 tile on N0 = 64, N1 = 16: NaN"
    kernel = next(k for k in FAMILY.kernels(gemm(16384, 64, 128, 64), A100))
    assert "N0 and N1 must fill the tile" in str(FAMILY.illegal(kernel, gemm(16384, 64, 64, 64), A100))


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 100_000), st.integers(1, 100), st.integers(1, 8), st.integers(1, 8))
def test_what_is_legal_obeys_every_rule(m: int, k8: int, n32: int, o32: int) -> None:
    pair = gemm(m, 8 * k8, 32 * n32, 32 * o32)
    for kernel in FAMILY.kernels(pair, A100):
        if FAMILY.illegal(kernel, pair, A100) is None:
            i = instance_of(kernel)
            assert (i.n0, i.n1) == (pair.second.k, pair.n1) and i.n0 % i.k == 0 and 256 % i.n1 == 0
            assert i.first.warps == i.second.warps and i.first.warp[1] >= 32 and i.second.warp[1] >= 32
            assert i.residence == "smem" or i.first.warps_n == i.second.warps_n == 1


def test_a_chosen_residence_leaves_only_its_kernels() -> None:
    pair = gemm(4096, 64, 64, 64)
    kept = {r: list(FAMILY.kernels(replace(pair, residence=r), A100)) for r in Residence}
    assert sorted(map(str, kept[Residence.RF] + kept[Residence.SMEM])) == sorted(map(str, FAMILY.kernels(pair, A100)))
    shared = kept[Residence.SMEM][0]
    asked = replace(pair, residence=Residence.RF)
    assert FAMILY.illegal(shared, asked, A100) == "keeps the intermediate in smem, the plan asks for rf"
    hopper = families()["sm90_b2b"]
    assert "in registers" in (hopper.refuses(replace(pair, residence=Residence.SMEM), H200) or "")
    assert hopper.refuses(asked, H200) is None
