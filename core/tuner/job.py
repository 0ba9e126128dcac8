"""The tuning job: compiles on all cores while the GPUs measure what is ready, keeps every outcome, picks winners."""

import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.build.artifact import BuiltKernel
from core.errors import BoltError, DeviceError, WorkerLost
from core.fusion.plan import FusionPlan
from core.fusion.propose import Proposal
from core.measure.measurement import Failure, Outcome
from core.records.rows import Identity, RunSummary
from core.records.store import Records, now
from core.tuner.building import BuildThread, Built, Ended, Started, build_finished
from core.tuner.clock import Clock
from core.tuner.events import (
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    Event,
    JobFinished,
    JobStarted,
    Listener,
    Note,
    Progress,
    WorkloadFinished,
    WorkloadStarted,
)
from core.tuner.lanes import Measured, Step, StepEnded, Usage
from core.tuner.measuring import Measuring
from core.tuner.options import Options
from core.tuner.ports import KernelBuilder, Measurer
from core.tuner.prepare import flags_of, make_tasks, recorded_result, regions_of, serving_versions
from core.tuner.schedule import BUILD_SHARE, fit_budget, keep_only, kernel_order
from core.tuner.task import Task
from templates import families as all_families
from templates.family import Candidate, Family, Kernel
from templates.workload import Workload

_TICK_S = 0.1
_PROGRESS_S = 0.25


@dataclass(frozen=True)
class _Arrived:
    """A GPU more."""

    measurer: Measurer


_Message = Started | Built | Ended | Measured | StepEnded | _Arrived | Note | BoltError


class TuningJob:
    """Tunes every workload of a plan on GPUs of one kind. `run` may be called once; the controls from any thread.

    Args:
        work: a fusion plan, or workloads.
        identity: the GPU and the versions that the outcomes are recorded under.
        builder: a port; the job stops it when it ends early, its owner closes it.
        measurers: a port for each GPU, all of `identity`; a workload stays on one of them. Their owner closes them.
        records: where outcomes go at once, and from where known ones are taken.
        families: template families by name; all of them if not given.
        proposals: chains of the plan that could be one kernel, tuned beside their parts.
    """

    def __init__(
        self,
        work: FusionPlan | Sequence[Workload],
        identity: Identity,
        builder: KernelBuilder,
        measurers: Sequence[Measurer],
        records: Records,
        options: Options | None = None,
        families: Mapping[str, Family] | None = None,
        model: str = "",
        proposals: Sequence[Proposal] = (),
    ) -> None:
        self.model = model or (work.model if isinstance(work, FusionPlan) else "workloads")
        self.options = options or Options()
        self.identity = identity
        self.run_id = uuid.uuid4().hex
        self._regions = [*regions_of(work), *((p.name, p.workload) for p in proposals)]
        self._workloads = {w.key: w for _, w in self._regions}
        self._builder, self._measurers, self._records = builder, list(measurers), records
        self._families = all_families() if families is None else families
        self._cancel, self._pause = threading.Event(), threading.Event()
        self._messages: queue.Queue[_Message] = queue.Queue()
        self._builds = BuildThread(builder, self._pause, self._messages)
        self._build_error: Exception | None = None
        self._measuring = Measuring(
            self._messages, self._families, identity.gpu.spec, self._keep, self._close,
            self.options.finalists, self.options.vendor,
        )  # fmt: skip
        self._clock = Clock()
        self._tell: Listener = lambda event: None
        self._last_progress = 0.0
        self._noted: set[str] = set()

    # -- controls

    def pause(self) -> None:
        """Start nothing new; what runs is finished."""
        self._pause.set()

    def resume(self) -> None:
        self._pause.clear()

    def cancel(self) -> None:
        """Stop soon: compilers are killed, the candidate on the GPU is finished, everything measured is kept."""
        self._cancel.set()
        self._builds.stop()

    def add(self, measurer: Measurer) -> None:
        """One more GPU of the job's identity takes part from now on."""
        self._messages.put(_Arrived(measurer))

    def fail(self, error: BoltError) -> None:
        """Nothing more can be done: `run` raises the error."""
        self._messages.put(error)

    def note(self, level: str, text: str) -> None:
        """A line for the user, told in its turn."""
        self._messages.put(Note(level, text))

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    @property
    def usages(self) -> tuple[Usage, ...]:
        """What each GPU's time went to; complete when the run is over."""
        return tuple(self._measuring.usages)

    @property
    def _tasks(self) -> list[Task]:
        return self._measuring.tasks

    # -- the run

    def run(self, listener: Listener) -> dict[str, WorkloadFinished]:
        """Runs to the end and returns the result of each workload that has one, by key.

        Events come on this thread. A cancelled job returns what it has.

        Raises:
            BoltError: nothing more can be done (compiler gone, disk full, GPU lost, records unwritable); what was
                measured by then is kept, and JobFinished has told the reason.
        """
        started, stamp = time.monotonic(), now()
        results: dict[str, WorkloadFinished] = {}
        error = ""

        def tell(event: Event) -> None:
            if isinstance(event, WorkloadFinished):
                results[event.workload] = event
            listener(event)

        self._tell = tell
        try:
            self._run()
            if self._tasks:
                seconds = time.monotonic() - started
                self._records.add_run(
                    RunSummary(self.run_id, self.model, stamp, seconds, self.cancelled), self.identity
                )
        except BoltError as failure:
            error = str(failure)
            raise
        finally:
            self._builds.join()
            self._measuring.close()
            self._tell_usage()
            self._progress(force=True)
            tell(JobFinished(time.monotonic() - started, self.cancelled, error))
        return results

    def _run(self) -> None:
        regions = tuple((region, w.key) for region, w in self._regions)
        self._tell(JobStarted(self.model, self.identity.gpu.name, tuple(self._workloads), regions, measured=True))
        self._measuring.tasks = self._plan()
        kernels = self._kernels()
        for task in self._tasks:
            self._announce(task)
        budget = self.options.budget_minutes
        self._clock.start(
            len(kernels), self._builder.seconds(kernels) if kernels else 0.0, None if budget is None else budget * 60
        )
        if not self._tasks:
            return
        for measurer in self._measurers:
            self._measuring.add(measurer)
        self._count_gpus()
        self._builds.start(kernels)
        self._loop()
        if self._build_error is not None:
            raise self._build_error

    # -- planning

    def _plan(self) -> list[Task]:
        """A task for each workload that no trusted record covers."""
        options, covered = self.options, set()
        if not options.retune:
            for key, workload in self._workloads.items():
                result = recorded_result(
                    workload, self._records, self.identity, self._families, options.vendor, options.limit
                )
                if result is not None:
                    self._tell(result)
                    covered.add(key)
        open_ = [w for _, w in self._regions if w.key not in covered]
        known = None if options.retune else self._records
        return make_tasks(open_, self.identity, self._families, self._builder, options.limit, known, self._records)

    def _kernels(self) -> list[Kernel]:
        order = kernel_order(self._tasks)
        if self.options.budget_minutes is None:
            return order
        kept = fit_budget(order, self._tasks, self._builder, self.options.budget_minutes * 60 * BUILD_SHARE)
        if len(kept) < len(order):
            left = len(order) - len(kept)
            self._tell(Note("info", f"the budget leaves {left} of {len(order)} kernels out, the least promising ones"))
        keep_only(kept, self._tasks)
        return kept

    def _announce(self, task: Task) -> None:
        waiting = {c.name for group in task.waiting.values() for c in group}
        ranked = [r.candidate.name for r in task.ranking.candidates]
        names = tuple(n for n in ranked if n in waiting or n in task.measured or n in task.failed)
        skipped = task.ranking.legal - len(names)
        self._tell(WorkloadStarted(task.key, names, skipped, len(task.ranking.illegal)))
        recalled: list[Outcome] = [*task.measured.values(), *task.failed.values()]
        for outcome in recalled:
            self._tell_outcome(outcome)

    # -- the loop: all on the job's thread

    def _loop(self) -> None:
        while not self._cancel.is_set() and not self._measuring.done:
            self._progress()
            if self._pause.is_set():
                began = time.monotonic()
                self._drain()
                self._clock.paused(time.monotonic() - began)
                continue
            if not self._measuring.over and self._clock.out_of_time(self._left()):
                self._stop_screening()
            self._measuring.advance()
            if not self._measuring.done:
                self._drain()
        while self._measuring.busy:
            self._drain()

    def _stop_screening(self) -> None:
        """Out of time: stop compiling, and hold the finals of what was screened."""
        self._builds.stop()
        unfinished = self._measuring.stop_screening()
        self._tell(Note("warning", f"the time is over before {len(unfinished)} workloads were done"))

    def _drain(self) -> None:
        """Takes what the compilers and the GPUs have said, waiting a moment for the first word."""
        try:
            self._receive(self._messages.get(timeout=_TICK_S))
            while True:
                self._receive(self._messages.get_nowait())
        except queue.Empty:
            return

    def _receive(self, message: _Message) -> None:
        if isinstance(message, _Arrived):
            self._take_in(message.measurer)
        elif isinstance(message, Note):
            self._tell(message)
        elif isinstance(message, BoltError):
            raise message
        elif isinstance(message, Measured):
            self._measured(message)
        elif isinstance(message, StepEnded):
            self._step_ended(message)
        elif isinstance(message, Started):
            self._tell(BuildStarted(tuple(k.name for k in message.kernels)))
        elif isinstance(message, Ended):
            self._build_error = message.error
            self._measuring.no_compiler = message.error is not None
            self._measuring.built_all()
        elif isinstance(message.result, BuiltKernel):
            self._kernel_built(message.kernel, message.result)
        else:
            self._clock.built(cached=False)
            for task in self._tasks:
                self._keep(task.kernel_failed(message.kernel, message.result))

    def _kernel_built(self, kernel: Kernel, built: BuiltKernel) -> None:
        self._clock.built(built.cached)
        self._tell(build_finished(built))
        for task in self._tasks:
            if kernel in task.waiting:
                task.kernel_built(kernel, built)

    def _measured(self, message: Measured) -> None:
        self._measuring.measured(message)
        if message.lane.step is Step.SCREEN:
            self._clock.screened(message.seconds)
        self._progress()
        stop = self._cancel.is_set() or self._pause.is_set() or self._clock.out_of_time(self._left())
        message.lane.reply(message, go_on=not stop)

    def _step_ended(self, message: StepEnded) -> None:
        if message.lane.step is Step.FINAL:
            self._clock.finished(message.seconds)
        try:
            self._measuring.ended(message, self.cancelled)
        except DeviceError as error:
            self._measuring.lose(message.lane)
            if not self._measuring.lanes and not isinstance(error, WorkerLost):
                raise
            self._count_gpus()
            self._tell(Note("warning", f"{message.lane.usage.gpu} is left out from here on: {error}"))
            if not self._measuring.lanes:
                self._tell(Note("warning", "no GPU is left; the job goes on when a worker with one comes"))

    def _take_in(self, measurer: Measurer) -> None:
        self._measurers.append(measurer)
        self._measuring.add(measurer)
        self._count_gpus()

    def _count_gpus(self) -> None:
        self._clock.gpus = max(1, len(self._measuring.lanes))

    def _close(self, task: Task) -> None:
        """A task's finals are over."""
        complete = not (task.cut or self._measuring.over or self._build_error is not None or self.cancelled)
        if complete and task.best() is not None:
            versions = serving_versions(task.workload, self._families, self.identity.gpu.spec)
            self._records.finish(
                task.key, self.identity, versions, self.options.vendor, self.run_id, self.options.limit
            )
        self._tell(WorkloadFinished(task.key, task.best(), task.vendor(), len(task.measured), len(task.failed), False))

    # -- telling

    def _keep(self, outcomes: Sequence[tuple[Candidate | None, Outcome]]) -> None:
        """Record outcomes, all or none, then tell them. The candidate is None for a vendor's kernel."""
        kept = [(o, c, flags_of(c, self._families, self.identity.gpu.spec)) for c, o in outcomes]
        self._records.add_all(kept, self.identity, run=self.run_id)
        for _, outcome in outcomes:
            self._tell_outcome(outcome)

    def _tell_outcome(self, outcome: Outcome) -> None:
        self._tell(CandidateFailed(outcome) if isinstance(outcome, Failure) else CandidateMeasured(outcome))

    def _left(self) -> tuple[int, int]:
        """(candidates to screen, finals to hold) as far as is known."""
        pending = [t for t in self._tasks if not t.done]
        return sum(t.to_screen for t in pending), len(pending)

    def _tell_notes(self) -> None:
        """What the measurers noted, each thing once."""
        for measurer in self._measurers:
            while measurer.notes:
                text = measurer.notes.pop(0)
                if text not in self._noted:
                    self._noted.add(text)
                    self._tell(Note("info", text))

    def _tell_usage(self) -> None:
        if len(self.usages) > 1:
            for usage in self.usages:
                self._tell(Note("info", str(usage)))

    def _progress(self, force: bool = False) -> None:
        if not force and time.monotonic() - self._last_progress < _PROGRESS_S:
            return
        self._last_progress = time.monotonic()
        self._tell_notes()
        to_screen, to_finish = self._left()
        measured = sum(len(t.measured) for t in self._tasks)
        failed = sum(len(t.failed) for t in self._tasks)
        states = [m.state for t in self._tasks for m in list(t.measured.values())[-1:]]
        self._tell(
            Progress(
                workloads_done=len(self._workloads) - to_finish,
                workloads=len(self._workloads),
                built=self._clock.built_kernels,
                to_build=self._clock.kernels,
                measured=measured,
                to_measure=measured + failed + to_screen,
                failed=failed,
                eta_s=self._clock.eta_s((to_screen, to_finish)) if to_finish else 0.0,
                state=states[-1] if states else None,
            )
        )
