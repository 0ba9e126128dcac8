"""What advice is given on: a planned model, a GPU, and what the records know of both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from core.advise.advice import Estimate, History
from core.fusion.plan import FusionPlan, Region
from core.gains import Timed, Times, recorded_times
from core.graph.ir import Graph
from core.measure.measurement import Measurement
from core.records.rows import Record
from core.records.store import Records
from core.search.rank import rank
from core.session import Session
from templates.gpu import GpuSpec
from templates.workload import Workload


@dataclass(frozen=True)
class Subject:
    """`batch` is the model's first dimension. `times` and `best` are of the newest finals on `gpu`, `history` of all
    finals; `estimate` asks the rules.
    """

    graph: Graph
    plan: FusionPlan
    batch: int
    gpu: GpuSpec
    times: Times
    history: History
    best: Callable[[str], Record | None]
    estimate: Estimate | None = None

    def groups(self) -> list[tuple[Workload, list[Region]]]:
        """Each distinct workload with its regions, in the plan's order."""
        return [(r[0].workload, r) for r in self.plan.workloads.values() if r[0].workload is not None]


def subject_of(session: Session, gpu: GpuSpec, records: Records, estimating: bool = False) -> Subject:
    """The session as the records of the GPU see it. `estimating`: the ranking rules stand in for missing records (0.1
    to 0.3 s for each workload).
    """
    ask = recorded_times(records, gpu.name)

    @cache
    def times(key: str) -> Timed | None:
        return ask(key)

    @cache
    def history(key: str) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for record in sorted(records.finals(key), key=lambda r: (not r.shipped, r.taken), reverse=True):
            if record.identity.gpu.name == gpu.name and isinstance(record.outcome, Measurement):
                us = record.outcome.us
                found[record.run] = min(us, found.get(record.run, us))
        return found

    @cache
    def best(key: str) -> Record | None:
        return records.best(key, gpu.name)

    @cache
    def estimate(workload: Workload) -> float | None:
        found = rank(workload, gpu, limit=1).candidates
        return found[0].score.us if found else None

    graph = session.graph
    batch = next((graph.shape(t)[0] for t in graph.inputs if t in graph.types and graph.shape(t)), 1)
    return Subject(graph, session.plan, batch, gpu, times, history, best, estimate if estimating else None)
