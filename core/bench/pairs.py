"""Suites of chains in one kernel: beside the vendor's kernels also our own, one each, and each form of the chain."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.bench.shapes import fastest, row
from core.bench.table import Form, result
from core.measure.measurement import Measurement
from core.search.words import geometries
from core.tuner.events import CandidateMeasured, Event, Listener
from core.tuner.local import local_job
from core.tuner.options import Options
from templates.gpu import GpuSpec
from templates.workload import Chain, Workload

UNFUSED, HOPPER = "templates apart", "Hopper"
MMA_SYNC = {"rf": "sm80 RF", "smem": "sm80 smem"}  # by the residence of the family over CUTLASS's example 13
FORMS = (UNFUSED, *MMA_SYNC.values(), HOPPER)


def measure(
    name: str,
    workloads: Mapping[str, Workload],
    listener: Listener,
    options: Options | None = None,
    gpu: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Tune every chain and its parts in one job, whose finals are interleaved with the vendor's kernels.

    A form that did not reach the finals has the figure of its screening. Raises what `local_job` raises.
    """
    heard: dict[str, list[Measurement]] = {}

    def hear(event: Event) -> None:
        if isinstance(event, CandidateMeasured) and event.measurement.source == "template":
            heard.setdefault(event.measurement.workload, []).append(event.measurement)
        listener(event)

    parts = (part for w in workloads.values() if isinstance(w, Chain) for part in w.parts)
    wanted = {w.key: w for w in (*workloads.values(), *parts)}
    with local_job(list(wanted.values()), options, gpu, cache=cache) as job:
        finished = job.run(hear)
        identity = job.identity.gpu
    # A part that records cover is not measured again.
    known = {key: [f.best] for key, f in finished.items() if f.best is not None} | heard
    rows = [row(label, finished.get(w.key), forms(w, known, identity.spec)) for label, w in workloads.items()]
    return result(name, identity.name, rows)


def forms(workload: Workload, heard: Mapping[str, Sequence[Measurement]], gpu: GpuSpec) -> dict[str, Form]:
    """The fastest of each form of a chain that was measured; the unfused one is the sum of its parts' fastest kernels.

    `heard`: verified measurements of template kernels, by workload.
    """
    if not isinstance(workload, Chain):
        return {}
    found: dict[str, Form] = {}
    parts = [fastest(heard.get(part.key, ())) for part in workload.parts]
    known = [p for p in parts if p is not None]
    if len(known) == len(parts):
        names = " | ".join(p.candidate for p in known)
        found[UNFUSED] = Form(sum(p.us for p in known), max(p.relative_l2 for p in known), names)
    kinds = {name: MMA_SYNC.get(g.schedule, HOPPER) for name, g in geometries(workload, gpu).items()}
    for form in FORMS[1:]:
        own = [m for m in heard.get(workload.key, ()) if kinds.get(m.candidate.partition("@")[0]) == form]
        best = fastest(own)
        if best is not None:
            found[form] = Form(best.us, best.relative_l2, best.candidate)
    return found
