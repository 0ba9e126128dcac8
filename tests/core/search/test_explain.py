"""Candidates are found again by their names and told in words."""

import pytest

from core.search.explain import MEANINGS, explain, find_candidate, source_of
from core.search.rank import rank
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


def test_no_parameter_of_a_ranked_candidate_is_without_a_meaning() -> None:
    names = {
        n
        for key in WORKLOADS
        for gpu in ("h200", "a100", "t4")
        for r in rank(parse_workload(key), KNOWN_GPUS[gpu]).candidates
        for n, _ in r.kernel.params
    }
    assert names <= set(MEANINGS)


def test_a_name_of_no_family_is_not_found() -> None:
    workload = parse_workload(WORKLOADS[1])
    assert find_candidate(workload, KNOWN_GPUS["h200"], "sm90_gemm_gone@pdl") is None
    assert find_candidate(workload, KNOWN_GPUS["h200"], "cublasLt 13.1.0") is None
