"""Recorded figures go before estimates, and each says which it is."""

from pathlib import Path

from core.figures import plan_figures
from core.records.store import Records
from core.session import open_model


def test_shipped_records_are_measured_and_the_rest_estimated(tmp_path: Path) -> None:
    plan = open_model("resnet18", 32).plan
    records = Records(tmp_path / "r.sqlite")
    try:
        h200, a100 = plan_figures(plan, "h200", records), plan_figures(plan, "a100", records)
    finally:
        records.close()
    assert set(h200) == set(plan.workloads)
    assert all(measured for _, measured in h200.values())
    assert a100 and not any(measured for _, measured in a100.values())
    assert all(us > 0 for us, _ in (*h200.values(), *a100.values()))
