"""Suites of single workloads: each is tuned, and its winner set against the vendor in interleaved finals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.bench.suites import odd
from core.bench.table import Form, Row, result
from core.measure.measurement import Measurement, Phase
from core.tuner.events import Listener, WorkloadFinished
from core.tuner.local import local_job
from core.tuner.options import Options
from templates.workload import Workload


def measure(
    name: str,
    workloads: Mapping[str, Workload],
    listener: Listener,
    options: Options | None = None,
    gpu: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Tune every workload on this machine's GPU. Returns the suite's result. Raises what `local_job` raises."""
    with local_job(list(workloads.values()), options, gpu, cache=cache) as job:
        finished = job.run(listener)
        device = job.identity.gpu.name
    mixed = len({odd(w) for w in workloads.values()}) > 1
    rows = [row(n, finished.get(w.key), group=_group(w) if mixed else "") for n, w in workloads.items()]
    return result(name, device, rows)


def _group(workload: Workload) -> str:
    return "odd" if odd(workload) else "aligned"


def row(label: str, finished: WorkloadFinished | None, forms: Mapping[str, Form] | None = None, group: str = "") -> Row:
    """What became of a workload. `forms` and `group`: see core.bench.table.Row."""
    best = finished.best if finished else None
    vendor = finished.vendor if finished else None
    return Row(
        name=label,
        ours_us=best.us if best else None,
        peer=f"{vendor.source} {vendor.detail}" if vendor else "not compared",
        peer_us=vendor.us if vendor else None,
        relative_l2=best.relative_l2 if best else None,
        detail=best.candidate if best else "no candidate passed",
        forms=dict(forms or {}),
        group=group,
    )


def fastest(measurements: Sequence[Measurement]) -> Measurement | None:
    """Of the finals if there are any: screening is rougher."""
    finals = [m for m in measurements if m.phase is Phase.FINAL]
    return min(finals or measurements, key=lambda m: m.us, default=None)
