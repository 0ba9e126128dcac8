"""The records in one line for each workload and GPU: what a browser lists."""

from collections import Counter
from dataclasses import dataclass

from core.measure.measurement import Failure, Measurement, Phase
from core.records.rows import Identity, Record
from core.records.store import Records
from core.records.trust import Conflict, conflicts, stale


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
    origin: str  # of the newest record: shipped, measured here, or imported from where
    stale: tuple[str, ...]  # why the newest record is not trusted
    conflict: str  # where sources disagree about a kernel of it, in words


def summary(records: Records, here: Identity | None = None) -> list[Line]:
    """Every workload of every GPU that has records, the user's own and the shipped apart. Raises RecordError.

    `here`: what would be measured under on this machine; records of other versions are stale.
    """
    found = records.all()
    disagreeing = {(c.workload, c.gpu): conflict_text(c) for c in reversed(conflicts(records, found))}
    counts: dict[tuple[str, str, bool], Counter[str]] = {}
    newest: dict[tuple[str, str, bool], tuple[str, str]] = {}
    last: dict[tuple[str, str, bool], Record] = {}
    for record in found:
        key = (record.outcome.workload, record.identity.gpu.name, record.shipped)
        kind = "failed" if isinstance(record.outcome, Failure) else str(record.outcome.phase)
        counts.setdefault(key, Counter())[kind] += 1
        versions = (
            f"driver {record.identity.gpu.driver}, nvcc {record.identity.nvcc}, CUTLASS {record.identity.cutlass}"
        )
        newest[key] = (record.taken, versions)
        if record.candidate is not None or key not in last:  # a vendor's kernel does not get old
            last[key] = record
    lines = []
    for (workload, gpu, shipped), count in sorted(counts.items()):
        best, vendor = records.best(workload, gpu), records.best(workload, gpu, vendor=True)
        taken, versions = newest[workload, gpu, shipped]
        ours = best.outcome if best is not None and isinstance(best.outcome, Measurement) else None
        peer = vendor.outcome if vendor is not None and isinstance(vendor.outcome, Measurement) else None
        newest_record = last[workload, gpu, shipped]
        lines.append(
            Line(
                workload, gpu, shipped, ours.us if ours else None, ours.candidate if ours else "",
                peer.us if peer else None, count[Phase.SCREEN], count[Phase.FINAL], count["failed"], versions, taken,
                records.origin(newest_record), stale(newest_record, records, here),
                disagreeing.get((workload, gpu), ""),
            )
        )  # fmt: skip
    return lines


def conflict_text(conflict: Conflict) -> str:
    """What each source says, the fastest first."""
    said = ", ".join(f"{c.us:.2f} us {c.origin} (driver {c.driver})" for c in conflict.claims)
    return f"{conflict.candidate}: {said}"
