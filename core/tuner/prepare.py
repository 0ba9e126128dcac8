"""What a job still has to do: which workloads the records answer, and a task for each of the others."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from core.fusion.plan import FusionPlan
from core.measure.measurement import Failure, Measurement, Stage
from core.records.rows import Identity, Record
from core.records.store import Records
from core.records.transfer import Seed, promising
from core.search.rank import DEFAULT_LIMIT, rank
from core.tuner.events import WorkloadFinished
from core.tuner.schedule import Chosen
from core.tuner.task import Task
from templates.family import Candidate, Family, Kernel
from templates.gpu import GpuSpec
from templates.workload import Workload

# Failures that another day may not see: a compiler killed for memory (the builder remembers true errors itself), a GPU
# that was full.
_PASSING = (Stage.COMPILE, Stage.LOAD, Stage.LAUNCH)


def regions_of(work: FusionPlan | Sequence[Workload]) -> list[tuple[str, Workload]]:
    """(region id, workload) of every tuned region."""
    if isinstance(work, FusionPlan):
        return [(r.id, r.workload) for r in work.regions if r.workload is not None]
    return [(f"w{i}", workload) for i, workload in enumerate(work)]


def serving_versions(workload: Workload, families: Mapping[str, Family], gpu: GpuSpec) -> dict[str, int]:
    """Versions of the families that serve the workload: when they change, it is tuned again."""
    return {n: f.version for n, f in families.items() if f.refuses(workload, gpu) is None}


def flags_of(candidate: Candidate | None, families: Mapping[str, Family], gpu: GpuSpec) -> tuple[str, ...]:
    """The compiler flags that a candidate's record keeps; none for a vendor's kernel."""
    return families[candidate.kernel.family].flags(candidate.kernel, gpu) if candidate is not None else ()


def recorded_result(
    workload: Workload,
    records: Records,
    identity: Identity,
    families: Mapping[str, Family],
    vendor: bool,
    limit: int = DEFAULT_LIMIT,
) -> WorkloadFinished | None:
    """The result of earlier finals that still holds: same identity, same families, with the vendor if wanted, and from
    a search that could try at least `limit` kernels. Records that do not tell were made with the usual limit.
    """
    done = records.finished(workload.key, identity)
    if done is None or dict(done.families) != serving_versions(workload, families, identity.gpu.spec):
        return None
    if (vendor and not done.vendor) or (done.kernels or DEFAULT_LIMIT) < limit:
        return None
    found = records.known(workload.key, identity)
    failed = sum(isinstance(r.outcome, Failure) for r in found.values())
    winner = records.best(workload.key, identity)
    if winner is None:  # its records were pruned
        return None
    best, peer = _measurement(winner), _measurement(records.peer(winner))
    return WorkloadFinished(workload.key, best, peer, len(found) - failed, failed, from_records=True)


def make_task(
    workload: Workload,
    regions: int,
    gpu: GpuSpec,
    families: Mapping[str, Family],
    limit: int,
    cheap: Container[Kernel],
    seeds: Sequence[Seed] = (),
) -> Task:
    """A task that waits for the kernels of the workload's ranking."""
    task = Task(workload, rank(workload, gpu, families, limit, cheap, seeds), regions)
    for ranked in task.ranking.candidates:
        task.await_kernel(ranked.candidate)
    return task


def make_tasks(
    workloads: Sequence[Workload],
    identity: Identity,
    families: Mapping[str, Family],
    builder: Container[Kernel],
    limit: int,
    known: Records | None,
    older: Records | None = None,
) -> list[Task]:
    """A task for each workload, heaviest first; one that stands there several times is that many regions.

    Kernels that are built, or that a heavier workload takes already, cost nothing more. `known`: the records of which
    outcomes are taken over, None to measure all anew. `older`: the records that tell which kernels did well elsewhere.
    """
    counts = Counter(w.key for w in workloads)
    cheap, tasks = Chosen(builder), []
    distinct = {w.key: w for w in workloads}
    for key, workload in sorted(distinct.items(), key=lambda kw: -kw[1].flops * counts[kw[0]]):
        seeds = promising(older, workload, identity.gpu.name) if older is not None else ()
        task = make_task(workload, counts[key], identity.gpu.spec, families, limit, cheap, seeds)
        cheap.take(task.waiting)
        if known is not None:
            recall(task, known, identity, builder)
        tasks.append(task)
    return tasks


def recall(task: Task, records: Records, identity: Identity, builder: Container[Kernel]) -> None:
    """Take outcomes of an earlier run that did not finish; what failed there by its own fault is not tried again."""
    for name, record in records.known(task.key, identity).items():
        candidate = record.candidate
        if candidate is None or (isinstance(record.outcome, Failure) and record.outcome.stage in _PASSING):
            continue
        if name not in task.candidates:
            if isinstance(record.outcome, Failure) or not (
                candidate.kernel in task.waiting or candidate.kernel in builder
            ):
                continue
            task.await_kernel(candidate)
        task.keep(record.outcome)
    for kernel, waiting in list(task.waiting.items()):
        if all(c.name in task.failed for c in waiting):
            del task.waiting[kernel]


def _measurement(record: Record | None) -> Measurement | None:
    return record.outcome if record is not None and isinstance(record.outcome, Measurement) else None
