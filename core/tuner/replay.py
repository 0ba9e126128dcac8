"""Plays recorded tuning again: the same events, nothing measured, no GPU needed."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import RecordError
from core.fusion.plan import FusionPlan
from core.measure.measurement import Failure, Measurement
from core.records.rows import Record
from core.records.store import Records
from core.tuner.events import (
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
from core.tuner.prepare import regions_of
from core.tuner.runfile import TimedEvent
from templates.workload import Workload

_STEP_S = 0.05  # between events that are made of records, which keep no pace
_TICK_S = 0.05


class ReplayJob:
    """A recorded run with the controls of a TuningJob. JobStarted says that nothing is measured.

    `speed` divides the recorded pauses; 0 leaves them out. It may be changed at any time, from any thread. `path` is
    the run file that the events are of; None where they are made of records.
    """

    def __init__(self, events: Sequence[TimedEvent], speed: float = 1.0, path: Path | None = None) -> None:
        self._events, self.speed, self.path = events, speed, path
        self._cancel, self._pause = threading.Event(), threading.Event()

    def pause(self) -> None:
        self._pause.set()

    def resume(self) -> None:
        self._pause.clear()

    def cancel(self) -> None:
        self._cancel.set()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def run(self, listener: Listener) -> dict[str, WorkloadFinished]:
        """Plays to the end, or until cancelled; returns the result of each workload that was played."""
        results: dict[str, WorkloadFinished] = {}
        started, last = time.monotonic(), 0.0
        for timed in self._events:
            speed = self.speed
            if speed > 0:
                self._cancel.wait((timed.t - last) / speed if timed.t > last else 0.0)
            last = timed.t
            while self._pause.is_set() and not self._cancel.is_set():
                self._cancel.wait(_TICK_S)
            if self._cancel.is_set():
                break
            event = timed.event
            if isinstance(event, JobStarted):
                event = replace(event, measured=False)
            if isinstance(event, WorkloadFinished):
                results[event.workload] = event
            listener(event)
        if self._cancel.is_set() or not (self._events and isinstance(self._events[-1].event, JobFinished)):
            listener(JobFinished(time.monotonic() - started, self._cancel.is_set()))
        return results


def events_from_records(work: FusionPlan | Sequence[Workload], records: Records, gpu: str) -> list[TimedEvent]:
    """A run made of what the records hold for a GPU, by the driver's name for it.

    Raises:
        RecordError: a workload has no record for that GPU.
    """
    regions = regions_of(work)
    workloads = list(dict.fromkeys(w.key for _, w in regions))
    winners = {key: records.best(key, gpu) for key in workloads}
    missing = [key for key, winner in winners.items() if winner is None]
    if missing:
        raise RecordError(
            f"{len(missing)} of {len(workloads)} workloads have no record for {gpu}, for one {missing[0]!r}",
            "tune the model on such a GPU, or import records of one",
        )
    model = work.model if isinstance(work, FusionPlan) else "workloads"
    events: list[Event] = [
        JobStarted(model, gpu, tuple(workloads), tuple((r, w.key) for r, w in regions), measured=False),
        Note("info", f"nothing is measured here: these are records of {gpu}"),
    ]
    measured = failed = 0
    for done, (key, winner) in enumerate(winners.items()):
        if winner is None:
            continue
        played = _played(key, winner, records)
        events += played
        finished = played[-1]
        if isinstance(finished, WorkloadFinished):
            measured, failed = measured + finished.measured, failed + finished.failed
        left = _STEP_S * (len(winners) - done - 1)
        events.append(Progress(done + 1, len(winners), 0, 0, measured, measured + failed, failed, left))
    events.append(JobFinished(0.0))
    return [TimedEvent(i * _STEP_S, event) for i, event in enumerate(events)]


def _played(key: str, winner: Record, records: Records) -> list[Event]:
    kept = [r for r in records.all(key, winner.identity) if r.shipped == winner.shipped]
    ours = [r for r in kept if r.candidate is not None]
    names = tuple(dict.fromkeys(r.outcome.candidate for r in ours))
    events: list[Event] = [WorkloadStarted(key, names, 0, 0)]
    for record in kept:
        outcome = record.outcome
        events.append(CandidateFailed(outcome) if isinstance(outcome, Failure) else CandidateMeasured(outcome))
    failed = len({r.outcome.candidate for r in ours if isinstance(r.outcome, Failure)})
    vendor = records.peer(winner)
    best, peer = (r.outcome if r and isinstance(r.outcome, Measurement) else None for r in (winner, vendor))
    return [*events, WorkloadFinished(key, best, peer, len(names) - failed, failed, from_records=True)]
