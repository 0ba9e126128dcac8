"""How much the ranked search gives away: the whole legal space of a workload is measured, and the best of the kernels
that the rules would have tried is set against the best of all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from core.bench.table import Row, result
from core.search.rank import DEFAULT_LIMIT, rank
from core.tuner.events import CandidateMeasured, Event, Listener
from core.tuner.local import local_job
from core.tuner.options import Options
from templates.gpu import GpuSpec
from templates.workload import Workload

EVERYTHING = 1_000_000  # more kernels than any space has


@dataclass(frozen=True)
class Audit:
    """Kernel names and microseconds. `ranked` is None where none of the kernels that the rules chose works."""

    workload: str
    legal: int
    measured: int
    best: tuple[str, float]
    ranked: tuple[str, float] | None

    @property
    def regret(self) -> float | None:
        """By how much the ranked search's best is slower than the best: 0.03 is 3 %."""
        return None if self.ranked is None else self.ranked[1] / self.best[1] - 1.0


def audit(workload: Workload, times: Mapping[str, float], gpu: GpuSpec, limit: int = DEFAULT_LIMIT) -> Audit | None:
    """The audit of what was measured; None if nothing was.

    Args:
        times: microseconds by candidate name; of a kernel the best launch counts.
        limit: kernels that the search being audited may try.
    """
    kernels: dict[str, float] = {}
    for name, us in times.items():
        kernel = name.partition("@")[0]
        kernels[kernel] = min(us, kernels.get(kernel, us))
    if not kernels:
        return None
    ranking = rank(workload, gpu, limit=limit)
    tried = {r.kernel.name for r in ranking.candidates} & kernels.keys()
    best = min(kernels, key=kernels.__getitem__)
    chosen = min(tried, key=kernels.__getitem__, default=None)
    return Audit(
        workload.key, ranking.legal, len(kernels), (best, kernels[best]),
        None if chosen is None else (chosen, kernels[chosen]),
    )  # fmt: skip


def measure(
    name: str,
    workloads: Mapping[str, Workload],
    listener: Listener,
    audited: int = DEFAULT_LIMIT,
    most: int | None = None,
    gpu: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Measure every legal kernel of each workload. Returns the suite's result: ours is the ranked search's best, the
    peer the best of all. Raises what `local_job` raises.

    Args:
        audited: kernels that the search being audited may try.
        most: measure no more than so many kernels, the most promising ones; the row says so.
    """
    times: dict[str, dict[str, float]] = {w.key: {} for w in workloads.values()}

    def hear(event: Event) -> None:
        if isinstance(event, CandidateMeasured) and event.measurement.source == "template":
            measurement = event.measurement
            held = times.setdefault(measurement.workload, {})
            held[measurement.candidate] = min(measurement.us, held.get(measurement.candidate, measurement.us))
        listener(event)

    options = Options(limit=most or EVERYTHING, vendor=False, retune=True)
    with local_job(list(workloads.values()), options, gpu, cache=cache) as job:
        job.run(hear)
        identity = job.identity.gpu
    found = {label: audit(w, times[w.key], identity.spec, audited) for label, w in workloads.items()}
    regrets = [a.regret for a in found.values() if a is not None and a.regret is not None]
    data = result(name, identity.name, [_row(label, a) for label, a in found.items()])
    data["regret"] = {"median": median(regrets), "worst": max(regrets)} if regrets else None
    return data


def _row(label: str, found: Audit | None) -> Row:
    if found is None:
        return Row(label, None, "the whole space", None, None, "no candidate passed")
    ranked = found.ranked
    return Row(
        name=label,
        ours_us=ranked[1] if ranked else None,
        peer=f"best of {found.measured} measured, {found.legal} legal: {found.best[0]}",
        peer_us=found.best[1],
        relative_l2=None,
        detail=f"ranked: {ranked[0]}" if ranked else "none of the ranked kernels passed",
    )
