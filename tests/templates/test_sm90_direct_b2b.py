"""The direct pair family: rules, refusals, and the compiled host code against the rules."""

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
from templates.sm90_common import RESERVED_PER_BLOCK, SMEM_PER_SM
from templates.sm90_direct.geometry import PATCH, ROWS
from templates.sm90_direct_b2b import geometry
from templates.sm90_direct_b2b.family import instance_of
from templates.types import DType, Residence
from templates.workload import B2bConvWorkload, ConvWorkload, GemmWorkload
from tests.templates.test_b2b_compiles import build, check

H200, FAMILY = KNOWN_GPUS["h200"], families()["sm90_direct_b2b"]


def conv(
    hw: int, c: int, n0: int, n1: int, inner: str = "bias+relu", outer: str = "bias+relu", r: int = 3, dilation: int = 1
) -> B2bConvWorkload:
    pad = (r - 1) * dilation // 2
    first = ConvWorkload(
        32, hw, hw, c, n0, r, r, (pad,) * 4, dilation=(dilation, dilation), epilogue=parse_epilogue(inner)
    )
    return B2bConvWorkload(first, n1, parse_epilogue(outer))


# RepVGG-A0-Aug's blocks, the paper's pairs without a stride, a bottleneck's end, a dilated filter.
SHAPES = [
    conv(56, 48, 48, 48), conv(28, 96, 96, 96), conv(14, 192, 192, 192), conv(56, 64, 64, 64), conv(56, 64, 64, 256),
    conv(28, 64, 64, 64, dilation=2), conv(28, 256, 256, 256),
]  # fmt: skip


@pytest.mark.parametrize("pair", SHAPES, ids=lambda p: p.key)
def test_every_known_shape_has_candidates(pair: B2bConvWorkload) -> None:
    ranking = rank(pair, H200, {"sm90_direct_b2b": FAMILY})
    assert len(ranking.candidates) >= 2
    floor = pair.bytes / (H200.dram_gbs * 1e3)
    assert all(floor < r.score.us < 100 for r in ranking.candidates if pair.first.k < 256)
    assert all(c_identifier(r.kernel.name) for r in ranking.candidates)
    for ranked in ranking.candidates:
        assert candidate_from_dict(candidate_to_dict(ranked.candidate)) == ranked.candidate


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (conv(56, 60, 64, 64), "C = 60 is not a multiple of 8"),
        (conv(56, 64, 60, 64), "K = 60 is not a multiple of 8"),
        (conv(56, 64, 64, 60), "N1 = 60 is not a multiple of 8"),
        (conv(14, 64, 264, 64), "residence: a block covers N0 up to 256, N0 = 264"),
        (replace(conv(56, 64, 64, 64), residence=Residence.RF), "keeps the intermediate in shared memory"),
        (conv(56, 64, 64, 64, "bias+add+relu"), "the first epilogue reads a tensor"),
        (conv(56, 64, 64, 64, outer="bias->f32"), "writes its operands' type f16, not f32"),
        (replace(conv(56, 64, 64, 64), first=replace(conv(56, 64, 64, 64).first, stride=(2, 2))), "stride 2x2"),
        (replace(conv(56, 64, 64, 64), first=replace(conv(56, 64, 64, 64).first, groups=2)), "2 groups"),
        (replace(conv(56, 64, 64, 64), first=replace(conv(56, 64, 64, 64).first, accumulator=DType.F16)), "f16"),
        (GemmWorkload(64, 64, 64), "a convolution and the 1x1 convolution behind it"),
    ],
    ids=lambda p: p if isinstance(p, str) else p.key,
)
def test_refusals_name_their_reason(pair: B2bConvWorkload, reason: str) -> None:
    assert reason in str(FAMILY.refuses(pair, H200))
    assert "9.0" in str(FAMILY.refuses(SHAPES[0], KNOWN_GPUS["a100"]))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(3, 300), st.integers(1, 40), st.integers(1, 32), st.integers(1, 64), st.sampled_from((1, 3, 5)),
    st.sampled_from((1, 2, 3)), st.sampled_from(("bias+relu", "bias+silu", "bias+gelu_erf", "bias+add+relu")),
)  # fmt: skip
def test_what_is_legal_fits_the_sm(hw: int, c8: int, n8: int, o8: int, r: int, dilation: int, outer: str) -> None:
    pair = conv(hw, 8 * c8, 8 * n8, 8 * o8, outer=outer, r=r, dilation=dilation)
    kernels = [k for k in FAMILY.kernels(pair, H200) if FAMILY.illegal(k, pair, H200) is None]
    for kernel in kernels:
        i = instance_of(kernel)
        assert i.groups <= 4 and 64 * i.channel_groups >= pair.first.k > 64 * (i.channel_groups - 1)
        assert i.blocks_per_sm == 1 or i.groups == 1
        assert not (i.reuse and (i.passes(pair.n1) > 1 or pair.epilogue.has_source))
        launches = FAMILY.launches(kernel, pair, H200)
        assert launches
        for launch in launches:
            laid = geometry.lay(i, pair, launch.variant)
            assert not isinstance(laid, str)
            assert laid.smem * i.blocks_per_sm <= SMEM_PER_SM - RESERVED_PER_BLOCK * i.blocks_per_sm
            assert laid.pixel_stages >= (2 if laid.chunks > 1 else 1) and laid.weight_stages >= 2
            # The barriers share one kilobyte: full and empty of every stage, one a group for the source.
            assert 2 * (i.pixel_groups * laid.pixel_stages + laid.weight_stages) + i.groups <= 128
    if 8 * n8 <= 128 and r <= 3 and dilation == 1:
        assert kernels, "narrow pairs are served"


def _wanted() -> list[tuple[Kernel, B2bConvWorkload]]:
    stems = {
        "64_3x1_streamed": conv(14, 192, 192, 192), "112_1x2_resident_u": conv(56, 64, 64, 64, "bias+silu"),
        "64_1x4_resident": conv(56, 64, 64, 256), "128_2x1_streamed": conv(28, 96, 96, 96, outer="bias+add+gelu_erf"),
    }  # fmt: skip
    made = []
    for stem, pair in stems.items():
        kernel = next(k for k in FAMILY.kernels(pair, H200) if k.stem == f"{stem}_{pair.first.epilogue.ident}")
        assert FAMILY.illegal(kernel, pair, H200) is None
        made.append((kernel, pair))
    return made


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_pairs_compile_as_the_rules_count_them(tmp_path: Path) -> None:
    wanted = _wanted()
    facts = "".join(
        f'extern "C" BOLT_EXPORT int {what}_{i}(bolt_args const* args) {{ '
        f"bolt::direct::PairPlan<{namespace_of(k)}::Config> plan; return plan.make(*args) ? {value} : -1; }}\n"
        for i, (k, _) in enumerate(wanted)
        for what, value in (
            ("smem", "plan.smem"),
            ("pixels", "plan.first.params.pixel_stages"),
            ("weights", "plan.first.params.weight_stages"),
            ("blocks", "plan.first.params.blocks"),
        )
    )
    library = build([k for k, _ in wanted], tmp_path, facts)
    served = 0
    for index, (kernel, own) in enumerate(wanted):
        i = instance_of(kernel)
        for shape in (own, *SHAPES):
            pair = replace(shape, epilogue=own.epilogue, first=replace(shape.first, epilogue=own.first.epilogue))
            for launch in (Launch(variant=PATCH), Launch(variant=ROWS, pdl=True)):
                laid = geometry.lay(i, pair, launch.variant)
                args = args_of(pair, launch, H200.sm_count)
                told = {w: getattr(library, f"{w}_{index}")(ctypes.byref(args)) for w in ("smem", "pixels", "weights")}
                if isinstance(laid, str):
                    assert told["smem"] == -1, (kernel.stem, pair.key, laid)
                    assert check(library, kernel, pair, launch) == -1
                    continue
                served += 1
                assert told == {"smem": laid.smem, "pixels": laid.pixel_stages, "weights": laid.weight_stages}
                assert getattr(library, f"blocks_{index}")(ctypes.byref(args)) == laid.blocks.count
                assert check(library, kernel, pair, launch) == 0
    assert served > 12
