"""The tuning job: compiles on all cores while the GPU measures what is ready, keeps every outcome, picks winners."""

import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.build.artifact import BuiltKernel
from core.errors import BoltError
from core.fusion.persistent import Proposal
from core.fusion.plan import FusionPlan
from core.measure.measurement import Failure, Measurement, Outcome, Stage
from core.records.rows import Identity, RunSummary
from core.records.store import Records, now
from core.search.rank import DEFAULT_LIMIT, other_launches
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
from core.tuner.ports import KernelBuilder, Measurer
from core.tuner.prepare import make_task, recall, recorded_result, regions_of, serving_versions
from core.tuner.schedule import BUILD_SHARE, Chosen, fit_budget, keep_only, kernel_order
from core.tuner.task import Task, sane
from templates import families as all_families
from templates.family import Candidate, Family, Kernel
from templates.workload import Workload

_TICK_S = 0.1
_PROGRESS_S = 0.25
_WIDENED_KERNELS = 3  # kernels whose other launches are tried
FINALISTS = 4


@dataclass(frozen=True)
class Options:
    """What a user may choose. `limit`: kernels a workload; `retune`: measure anew what records hold already."""

    budget_minutes: float | None = None
    limit: int = DEFAULT_LIMIT
    vendor: bool = True
    retune: bool = False
    finalists: int = FINALISTS


class TuningJob:
    """Tunes every workload of a plan on one GPU. `run` may be called once; the controls from any thread.

    Args:
        work: a fusion plan, or workloads.
        identity: the GPU and the versions that the outcomes are recorded under.
        builder, measurer: the ports; the job stops the builder when it ends early, its owner closes both.
        records: where outcomes go at once, and from where known ones are taken.
        families: template families by name; all of them if not given.
        proposals: chains of the plan that could be one kernel, tuned beside their parts.
    """

    def __init__(
        self,
        work: FusionPlan | Sequence[Workload],
        identity: Identity,
        builder: KernelBuilder,
        measurer: Measurer,
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
        self._regions = [*regions_of(work), *((f"{p.first}+{p.second}", p.workload) for p in proposals)]
        self._workloads = {w.key: w for _, w in self._regions}
        self._builder, self._measurer, self._records = builder, measurer, records
        self._families = all_families() if families is None else families
        self._tasks: list[Task] = []
        self._cancel, self._pause = threading.Event(), threading.Event()
        self._builds = BuildThread(builder, self._pause)
        self._build_error: Exception | None = None
        self._clock = Clock()
        self._tell: Listener = lambda event: None
        self._last_progress = 0.0

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

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

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
            self._progress(force=True)
            tell(JobFinished(time.monotonic() - started, self.cancelled, error))
        return results

    def _run(self) -> None:
        regions = tuple((region, w.key) for region, w in self._regions)
        self._tell(JobStarted(self.model, self.identity.gpu.name, tuple(self._workloads), regions, measured=True))
        self._plan()
        kernels = self._kernels()
        for task in self._tasks:
            self._announce(task)
        budget = self.options.budget_minutes
        self._clock.start(
            len(kernels), self._builder.seconds(kernels) if kernels else 0.0, None if budget is None else budget * 60
        )
        if not self._tasks:
            return
        self._builds.start(kernels)
        self._loop()
        if self._build_error is not None:
            raise self._build_error

    # -- planning

    def _plan(self) -> None:
        """A task for each workload that no trusted record covers, heaviest first."""
        cheap = Chosen(self._builder)
        counts = {key: sum(w.key == key for _, w in self._regions) for key in self._workloads}
        gpu, options = self.identity.gpu.spec, self.options
        for key, workload in sorted(self._workloads.items(), key=lambda kw: -kw[1].flops * counts[kw[0]]):
            if not options.retune:
                result = recorded_result(workload, self._records, self.identity, self._families, options.vendor)
                if result is not None:
                    self._tell(result)
                    continue
            task = make_task(workload, counts[key], gpu, self._families, options.limit, cheap)
            cheap.take(task.waiting)
            if not options.retune:
                recall(task, self._records, self.identity, self._builder)
            self._tasks.append(task)

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

    # -- what the build thread says

    def _receive(self, message: Started | Built | Ended) -> None:
        if isinstance(message, Started):
            self._tell(BuildStarted(tuple(k.name for k in message.kernels)))
        elif isinstance(message, Ended):
            self._build_error = message.error
            for task in self._tasks:  # what was not built by now never will be
                task.waiting.clear()
        elif isinstance(message.result, BuiltKernel):
            self._kernel_built(message.kernel, message.result)
        else:
            self._clock.built(cached=False)
            for task in self._tasks:
                for candidate, failure in task.kernel_failed(message.kernel, message.result):
                    self._keep(candidate, failure)

    def _kernel_built(self, kernel: Kernel, built: BuiltKernel) -> None:
        self._clock.built(built.cached)
        self._tell(build_finished(built))
        for task in self._tasks:
            if kernel in task.waiting:
                task.kernel_built(kernel, built)

    def _drain(self, wait: bool = False) -> None:
        try:
            if wait:
                self._receive(self._builds.messages.get(timeout=_TICK_S))
            while True:
                self._receive(self._builds.messages.get_nowait())
        except queue.Empty:
            return

    # -- measuring, on the job's thread

    def _loop(self) -> None:
        while not self._cancel.is_set():
            self._drain()
            self._progress()
            if self._pause.is_set():
                self._cancel.wait(_TICK_S)
                self._clock.paused(_TICK_S)
            elif self._clock.out_of_time(self._left()):
                self._finish_early()
                return
            elif not self._measure_next():
                if all(task.done for task in self._tasks):
                    return
                if not self._get_ready():
                    self._drain(wait=True)

    def _get_ready(self) -> bool:
        """While the GPU waits for the compilers: a step of what measuring needs beside kernels, if one is left."""
        return any(self._measurer.get_ready(t.workload, self.options.vendor) for t in self._tasks if not t.done)

    def _measure_next(self) -> bool:
        """One step of the most advanced task that can go on; False when the GPU has nothing to do."""
        for task in self._tasks:
            if not task.done and task.screened:
                if task.widened:
                    self._finish(task)
                else:
                    self._widen(task)
                return True
        ready = [task for task in self._tasks if task.ready]
        if not ready:
            return False
        self._screen(max(ready, key=lambda t: (len(t.ready), t.estimate_us)))
        return True

    def _screen(self, task: Task) -> None:
        left = {c.name: (c, built) for c, built in task.take_ready()}
        outcomes = self._measurer.screen(task.workload, list(left.values())) if left else iter(())
        began = time.monotonic()
        for outcome in map(sane, outcomes):
            candidate, _ = left.pop(outcome.candidate)
            task.keep(outcome)
            self._keep(candidate, outcome)
            self._clock.screened(time.monotonic() - began)
            began = time.monotonic()
            self._drain()
            self._progress()
            if self._cancel.is_set() or self._pause.is_set() or self._clock.out_of_time(self._left()):
                task.put_back([c for c, _ in left.values()])
                return
        for candidate, _ in left.values():
            failure = Failure(task.key, candidate.name, Stage.CRASH, "the measuring process gave no outcome")
            task.keep(failure)
            self._keep(candidate, failure)

    def _widen(self, task: Task) -> None:
        """Second step: the best kernels' other launches, which need no compiler."""
        task.widened = True
        tried = {*task.measured, *task.failed}
        for candidate in task.best_screened(_WIDENED_KERNELS):
            for other in other_launches(candidate, task.workload, self.identity.gpu.spec, self._families, tried):
                if other.name not in task.candidates:
                    task.candidates[other.name] = other
                    task.ready.append(other)

    def _finish(self, task: Task, complete: bool = True) -> None:
        """Finals: the best few, interleaved with the vendor. Finalists that fail give way to the next ones."""
        began = time.monotonic()
        shown: list[str] = []
        while task.best() is None:
            finalists = task.best_screened(self.options.finalists, shown)
            if not finalists and (shown or self._build_error is not None):
                break
            self._hold_finals(task, finalists)
            shown += [c.name for c in finalists]
            if not finalists:
                break
        self._clock.finished(time.monotonic() - began)
        complete &= not task.cut and self._build_error is None and not self._cancel.is_set()
        if complete and task.best() is not None:
            versions = serving_versions(task.workload, self._families, self.identity.gpu.spec)
            self._records.finish(task.key, self.identity, versions, self.options.vendor, self.run_id)
        task.done = True
        self._tell(WorkloadFinished(task.key, task.best(), task.vendor(), len(task.measured), len(task.failed), False))

    def _hold_finals(self, task: Task, finalists: Sequence[Candidate]) -> None:
        by_name = {c.name: c for c in finalists}
        entries = [(c, task.built[c.kernel]) for c in finalists]
        if not entries and not self.options.vendor:
            return
        task.finals.clear()
        for outcome in map(sane, self._measurer.final(task.workload, entries, self.options.vendor)):
            candidate = by_name.get(outcome.candidate)
            if isinstance(outcome, Measurement):
                task.finals.append(outcome)
            elif candidate is not None:
                task.keep(outcome)
            self._keep(candidate, outcome)

    def _finish_early(self) -> None:
        """Out of time: stop compiling, and hold the finals of what was screened."""
        self._builds.stop()
        unfinished = [task for task in self._tasks if not task.done]
        self._tell(Note("warning", f"the time is over before {len(unfinished)} workloads were done"))
        for task in unfinished:
            if self._cancel.is_set():
                return
            task.waiting.clear()
            task.ready.clear()
            self._finish(task, complete=False)
            self._progress()

    # -- telling

    def _keep(self, candidate: Candidate | None, outcome: Outcome) -> None:
        """Record an outcome, then tell it. `candidate` is None for a vendor's kernel."""
        flags: tuple[str, ...] = ()
        if candidate is not None:
            flags = self._families[candidate.kernel.family].flags(candidate.kernel, self.identity.gpu.spec)
        self._records.add(outcome, self.identity, candidate, run=self.run_id, flags=flags)
        self._tell_outcome(outcome)

    def _tell_outcome(self, outcome: Outcome) -> None:
        self._tell(CandidateFailed(outcome) if isinstance(outcome, Failure) else CandidateMeasured(outcome))

    def _left(self) -> tuple[int, int]:
        """(candidates to screen, finals to hold) as far as is known."""
        pending = [t for t in self._tasks if not t.done]
        return sum(t.to_screen for t in pending), len(pending)

    def _progress(self, force: bool = False) -> None:
        if not force and time.monotonic() - self._last_progress < _PROGRESS_S:
            return
        self._last_progress = time.monotonic()
        while self._measurer.notes:
            self._tell(Note("info", self._measurer.notes.pop(0)))
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
