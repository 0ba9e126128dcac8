"""A tuning job on a cluster, put together from its parts: one for each kind of GPU that the workers have."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.cluster.builder import ClusterBuilder
from core.cluster.connection import ClusterError, Connection, Worker
from core.cluster.measurer import ClusterMeasurer
from core.cluster.tasks import Code, Description, Parts, describe
from core.device import GpuIdentity, resolve_gpu
from core.errors import BoltError, WorkerLost
from core.fusion.plan import FusionPlan
from core.fusion.propose import Proposal
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.events import Event, Listener, Note, WorkloadFinished
from core.tuner.job import TuningJob
from core.tuner.lanes import Usage
from core.tuner.options import Options
from templates.workload import Workload

GPU_LIMIT_S = 60.0  # for the first worker with a GPU: it reports once it has started a measuring process
_LOOK_S = 0.5


class Crew:
    """The workers that may take part: those that run the same code, each told apart once.

    Raises ClusterError when no worker with a GPU is there in time.
    """

    def __init__(self, connection: Connection, parts: Parts, limit_s: float = GPU_LIMIT_S) -> None:
        self.notes: list[str] = []
        self.measurers: list[ClusterMeasurer] = []
        self._connection, self._parts = connection, parts
        self._known: dict[str, ClusterMeasurer | None] = {}  # by address; None: left out
        if not connection.wait_for(lambda workers: any(w.gpu for w in workers.values()), limit_s):
            raise ClusterError(
                f"no worker of {connection.address} has a GPU",
                "start one on a GPU's host with `python -m core.cluster worker ADDRESS`",
            )
        self.code = self._first_code()
        self.look()

    def _first_code(self) -> Code:
        """What the first worker with a GPU runs is what all must run."""
        worker = next(w for w in self._connection.workers().values() if w.gpu)
        description: Description = self._connection.call_on(worker.address, describe, self._parts, True)
        return description.code

    def look(self) -> list[ClusterMeasurer]:
        """Measurers of GPUs that have come since the last look."""
        workers = self._connection.workers()
        for address, measurer in list(self._known.items()):
            if address not in workers or (measurer is not None and measurer.lost):
                del self._known[address]  # when it comes again it is a new one
        new = []
        for address, worker in workers.items():
            if address not in self._known:
                with contextlib.suppress(WorkerLost):
                    self._known[address] = made = self._meet(worker)
                    new += [made] if made is not None else []
        self.measurers += new
        return new

    def close(self) -> None:
        """Frees the GPUs."""
        for measurer in self.measurers:
            measurer.close()

    def _meet(self, worker: Worker) -> ClusterMeasurer | None:
        """The measurer of the worker's GPU, None if it has none or is left out."""
        try:
            found: Description = self._connection.call_on(
                worker.address, describe, self._parts, worker.gpu, gpu=worker.gpu
            )
        except WorkerLost:
            raise
        except BoltError as error:
            self.notes.append(f"the worker {worker.name} is left out: {error}")
            return None
        differs = self.code.difference(found.code)
        if differs:
            self.notes.append(f"the worker {worker.name} is left out: it has {differs}")
            return None
        self._connection.approve(worker.address)
        if found.gpu is None:
            return None
        return ClusterMeasurer(self._connection, worker.address, worker.name, found.gpu, self._parts)


class KindsJob:
    """Jobs for several kinds of GPU side by side, in one: the events are the first one's, the others' end as notes.

    `others` holds their results by GPU name once they are there.
    """

    def __init__(self, jobs: Sequence[TuningJob]) -> None:
        self._jobs = list(jobs)
        self.others: dict[str, dict[str, WorkloadFinished]] = {}
        self._errors: list[BaseException] = []

    @property
    def identity(self) -> Identity:
        return self._jobs[0].identity

    @property
    def usages(self) -> tuple[Usage, ...]:
        return tuple(u for job in self._jobs for u in job.usages)

    @property
    def cancelled(self) -> bool:
        return self._jobs[0].cancelled

    def cancel(self) -> None:
        for job in self._jobs:
            job.cancel()

    def pause(self) -> None:
        for job in self._jobs:
            job.pause()

    def resume(self) -> None:
        for job in self._jobs:
            job.resume()

    def run(self, listener: Listener) -> dict[str, WorkloadFinished]:
        """Ends when all have ended. Raises what the first one raises, else what another one does."""
        threads = [threading.Thread(target=self._run_other, args=(job,)) for job in self._jobs[1:]]
        for thread in threads:
            thread.start()
        try:
            results = self._jobs[0].run(listener)
        except BaseException:
            self.cancel()
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        return results

    def _run_other(self, job: TuningJob) -> None:
        name = job.identity.gpu.name

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                self._jobs[0].note(event.level, f"{name}: {event.text}")
            elif isinstance(event, WorkloadFinished) and event.best is not None:
                self._jobs[0].note("info", f"{name}: {event.workload} {event.best.us:.2f} us by {event.best.candidate}")

        try:
            self.others[name] = job.run(listen)
        except Exception as error:  # noqa: BLE001 - raised on the caller's thread
            self._errors.append(error)


@contextmanager
def cluster_job(
    work: FusionPlan | Sequence[Workload],
    options: Options | None,
    address: str,
    gpu: str = "auto",
    cache: Path | None = None,
    proposals: Sequence[Proposal] = (),
    parts: Parts | None = None,
) -> Iterator[TuningJob | KindsJob]:
    """A job over the workers of a scheduler and the user's own records and kernel cache.

    Args:
        address: the scheduler's, "127.0.0.1:8786".
        gpu: "auto" tunes for every kind of GPU that the workers have, a name for that kind alone.
        cache, proposals: see core.tuner.local.local_job.
        parts: how workers make their builder and measurer.

    Raises:
        ClusterError, ToolchainError, RecordError: a part is missing; the line says which, and what to do.
    """
    parts = parts or Parts()
    with ExitStack() as stack:
        connection = stack.enter_context(Connection(address))
        crew = Crew(connection, parts)
        jobs: dict[GpuIdentity, TuningJob] = {}
        for identity in _kinds(crew, gpu):
            records = Records(cache / "records.sqlite" if cache else None)
            stack.callback(records.close)
            toolchain = crew.code.toolchain()
            builder = ClusterBuilder(connection, parts, toolchain, identity.spec, cache)
            stack.callback(builder.close)
            measurers = [m for m in crew.measurers if m.identity() == identity]
            whole = Identity(identity, toolchain.nvcc_version, toolchain.cutlass_version)
            jobs[identity] = TuningJob(work, whole, builder, measurers, records, options, proposals=proposals)
        stack.callback(crew.close)
        stack.enter_context(_looking(connection, crew, jobs))
        made = list(jobs.values())
        yield made[0] if len(made) == 1 else KindsJob(made)


def _kinds(crew: Crew, gpu: str) -> list[GpuIdentity]:
    """The kinds of GPU to tune for, in the order in which their workers came."""
    found = list(dict.fromkeys(m.identity() for m in crew.measurers))
    if gpu.strip().lower() != "auto":
        wanted = resolve_gpu(gpu).name
        found = [identity for identity in found if identity.name == wanted]
    if not found:
        here = ", ".join(sorted({m.identity().name for m in crew.measurers})) or "no GPU that can be measured on"
        said = f" ({crew.notes[0]})" if crew.notes else ""
        raise ClusterError(f"the workers have {here}{said}", "leave --gpu out, or start a worker with that GPU")
    return found


@contextmanager
def _looking(connection: Connection, crew: Crew, jobs: dict[GpuIdentity, TuningJob]) -> Iterator[None]:
    """Brings GPUs that come while the jobs run to the one for their kind, and ends them when the scheduler is gone."""
    over = threading.Event()
    first = next(iter(jobs.values()))

    def bring(measurer: ClusterMeasurer) -> None:
        job = jobs.get(measurer.identity())
        if job is None:
            crew.notes.append(f"{measurer.name} is a {measurer.identity().name}, for which this job does not tune")
        else:
            job.note("info", f"{measurer.name} takes part from here on")
            job.add(measurer)

    def look() -> None:
        while True:
            while crew.notes:
                first.note("warning", crew.notes.pop(0))
            if over.wait(_LOOK_S):
                return
            if connection.away_s > connection.patience_s:
                for job in jobs.values():
                    job.fail(connection.gone())
                return
            for measurer in crew.look():
                bring(measurer)

    thread = threading.Thread(target=look, name="cluster-look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
