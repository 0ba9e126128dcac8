"""The suite `padding` (paper, table 3): operands filled up to whole vectors, the copies included, against the best
kernel that reads them as they lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.bench.shapes import fastest
from core.bench.table import Form, Row, result
from core.measure.measurement import Measurement
from core.tuner.events import CandidateMeasured, Event, Listener
from core.tuner.local import local_job
from core.tuner.options import Options
from templates.workload import Workload

FAMILY = "sm90_padded"
PADDED, UNPADDED = "padded", "as they lie"


def measure(
    name: str,
    workloads: Mapping[str, Workload],
    listener: Listener,
    options: Options | None = None,
    gpu: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Tune every workload; ours is the best padded kernel, the peer the best unpadded one of the same run.

    Raises what `local_job` raises.
    """
    heard: dict[str, list[Measurement]] = {}

    def hear(event: Event) -> None:
        if isinstance(event, CandidateMeasured):
            heard.setdefault(event.measurement.workload, []).append(event.measurement)
        listener(event)

    # Records of one form say nothing of the other: all are measured now.
    anew = replace(options or Options(), retune=True)
    with local_job(list(workloads.values()), anew, gpu, cache=cache) as job:
        job.run(hear)
        device = job.identity.gpu.name
    return result(name, device, [row(label, heard.get(w.key, ())) for label, w in workloads.items()])


def row(label: str, measurements: Sequence[Measurement]) -> Row:
    """The two forms beside each other, the vendor's kernel where it was measured."""
    ours = [m for m in measurements if m.source == "template"]
    padded = fastest([m for m in ours if m.candidate.startswith(f"{FAMILY}_")])
    unpadded = fastest([m for m in ours if not m.candidate.startswith(f"{FAMILY}_")])
    vendor = fastest([m for m in measurements if m.source != "template"])
    forms = {
        form: Form(m.us, m.relative_l2, m.candidate or m.detail)
        for form, m in ((UNPADDED, unpadded), (PADDED, padded), ("vendor", vendor))
        if m is not None
    }
    return Row(
        name=label,
        ours_us=padded.us if padded else None,
        peer=unpadded.candidate if unpadded else "no unpadded kernel passed",
        peer_us=unpadded.us if unpadded else None,
        relative_l2=padded.relative_l2 if padded else None,
        detail=padded.candidate if padded else "no padded kernel passed",
        forms=forms,
    )
