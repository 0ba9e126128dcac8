"""Runs a tuning job, live or replayed, in a plain thread; its events go to the bridge."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import EventBridge
from core.errors import BoltError, RecordError
from core.fusion.plan import FusionPlan
from core.tuner.events import Event, JobFinished, JobStarted, Listener
from templates.workload import Workload

REPLAY_SPEED = 8.0
FROM_RECORDS_SPEED = 1.0


class Job(Protocol):
    """What the tuner's live and replayed jobs share."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def cancel(self) -> None: ...
    def run(self, listener: Listener) -> object: ...


Source = Callable[[], AbstractContextManager[Job]]


class Tuning(QObject):
    """One job at a time. `failed` comes in the GUI thread when the job could not start or broke off."""

    failed = Signal(object)  # BoltError
    ended = Signal()
    state_changed = Signal()

    def __init__(self, bridge: EventBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.bridge = bridge
        self.paused = False
        self.file: Path | None = None  # of the run that plays; None for a live one, and for one made of records
        self._job: Job | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._failure: BoltError | None = None
        bridge.drained.connect(self._drained)

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self, source: Source) -> None:
        """Run the job that `source` opens; it is opened and closed in the job's thread."""
        assert not self.running, "one job at a time"
        self._cancelled.clear()
        self._failure = self.file = None
        self.paused = False
        self.bridge.start()
        self._thread = threading.Thread(target=self._work, args=(source,), name="bolt tuning", daemon=True)
        self._thread.start()
        self.state_changed.emit()

    def _work(self, source: Source) -> None:
        """The end is told last, when compilers and measuring processes are closed too."""
        from core.tuner.replay import ReplayJob

        finished: JobFinished | None = None

        def post(event: Event) -> None:
            nonlocal finished
            if isinstance(event, JobFinished):
                finished = event
            else:
                self.bridge.post(event)

        try:
            with source() as job:
                with self._lock:
                    self._job = job
                    self.file = job.path if isinstance(job, ReplayJob) else None
                if self._cancelled.is_set():
                    job.cancel()
                job.run(post)
        except BoltError as caught:
            self._failure = caught
        except Exception as caught:  # noqa: BLE001 the thread's last line: a defect must reach the user, not vanish
            self._failure = BoltError(
                f"tuning broke off: {type(caught).__name__}: {caught}", "please report this defect"
            )
        finally:
            with self._lock:
                self._job = None
        self.bridge.post(finished or JobFinished(0.0, self._cancelled.is_set(), str(self._failure or "")))

    @Slot()
    def _drained(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.paused = False
        if self._failure is not None:
            self.failed.emit(self._failure)
        self.ended.emit()
        self.state_changed.emit()

    def pause(self, wanted: bool) -> None:
        with self._lock:
            if self._job is not None:
                (self._job.pause if wanted else self._job.resume)()
                self.paused = wanted
        self.state_changed.emit()

    def set_speed(self, speed: float) -> None:
        """How many times faster a recorded run plays from now on; nothing for a live one."""
        from core.tuner.replay import ReplayJob

        with self._lock:
            if isinstance(self._job, ReplayJob):
                self._job.speed = speed

    def cancel(self) -> None:
        """Stop soon; what was measured is kept. The end comes as an event."""
        self._cancelled.set()
        with self._lock:
            if self._job is not None:
                self._job.cancel()

    def close(self) -> None:
        """Stop and wait."""
        self.cancel()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.bridge.stop()


def live(work: "FusionPlan | list[Workload]", budget_minutes: float | None = None, anew: bool = False) -> Source:
    """Tune on this machine's GPU; `anew` measures again what the records hold already.

    Opening it raises DeviceError, ToolchainError or RecordError.
    """

    def opened() -> AbstractContextManager[Job]:
        from core.tuner.job import Options
        from core.tuner.local import local_job

        return local_job(work, Options(budget_minutes, retune=anew))

    return opened


def again(workload: Workload, candidate: str) -> Source:
    """Measure one candidate, by name, again on this machine's GPU. Opening it raises as `live`'s does."""

    def opened() -> AbstractContextManager[Job]:
        from core.tuner.local import local_again

        return local_again(workload, candidate)

    return opened


def on_cluster(
    work: "FusionPlan | list[Workload]", scheduler: str, gpu: str, budget_minutes: float | None, anew: bool = False
) -> Source:
    """Tune for a kind of GPU on the workers of a scheduler. Opening it raises ClusterError or RecordError."""

    def opened() -> AbstractContextManager[Job]:
        from core.cluster.job import cluster_job
        from core.tuner.options import Options

        return cluster_job(work, Options(budget_minutes, retune=anew), scheduler, gpu)

    return opened


def replay_file(path: Path, speed: float = REPLAY_SPEED) -> Source:
    """Play a recorded run. Opening it raises RecordError."""

    @contextmanager
    def opened() -> Iterator[Job]:
        from core.tuner.replay import ReplayJob
        from core.tuner.runfile import read_run

        yield ReplayJob(read_run(path), speed, path)

    return opened


def replay_records(plan: FusionPlan, gpu: str, speed: float = FROM_RECORDS_SPEED) -> Source:
    """Play what the records hold of a GPU, by short or driver's name. Opening it raises RecordError or DeviceError."""

    @contextmanager
    def opened() -> Iterator[Job]:
        from core.device import resolve_gpu
        from core.records.store import Records
        from core.tuner.replay import ReplayJob, events_from_records

        records = Records()
        try:
            events = events_from_records(plan, records, resolve_gpu(gpu).name)
        finally:
            records.close()
        yield ReplayJob(events, speed)

    return opened


def best_replay(plan: FusionPlan, gpu: str, speed: float | None = None) -> Source:
    """The shipped run of these very workloads if there is one, else the records. Opening it raises RecordError.

    `speed` divides a run's own pauses (None: the usual pace, 0: none); records keep no pace and play at their own.
    """

    @contextmanager
    def opened() -> Iterator[Job]:
        from core.tuner.runfile import RUNS

        for path in sorted(RUNS.glob("*.jsonl.gz")):
            if _plays(path, plan, gpu):
                with replay_file(path, REPLAY_SPEED if speed is None else speed)() as job:
                    yield job
                return
        with replay_records(plan, gpu, 0.0 if speed == 0 else FROM_RECORDS_SPEED)() as job:
            yield job

    return opened


def can_replay(plan: FusionPlan, gpu: str) -> bool:
    """Whether `best_replay` finds something to play: a run of the plan, or a record of each of its workloads."""
    from core.device import resolve_gpu
    from core.records.store import Records
    from core.tuner.runfile import RUNS

    if any(_plays(path, plan, gpu) for path in RUNS.glob("*.jsonl.gz")):
        return True
    records, name = Records(), resolve_gpu(gpu).name
    try:
        return all(records.best(key, name) is not None for key in plan.workloads)
    finally:
        records.close()


def _plays(path: Path, plan: FusionPlan, gpu: str) -> bool:
    """Whether a run is of this model's workloads, all of them, on that GPU; its first event says so."""
    from core.device import resolve_gpu
    from core.tuner.runfile import read_run

    try:
        first = next((e.event for e in read_run(path) if isinstance(e.event, JobStarted)), None)
    except RecordError:
        return False  # a damaged run plays nothing; opening it by name tells the reason
    return first is not None and first.gpu == resolve_gpu(gpu).name and set(plan.workloads) <= set(first.workloads)


def recorded_batch(model: str, gpu: str) -> int | None:
    """The batch size at which a shipped run of the model, by name, was recorded on the GPU; None without one."""
    from core.device import resolve_gpu
    from core.tuner.runfile import RUNS, read_run
    from templates.workload import ConvWorkload, parse_workload

    for path in sorted(RUNS.glob("*.jsonl.gz")):
        try:
            first = next((e.event for e in read_run(path) if isinstance(e.event, JobStarted)), None)
        except RecordError:
            continue  # a damaged run plays nothing; opening it by name tells the reason
        if first is None or first.model != model or first.gpu != resolve_gpu(gpu).name or not first.workloads:
            continue
        workload = parse_workload(first.workloads[0])
        if isinstance(workload, ConvWorkload):
            return workload.n
    return None
