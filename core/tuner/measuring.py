"""Takes every workload of a job through screening, widening and finals, on as many GPUs as there are.

All of it runs on the job's thread; the lanes (core.tuner.lanes) measure.
"""

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.measure.measurement import Failure, Measurement, Outcome, Stage
from core.search.rank import other_launches
from core.tuner.lanes import Lane, Measured, Step, StepEnded, Usage
from core.tuner.ports import Measurer
from core.tuner.schedule import next_task, to_prepare
from core.tuner.task import Task
from templates.family import Candidate, Family
from templates.gpu import GpuSpec

_WIDENED_KERNELS = 3  # kernels whose other launches are tried


class Measuring:
    """The tasks and the lanes.

    Args:
        messages: the job's queue, into which the lanes put Measured and StepEnded.
        keep: records outcomes, all of them or none, and tells them; the candidate is None for a vendor's kernel.
        close: told of each task whose finals are over.
        finalists, vendor: see core.tuner.options.Options.
    """

    def __init__(
        self,
        messages: "queue.Queue[Any]",
        families: Mapping[str, Family],
        gpu: GpuSpec,
        keep: Callable[[Sequence[tuple[Candidate | None, Outcome]]], None],
        close: Callable[[Task], None],
        finalists: int,
        vendor: bool,
    ) -> None:
        self.tasks: list[Task] = []
        self.lanes: list[Lane] = []
        self.usages: list[Usage] = []  # of lost lanes, too
        self.building = True  # kernels may still come
        self.no_compiler = False  # they can't, for a reason that is not the job's end: no vendor is measured alone
        self.over = False  # the time is: finals only
        self._messages, self._families, self._gpu = messages, families, gpu
        self._keep, self._close = keep, close
        self._finalists, self._vendor = finalists, vendor

    def add(self, measurer: Measurer) -> None:
        """One more GPU."""
        lane = Lane(len(self.usages), measurer, self._messages)
        self.lanes.append(lane)
        self.usages.append(lane.usage)

    @property
    def busy(self) -> bool:
        return any(lane.busy for lane in self.lanes)

    @property
    def done(self) -> bool:
        return all(task.done for task in self.tasks)

    # -- what the lanes do next

    def advance(self) -> None:
        """Gives each free lane its next step, if there is one."""
        for lane in self.lanes:
            while not lane.busy and (task := next_task(self.tasks, lane.number)) is not None:
                self._go_on(lane, task)
            if not lane.busy and not lane.rested and not self.over:
                self._prepare(lane)

    def _prepare(self, lane: Lane) -> None:
        """While the GPU waits for the compilers: a step of what measuring needs beside kernels."""
        tasks = to_prepare(self.tasks, lane.number, len(self.lanes))
        if tasks:
            lane.get_ready(tasks, self._vendor)

    def _go_on(self, lane: Lane, task: Task) -> None:
        if task.screened and not (task.widened or self.over):
            self._widen(task)
        if task.ready:
            task.gpu, task.begun = lane.number, True
            entries = task.take_ready()
            if entries:
                lane.screen(task, entries, self.building)
        elif task.screened:
            task.gpu, task.begun = lane.number, True
            self._finals(lane, task)

    def _widen(self, task: Task) -> None:
        """Second step: the best kernels' other launches, which need no compiler."""
        task.widened = True
        tried = {*task.measured, *task.failed}
        for candidate in task.best_screened(_WIDENED_KERNELS):
            for other in other_launches(candidate, task.workload, self._gpu, self._families, tried):
                if other.name not in task.candidates:
                    task.candidates[other.name] = other
                    task.ready.append(other)

    def _finals(self, lane: Lane, task: Task) -> None:
        """Finals: the best few, interleaved with the vendor. Finalists that fail give way to the next ones."""
        finalists = task.best_screened(self._finalists, task.shown) if task.best() is None else []
        alone = not task.rounds and self._vendor and not self.no_compiler
        if not finalists and not alone:
            self._end(task)
            return
        task.rounds += 1
        task.shown += [c.name for c in finalists]
        task.finals.clear()
        lane.final(task, [(c, task.built[c.kernel]) for c in finalists], self._vendor, self.building)

    def _end(self, task: Task) -> None:
        task.done = True
        self._close(task)

    # -- what the lanes say

    def measured(self, message: Measured) -> None:
        """Keeps the outcome; the lane goes on when it is replied to."""
        lane, outcome = message.lane, message.outcome
        task = lane.task
        assert task is not None
        candidate = task.candidates.get(outcome.candidate)
        if lane.step is Step.SCREEN or (isinstance(outcome, Failure) and candidate is not None):
            task.keep(outcome)
        elif isinstance(outcome, Measurement):
            task.finals.append(outcome)
        if lane.step is Step.SCREEN:
            self._keep([(candidate, outcome)])
        else:  # of half the finals the wrong one would be the winner
            task.held.append((candidate, outcome))

    def ended(self, message: StepEnded, cancelled: bool) -> None:
        """Raises what the step ended with."""
        lane, task, step = message.lane, message.lane.task, message.lane.step
        lane.ended(message)
        if task is not None and step is Step.FINAL and message.error is None:
            self._keep(task.held)
        if task is not None:
            task.held = []
        if message.error is not None:
            raise message.error
        if task is None:
            return
        if step is Step.SCREEN and message.more:
            task.put_back()
            if self.over:
                task.ready.clear()
        elif step is Step.SCREEN:
            self._without_outcome(task)
        elif cancelled or task.best() is not None:
            self._end(task)

    def _without_outcome(self, task: Task) -> None:
        for candidate in list(task.running.values()):
            failure = Failure(task.key, candidate.name, Stage.CRASH, "the measuring process gave no outcome")
            task.keep(failure)
            self._keep([(candidate, failure)])

    def lose(self, lane: Lane) -> None:
        """Leaves a GPU out that can't be measured on any more; others take its tasks up."""
        self.lanes.remove(lane)
        lane.close()
        for task in self.tasks:
            if task.gpu == lane.number and not task.done:
                task.release()

    # -- ends

    def stop_screening(self) -> list[Task]:
        """The time is over: only the finals of what was screened are held. Returns the tasks that are not done."""
        self.over = True
        left = [task for task in self.tasks if not task.done]
        for task in left:
            task.waiting.clear()
            task.ready.clear()
        return left

    def built_all(self) -> None:
        """No further kernel comes."""
        for lane in self.lanes:
            lane.count_idle(self.building)
        self.building = False
        for task in self.tasks:  # what was not built by now never will be
            task.waiting.clear()

    def close(self) -> None:
        """Ends the lanes, after what they have on the GPU."""
        for lane in self.lanes:
            lane.count_idle(self.building)
            lane.close()
