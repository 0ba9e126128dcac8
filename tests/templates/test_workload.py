"""Identities of pairs: the key holds everything and nothing else, the parts are the unfused workloads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates.epilogue import ACTIVATIONS, Epilogue, EpilogueOp, parse_epilogue
from templates.types import DType, MatrixLayout, Residence
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    ConvWorkload,
    GemmWorkload,
    Pair,
    TowerWorkload,
    parse_workload,
)

extent = st.integers(1, 4096)
residence = st.sampled_from([None, *Residence])
step = st.sampled_from([EpilogueOp(a, (0.5, 2.0)[:n]) for a, n in ACTIVATIONS.items()] + [EpilogueOp("bias")])


@st.composite
def epilogues(draw: st.DrawFn, output: DType) -> Epilogue:
    return Epilogue(tuple(draw(st.lists(step, max_size=3, unique_by=lambda s: s.op))), output)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    dtype = draw(st.sampled_from([DType.F16, DType.BF16, DType.TF32]))
    stored = DType.F32 if dtype == DType.TF32 else dtype
    inner, outer = draw(epilogues(stored)), draw(epilogues(draw(st.sampled_from([stored, DType.F32]))))
    if draw(st.booleans()):
        layout = draw(st.sampled_from(list(MatrixLayout)))
        gemm = GemmWorkload(draw(extent), draw(extent), draw(extent), 1, dtype, layout_b=layout, epilogue=inner)
        return B2bGemmWorkload(gemm, draw(extent), outer, draw(residence))
    conv = ConvWorkload(
        draw(extent), 30, 31, draw(extent), draw(extent), 3, 5, (1, 0, 2, 1), (2, 1), dtype=dtype, epilogue=inner
    )
    return B2bConvWorkload(conv, draw(extent), outer, draw(residence))


@given(pairs())
def test_the_key_is_read_back(pair: Pair) -> None:
    assert parse_workload(pair.key) == pair
    assert pair.key.split(" ")[0] == pair.op
    assert pair.key not in {part.key for part in pair.parts}


@st.composite
def towers(draw: st.DrawFn) -> TowerWorkload:
    dtype = draw(st.sampled_from([DType.F16, DType.BF16]))
    first = GemmWorkload(draw(extent), draw(extent), draw(extent), 1, dtype, epilogue=draw(epilogues(dtype)))
    last = replace(draw(epilogues(dtype)), ops=draw(st.sampled_from([(), (EpilogueOp("bias"), EpilogueOp("add"))])))
    return TowerWorkload(B2bGemmWorkload(first, draw(extent), draw(epilogues(dtype))), draw(extent), last)


@given(towers())
def test_a_chain_of_three_is_read_back_and_counts_neither_intermediate(tower: TowerWorkload) -> None:
    assert parse_workload(tower.key) == tower and tower.key.split(" ")[0] == tower.op
    first, second, third = tower.parts
    assert (second.k, third.k) == (first.n, second.n) and tower.flops == sum(p.flops for p in tower.parts)
    between = (second.m * second.k + third.m * third.k) * tower.dtype.itemsize
    assert tower.bytes == first.bytes + second.bytes + third.bytes - 2 * between
    assert third.epilogue == tower.epilogue and all(parse_workload(p.key) == p for p in tower.parts)


def test_a_chain_of_three_reads_no_source_in_between_and_has_no_choice_of_residence() -> None:
    first = GemmWorkload(64, 32, 16)
    with pytest.raises(ValueError, match="only the last epilogue"):
        TowerWorkload(B2bGemmWorkload(first, 32, parse_epilogue("add")), 8)
    with pytest.raises(ValueError, match="no choice of where"):
        TowerWorkload(B2bGemmWorkload(first, 32, residence=Residence.SMEM), 8)
    with pytest.raises(ValueError, match="the intermediate of a pair is f16"):
        TowerWorkload(B2bGemmWorkload(first, 32, parse_epilogue("bias->f32")), 8)


@given(pairs())
def test_parts_add_up_and_the_intermediate_is_not_counted(pair: Pair) -> None:
    first, second = pair.parts
    assert pair.flops == first.flops + second.flops
    intermediate = second.m * second.k * pair.dtype.itemsize
    assert pair.bytes == first.bytes + second.bytes - 2 * intermediate
    assert second.n == pair.n1 and second.epilogue == pair.epilogue
    assert parse_workload(first.key) == first and parse_workload(second.key) == second


def test_keys_as_a_person_reads_them() -> None:
    bias_relu = parse_epilogue("bias+relu")
    gemm = B2bGemmWorkload(GemmWorkload(16384, 64, 256, epilogue=bias_relu), 16, bias_relu)
    assert gemm.key == "b2b_gemm 16384x64x256 f16.f32 row.col bias+relu then n16 bias+relu"
    conv = ConvWorkload(32, 56, 56, 64, 48, 3, 3, (1, 1, 1, 1), (2, 2), epilogue=bias_relu)
    assert replace(gemm, residence=Residence.SMEM).key == f"{gemm.key} smem"
    pair = B2bConvWorkload(conv, 96)
    assert pair.key == "b2b_conv 32x56x56x64 k48x3x3 p1.1.1.1 s2.2 d1.1 g1 f16.f32 bias+relu then n96 identity"
    assert pair.second.key == "gemm 25088x96x48 f16.f32 row.col identity"


@pytest.mark.parametrize(
    "key",
    [
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu",
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu then n16",
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu then nx bias",
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu then n16 bias l2",
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu then n16 bias rf smem",
        "b2b_gemm 16x64x32 f16.f32 row.col bias+relu->f32 then n16 bias",
        "b2b_gemm 16x64x32 b2 f16.f32 row.col bias+relu then n16 bias",
        "b2b_b2b_gemm 16x64x32 f16.f32 row.col bias then n16 bias",
        "gemm 16x64x32 f16.f32 row.col bias+relu then n16 bias",
    ],
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not a workload key"):
        parse_workload(key)


def test_an_intermediate_of_another_type_is_no_pair() -> None:
    gemm = GemmWorkload(16, 64, 32, epilogue=parse_epilogue("relu->f32"))
    with pytest.raises(ValueError, match="the intermediate of a pair is f16"):
        B2bGemmWorkload(gemm, 8)
    with pytest.raises(ValueError, match="batch of one"):
        B2bGemmWorkload(replace(gemm, batch=2, epilogue=Epilogue()), 8)
