"""What a fusion gains: one kernel against its best unfused parts. Figures of different runs are never compared.

Persistent fusion: a pair against the fastest kernels of its two parts, ours or the vendor's (paper section 3.1.1).
Epilogue fusion: a kernel against the same product measured with fewer steps in its epilogue (paper section 3.1). The
steps that are left out would still be to do, as kernels that nobody times, so what is saved is at least the difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from core.fusion.parallel import parts_of
from core.fusion.plan import FusionPlan, Region
from core.fusion.propose import propose
from core.graph.ir import Graph
from core.measure.measurement import Measurement
from core.records.store import Records
from templates.epilogue import Epilogue
from templates.gpu import GpuSpec
from templates.workload import Chain, ConvWorkload, GemmWorkload, Workload, parse_workload


@dataclass(frozen=True)
class Timed:
    """The figures of a workload in one run, us: `ours`, and `best` of ours and the vendor's. Equal `run`s compare."""

    ours: float
    best: float
    run: str


Times = Callable[[str], Timed | None]  # by workload key


class Way(StrEnum):
    EPILOGUE = "epilogue"
    PERSISTENT = "persistent"
    PARALLEL = "parallel"


@dataclass(frozen=True)
class Gain:
    """`region` is a region's id, or "r3+r4" for two that could be one. Times in us.

    `parts` are (workload key, us). `left_out` names the epilogue's steps that the parts do not do, "" if they do all.
    `source` says which of the given times it rests on.
    """

    region: str
    way: Way
    made: bool
    fused_us: float
    parts: tuple[tuple[str, float], ...]
    left_out: str
    source: str

    @property
    def parts_us(self) -> float:
        return sum(us for _, us in self.parts)

    @property
    def saved_us(self) -> float:
        """Below zero where the parts are faster, or leave out what the fused kernel does."""
        return self.parts_us - self.fused_us


@dataclass(frozen=True)
class Gains:
    """What could be compared, in the plan's order, and how many fusions could not."""

    found: tuple[Gain, ...]
    unknown: int


def gains(graph: Graph, plan: FusionPlan, sources: Sequence[tuple[str, Times]], gpu: GpuSpec | None = None) -> Gains:
    """The gain of every fusion of the plan, each workload once, and of the pairs that could be made.

    Args:
        sources: times by name; the first that knows a fusion and all its parts in one run is taken.
        gpu: leaves out pairs that no family has a kernel for on it.
    """
    users = [regions[0] for regions in plan.workloads.values()]
    wanted = [(r.id, True, r.workload, _unfused(r)) for r in users if r.workload is not None]
    for p in propose(graph, plan, gpu):
        wanted.append((p.name, False, p.workload, [(tuple(map(parse_workload, p.parts)), "")]))
    found, unknown = [], 0
    for region, made, workload, ways in wanted:
        if not ways:
            continue
        gain = next((g for name, times in sources if (g := _gain(region, made, workload, ways, name, times))), None)
        if gain is not None:
            found.append(gain)
        else:
            unknown += 1
    return Gains(tuple(found), unknown)


def _unfused(region: Region) -> list[tuple[tuple[Workload, ...], str]]:
    if region.operands is not None and region.operands.columns:
        return [(parts_of(region), "")]
    return unfused(region.workload) if region.workload is not None else []


def unfused(workload: Workload) -> list[tuple[tuple[Workload, ...], str]]:
    """(parts, steps they leave out) of each way to do without the fusion, the least fused first; empty: nothing is."""
    if isinstance(workload, Chain):
        return [(workload.parts, "")]
    if not isinstance(workload, GemmWorkload | ConvWorkload):
        return []
    ops = workload.epilogue.ops
    return [
        ((replace(workload, epilogue=Epilogue(ops[:n], workload.epilogue.output)),), "+".join(map(str, ops[n:])))
        for n in range(len(ops))
    ]


def _gain(
    region: str, made: bool, workload: Workload, ways: list[tuple[tuple[Workload, ...], str]], name: str, times: Times
) -> Gain | None:
    fused = times(workload.key)
    if fused is None:
        return None
    for parts, left_out in ways:
        known = [times(part.key) for part in parts]
        timed = tuple(
            (p.key, t.best) for p, t in zip(parts, known, strict=True) if t is not None and t.run == fused.run
        )
        if len(timed) == len(parts):
            several = Way.PERSISTENT if isinstance(workload, Chain) else Way.PARALLEL
            way = several if len(parts) > 1 else Way.EPILOGUE
            return Gain(region, way, made, fused.ours, timed, left_out, name)
    return None


def recorded_times(records: Records, gpu: str) -> Times:
    """The newest finals of a workload on a GPU, by the driver's name."""

    def times(key: str) -> Timed | None:
        best = records.best(key, gpu)
        if best is None or not isinstance(best.outcome, Measurement):
            return None
        peer = records.peer(best)
        vendor = peer.outcome.us if peer is not None and isinstance(peer.outcome, Measurement) else best.outcome.us
        return Timed(best.outcome.us, min(best.outcome.us, vendor), best.run)

    return times
