"""Regret of the ranked search, from times that are given."""

import pytest

from core.bench.audit import Audit, _row, audit
from core.bench.table import result, text
from core.search.rank import rank
from templates import families
from templates.gpu import KNOWN_GPUS
from templates.workload import GemmWorkload

H200 = KNOWN_GPUS["h200"]
WORKLOAD = GemmWorkload(1280, 768, 768)


def test_the_best_of_all_is_set_against_the_best_of_those_that_are_ranked() -> None:
    ranked = [r.kernel.name for r in rank(WORKLOAD, H200).candidates]
    family = families()["sm90_gemm"]
    other = next(k.name for k in family.kernels(WORKLOAD, H200) if k.name not in ranked)
    times = {f"{ranked[0]}@pdl": 6.0, ranked[0]: 7.0, f"{ranked[3]}@pdl": 5.5, other: 5.0}
    found = audit(WORKLOAD, times, H200)
    assert found is not None and found.measured == 3 and found.legal > 500
    assert found.best == (other, 5.0) and found.ranked == (ranked[3], 5.5)
    assert found.regret == pytest.approx(0.1)
    few = audit(WORKLOAD, times, H200, limit=1)
    assert few is not None and few.regret == pytest.approx(0.2)


def test_nothing_measured_and_nothing_ranked_are_said() -> None:
    assert audit(WORKLOAD, {}, H200) is None
    assert _row("a", None).ours_us is None
    lone = audit(WORKLOAD, {"some_kernel": 5.0}, H200)
    assert lone is not None and lone.ranked is None and lone.regret is None
    assert "none of the ranked" in _row("a", lone).detail


def test_the_regret_is_printed() -> None:
    data = result("audit", "NVIDIA H200", [_row("a", Audit(WORKLOAD.key, 900, 800, ("x", 5.0), ("y", 5.5)))])
    assert "median 3.0%, worst 8.0%" in text({**data, "regret": {"median": 0.03, "worst": 0.08}})
    assert data["rows"][0]["ratio"] == pytest.approx(5.0 / 5.5)
