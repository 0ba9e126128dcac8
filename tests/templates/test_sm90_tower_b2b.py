"""The tower family: rules, refusals, and the compiled host code against the rules."""

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.measure.args import args_of
from core.search.rank import rank
from templates import families
from templates.emit import c_identifier, namespace_of
from templates.epilogue import parse_epilogue
from templates.family import Kernel, Launch, candidate_from_dict, candidate_to_dict
from templates.gpu import KNOWN_GPUS
from templates.sm90_tower_b2b import geometry
from templates.sm90_tower_b2b.family import instance_of
from templates.types import DType, MatrixLayout, Residence
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, TowerWorkload
from tests.templates.test_b2b_compiles import build, check

Tower = B2bGemmWorkload | TowerWorkload
H200, FAMILY = KNOWN_GPUS["h200"], families()["sm90_tower_b2b"]


def gemm(m: int, k: int, n0: int, n1: int, inner: str = "bias+relu", outer: str = "bias+relu") -> B2bGemmWorkload:
    return B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=parse_epilogue(inner)), n1, parse_epilogue(outer))


# DLRM's pairs, a wide middle, widths that registers can't hold side by side, a result of one column.
SHAPES = [
    gemm(2048, 512, 256, 64), gemm(16384, 512, 256, 1), gemm(16384, 256, 1024, 64), gemm(16384, 512, 256, 256),
    gemm(128, 784, 512, 256), gemm(16384, 512, 512, 256), gemm(1000, 40, 72, 10),
]  # fmt: skip


def three(
    m: int, k: int, n0: int, n1: int, n2: int, inner: str = "bias+relu", outer: str = "bias+relu"
) -> TowerWorkload:
    return TowerWorkload(gemm(m, k, n0, n1, inner, inner), n2, parse_epilogue(outer))


# DLRM's bottom with 13 filled up to 16, its top behind a first layer; widths that no chunk divides; two wide middles.
TRIPLES = [
    three(2048, 16, 512, 256, 64), three(16384, 16, 512, 256, 64), three(2048, 512, 512, 256, 1),
    three(777, 40, 72, 136, 10), three(128, 784, 512, 256, 64), three(5000, 64, 1024, 512, 64),
]  # fmt: skip


@pytest.mark.parametrize("pair", [*SHAPES, *TRIPLES], ids=lambda p: p.key)
def test_every_known_shape_has_candidates(pair: Tower) -> None:
    ranking = rank(pair, H200, {"sm90_tower_b2b": FAMILY})
    floor = pair.bytes / (H200.dram_gbs * 1e3)
    assert ranking.candidates and all(floor < r.score.us < 100 for r in ranking.candidates)
    assert all(c_identifier(r.kernel.name) for r in ranking.candidates)
    for ranked in ranking.candidates:
        assert candidate_from_dict(candidate_to_dict(ranked.candidate)) == ranked.candidate


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (gemm(64, 13, 64, 64), "K = 13 is not a multiple of 8"),
        (gemm(64, 64, 60, 64), "N0 = 60 is not a multiple of 8"),
        (gemm(64, 64, 1032, 64), "residence: a block covers N0 up to 1024, N0 = 1032"),
        (gemm(64, 64, 64, 1032), "residence: a block covers N1 up to 1024, N1 = 1032"),
        (replace(gemm(64, 64, 64, 64), residence=Residence.RF), "keeps the intermediate in shared memory"),
        (gemm(64, 64, 64, 64, "bias+add+relu"), "the first epilogue reads a tensor"),
        (gemm(64, 64, 64, 64, outer="bias->f32"), "writes its operands' type f16, not f32"),
        (B2bGemmWorkload(GemmWorkload(64, 64, 64, layout_b=MatrixLayout.ROW), 64), "row-major A and a column-major B"),
        (B2bGemmWorkload(GemmWorkload(64, 64, 64, accumulator=DType.F16), 64), "accumulates in f32"),
        (three(64, 64, 64, 60, 64), "N1 = 60 is not a multiple of 8"),
        (three(64, 64, 64, 64, 1032), "residence: a block covers N2 up to 1024, N2 = 1032"),
        (B2bConvWorkload(ConvWorkload(1, 8, 8, 8, 8, 3, 3), 8), "GEMMs one behind the other"),
    ],
    ids=lambda p: p if isinstance(p, str) else p.key,
)
def test_refusals_name_their_reason(pair: B2bGemmWorkload, reason: str) -> None:
    assert reason in str(FAMILY.refuses(pair, H200))
    assert "9.0" in str(FAMILY.refuses(SHAPES[0], KNOWN_GPUS["a100"]))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 200_000), st.integers(1, 300), st.integers(1, 128), st.integers(1, 1024),
    st.sampled_from(("bias+relu", "bias+silu", "bias+gelu_erf", "bias+add+relu")),
)  # fmt: skip
def test_what_is_legal_fits_the_sm(m: int, k8: int, n8: int, n1: int, outer: str) -> None:
    pair = gemm(m, 8 * k8, 8 * n8, n1, outer=outer)
    kernels = [k for k in FAMILY.kernels(pair, H200) if FAMILY.illegal(k, pair, H200) is None]
    for kernel in kernels:
        laid = geometry.lay(instance_of(kernel), pair)
        assert not isinstance(laid, str)
        assert laid.smem <= H200.smem_per_block and laid.weight_stages >= 2 and laid.input_stages >= 2
        assert max(laid.weight_stages, laid.input_stages) <= geometry.MAX_STAGES
    assert kernels, "any width up to 1024 is served"


def specialised(shape: Tower, own: Tower) -> Tower:
    """The shape with another chain's epilogues."""
    inner = replace(shape.first, epilogue=own.first.epilogue)
    if isinstance(shape, B2bGemmWorkload):
        return replace(shape, first=inner, epilogue=own.epilogue)
    middle = replace(shape.pair, first=inner, epilogue=own.parts[1].epilogue)
    return replace(shape, pair=middle, epilogue=own.epilogue)


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_towers_compile_as_the_rules_count_them(tmp_path: Path) -> None:
    made = {"128x256_g4": ("bias+relu", "bias+relu"), "64x128_g2": ("bias+gelu_erf", "bias+add+tanh")}
    wanted: list[tuple[Kernel, Tower]] = []
    for stem, (inner, outer) in made.items():
        for chain in (gemm(40000, 512, 256, 256, inner, outer), three(40000, 64, 128, 64, 256, inner, outer)):
            idents = "_".join(part.epilogue.ident for part in chain.parts[:-1])
            found = next(k for k in FAMILY.kernels(chain, H200) if k.stem == f"{stem}_{idents}")
            assert FAMILY.illegal(found, chain, H200) is None
            wanted.append((found, chain))
    facts = "".join(
        f'extern "C" BOLT_EXPORT int {what}_{i}(bolt_args const* args) {{ '
        f"bolt::tower::Plan<{namespace_of(k)}::Config> plan; return plan.make(*args) ? plan.{value} : -1; }}\n"
        for i, (k, _) in enumerate(wanted)
        for what, value in (
            ("smem", "smem"),
            ("inputs", "params.input_stages"),
            ("weights", "params.weight_stages"),
            ("elementwise", "params.elementwise"),
        )
    )
    library = build([k for k, _ in wanted], tmp_path, facts)
    served = 0
    for index, (kernel, own) in enumerate(wanted):
        shapes = (*SHAPES, gemm(100, 64, 1016, 1024), gemm(100, 13, 64, 64), gemm(9, 64, 60, 8))
        if isinstance(own, TowerWorkload):
            shapes = (*TRIPLES, three(100, 64, 1016, 1024, 64), three(9, 64, 64, 60, 8))
        for shape in (own, *shapes):
            pair = specialised(shape, own)
            laid = geometry.lay(instance_of(kernel), pair)
            args = args_of(pair, Launch(), H200.sm_count)
            told = {w: getattr(library, f"{w}_{index}")(ctypes.byref(args)) for w in ("smem", "inputs", "weights")}
            if isinstance(laid, str) or FAMILY.refuses(pair, H200):
                assert told["smem"] == -1 and check(library, kernel, pair) == -1, pair.key
                continue
            served += 1
            assert told == {"smem": laid.smem, "inputs": laid.input_stages, "weights": laid.weight_stages}
            assert bool(getattr(library, f"elementwise_{index}")(ctypes.byref(args))) == bool(pair.parts[-1].n % 8)
            assert check(library, kernel, pair) == 0
    assert served >= 20
