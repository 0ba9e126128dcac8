"""The lines of the records' browser."""

from pathlib import Path

from core.records.store import Records
from core.records.summary import summary


def test_the_shipped_records_are_listed_with_winner_and_vendor(tmp_path: Path) -> None:
    records = Records(tmp_path / "r.sqlite")
    try:
        lines = summary(records)
        assert sum(line.screened + line.finals + line.failed for line in lines) == len(records.all())
    finally:
        records.close()
    assert len({(line.workload, line.gpu, line.shipped) for line in lines}) == len(lines)
    stem = next(line for line in lines if line.workload.startswith("conv 32x56x56x64 k64x3x3"))
    assert stem.shipped and stem.gpu == "NVIDIA H200"
    assert stem.best_us is not None and stem.vendor_us is not None and stem.finals > 0
    assert "nvcc" in stem.versions


def test_nothing_recorded_is_no_line(tmp_path: Path) -> None:
    records = Records(tmp_path / "r.sqlite", shipped=[])
    try:
        assert summary(records) == []
    finally:
        records.close()
