"""Candidates are found again by their names and told in words."""

import pytest

from core.search.explain import explain, find_candidate, source_of
from core.search.rank import rank
from core.search.words import MEANINGS, geometries
from templates import families
from templates.gpu import KNOWN_GPUS
from templates.workload import parse_workload

WORKLOADS = (
    "conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu",
    "gemm 1280x768x768 f16.f32 row.col bias",
)


@pytest.mark.parametrize("key", WORKLOADS)
@pytest.mark.parametrize("gpu", ["h200", "a100"])
def test_ranked_candidates_are_found_by_name_and_explained(key: str, gpu: str) -> None:
    workload, spec = parse_workload(key), KNOWN_GPUS[gpu]
    for ranked in rank(workload, spec).candidates[:3]:
        found = find_candidate(workload, spec, ranked.candidate.name)
        assert found == ranked.candidate
        told = explain(found, workload, spec)
        assert told.us == ranked.score.us and told.why == ranked.score.why
        assert {n for n, _, _ in told.params} >= {n for n, _ in found.kernel.params}
        assert "bolt_run_" in source_of(found)


EVERY_OP = (
    *WORKLOADS,
    "conv 32x224x224x4 k64x7x7 p3.3.3.3 s2.2 d1.1 g1 f16.f32 bias+relu",
    "conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g64 f16.f32 bias+relu",
    "conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g4 f16.f32 bias+relu",
    "b2b_gemm 16384x64x256 f16.f32 row.col bias+relu then n16 bias+relu",
    "b2b_conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu then n64 bias+relu",
)


# Later families may have words of their own; what is said of these stays.
TOLD = (
    "direct_conv", "sm80_b2b", "sm80_conv", "sm80_gemm", "sm80_group", "sm90_b2b", "sm90_conv", "sm90_direct",
    "sm90_direct_b2b", "sm90_gemm", "sm90_stem",
)  # fmt: skip


@pytest.mark.parametrize("gpu", ["h200", "a100", "t4"])
def test_no_parameter_of_any_kernel_is_without_a_meaning(gpu: str) -> None:
    spec = KNOWN_GPUS[gpu]
    names = {
        (family.name, n)
        for key in EVERY_OP
        for family in (families()[name] for name in TOLD)
        if family.min_sm <= spec.sm <= family.max_sm and family.refuses(parse_workload(key), spec) is None
        for kernel in family.kernels(parse_workload(key), spec)
        for n, _ in kernel.params
    }
    silent = {pair for pair in names if pair[1] not in MEANINGS}
    assert not silent, f"core/search/words.py does not say what these parameters mean: {silent}"


def test_geometry_is_read_from_the_parameters_of_each_family() -> None:
    spec, found = KNOWN_GPUS["h200"], {}
    for key in EVERY_OP:
        found |= geometries(parse_workload(key), spec)
    gemm = found["sm90_gemm_f16f32_128x256x64_2x1_cooperative_al8x8x8_bias"]
    assert (gemm.tile, gemm.cluster, gemm.stages, gemm.schedule) == ("128x256x64", "2x1", "", "cooperative")
    old = found["sm80_gemm_f16f32_256x128x32_4x2_s3_i16_al8x8x8_bias"]
    assert (old.tile, old.cluster, old.stages) == ("256x128x32", "", "3")
    assert all(g.tile for name, g in found.items() if name.startswith(tuple(f"{f}_f16" for f in TOLD)))


def test_a_name_of_no_family_is_not_found() -> None:
    workload = parse_workload(WORKLOADS[1])
    assert find_candidate(workload, KNOWN_GPUS["h200"], "sm90_gemm_gone@pdl") is None
    assert find_candidate(workload, KNOWN_GPUS["h200"], "cublasLt 13.1.0") is None
