"""The records in one line for each workload and GPU: what a browser lists."""

from collections import Counter
from dataclasses import dataclass

from core.measure.measurement import Failure, Measurement, Phase
from core.records.store import Records


@dataclass(frozen=True)
class Line:
    """`best_us` and `vendor_us` are of the newest finals, None where there are none."""

    workload: str
    gpu: str
    shipped: bool
    best_us: float | None
    candidate: str
    vendor_us: float | None
    screened: int
    finals: int
    failed: int
    versions: str  # driver, nvcc and CUTLASS
    taken: str


def summary(records: Records) -> list[Line]:
    """Every workload of every GPU that has records, the user's own and the shipped apart. Raises RecordError."""
    counts: dict[tuple[str, str, bool], Counter[str]] = {}
    newest: dict[tuple[str, str, bool], tuple[str, str]] = {}
    for record in records.all():
        key = (record.outcome.workload, record.identity.gpu.name, record.shipped)
        kind = "failed" if isinstance(record.outcome, Failure) else str(record.outcome.phase)
        counts.setdefault(key, Counter())[kind] += 1
        versions = (
            f"driver {record.identity.gpu.driver}, nvcc {record.identity.nvcc}, CUTLASS {record.identity.cutlass}"
        )
        newest[key] = (record.taken, versions)
    lines = []
    for (workload, gpu, shipped), count in sorted(counts.items()):
        best, vendor = records.best(workload, gpu), records.best(workload, gpu, vendor=True)
        taken, versions = newest[workload, gpu, shipped]
        ours = best.outcome if best is not None and isinstance(best.outcome, Measurement) else None
        peer = vendor.outcome if vendor is not None and isinstance(vendor.outcome, Measurement) else None
        lines.append(
            Line(
                workload, gpu, shipped, ours.us if ours else None, ours.candidate if ours else "",
                peer.us if peer else None, count[Phase.SCREEN], count[Phase.FINAL], count["failed"], versions, taken,
            )
        )  # fmt: skip
    return lines
