"""One candidate measured again: in finals of its own, beside the winner on record and the vendor's kernels.

Figures of one run only are compared (core.records.store), so the winner is measured again too: whichever is faster then
is the winner of these, the newest finals.
"""

import threading
import time
import uuid
from collections.abc import Mapping, Sequence

from core.build.artifact import BuiltKernel
from core.errors import BoltError, RecordError
from core.measure.measurement import Failure, Measurement, Outcome
from core.records.rows import Identity, RunSummary
from core.records.store import Records, now
from core.search.explain import find_candidate
from core.tuner.building import build_finished
from core.tuner.events import (
    BuildStarted,
    CandidateFailed,
    CandidateMeasured,
    JobFinished,
    JobStarted,
    Listener,
    Note,
    Progress,
    WorkloadFinished,
)
from core.tuner.ports import KernelBuilder, Measurer
from core.tuner.prepare import flags_of
from core.tuner.task import sane
from templates import families as all_families
from templates.family import Candidate, Family
from templates.workload import Workload

_TICK_S = 0.1


class AgainJob:
    """Measures `candidate` (a name) on the workload once more; its samples become a record of their own.

    `run` may be called once, the controls from any thread, as those of TuningJob.
    """

    def __init__(
        self,
        workload: Workload,
        candidate: str,
        identity: Identity,
        builder: KernelBuilder,
        measurer: Measurer,
        records: Records,
        vendor: bool = True,
        families: Mapping[str, Family] | None = None,
        model: str = "workloads",
    ) -> None:
        self.workload, self.candidate, self.identity = workload, candidate, identity
        self.model, self.vendor, self.run_id = model, vendor, uuid.uuid4().hex
        self._builder, self._measurer, self._records = builder, measurer, records
        self._families = all_families() if families is None else families
        self._cancel, self._pause = threading.Event(), threading.Event()
        self._tell: Listener = lambda event: None

    def pause(self) -> None:
        """Start nothing new; what runs is finished."""
        self._pause.set()

    def resume(self) -> None:
        self._pause.clear()

    def cancel(self) -> None:
        self._cancel.set()
        self._builder.close()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def run(self, listener: Listener) -> dict[str, WorkloadFinished]:
        """Raises BoltError as TuningJob.run does, and RecordError on a candidate that no family makes any more."""
        started, stamp, error = time.monotonic(), now(), ""
        self._tell = listener
        found: WorkloadFinished | None = None
        try:
            key = self.workload.key
            listener(JobStarted(self.model, self.identity.gpu.name, (key,), (("w0", key),), measured=True))
            found = self._measure()
            if found is not None:
                listener(found)
                summary = RunSummary(self.run_id, self.model, stamp, time.monotonic() - started, self.cancelled)
                self._records.add_run(summary, self.identity)
        except BoltError as failure:
            error = str(failure)
            raise
        finally:
            done = int(found is not None)
            listener(Progress(done, 1, 0, 0, done, 1, 0, 0.0))
            listener(JobFinished(time.monotonic() - started, self.cancelled, error))
        return {self.workload.key: found} if found is not None else {}

    def _measure(self) -> WorkloadFinished | None:
        """None when it was cancelled before the finals."""
        built = self._built(self._rivals())
        while self._pause.is_set() and not self.cancelled:
            self._cancel.wait(_TICK_S)
        while not self.cancelled and self._measurer.get_ready(self.workload, self.vendor):
            pass
        if self.cancelled:
            return None
        by_name = {c.name: c for c, _ in built}
        finals: list[Measurement] = []
        if built:
            outcomes = [sane(o) for o in self._measurer.final(self.workload, built, self.vendor)]
            self._keep([(by_name.get(o.candidate), o) for o in outcomes])
            finals = [o for o in outcomes if isinstance(o, Measurement)]
        while self._measurer.notes:
            self._tell(Note("info", self._measurer.notes.pop(0)))
        return self._result(finals)

    def _rivals(self) -> list[Candidate]:
        """The candidate that is meant, then the winner on record if that is another one."""
        known = self._records.known(self.workload.key, self.identity)
        record = known.get(self.candidate)
        meant = record.candidate if record is not None else None
        if meant is None:
            meant = find_candidate(self.workload, self.identity.gpu.spec, self.candidate, self._families)
        if meant is None:
            raise RecordError(
                f"no template family makes {self.candidate} for {self.workload.key} any more",
                "tune the region anew to find its candidates",
            )
        best = self._records.best(self.workload.key, self.identity)
        winner = best.candidate if best is not None else None
        return [meant] if winner is None or winner == meant else [meant, winner]

    def _built(self, candidates: list[Candidate]) -> list[tuple[Candidate, BuiltKernel]]:
        """Those that compile, in their order."""
        results: dict[object, BuiltKernel | Failure] = {}
        kernels = list(dict.fromkeys(c.kernel for c in candidates))
        for kernel, result in self._builder.build(
            kernels, lambda batch: self._tell(BuildStarted(tuple(k.name for k in batch)))
        ):
            results[kernel] = result
            if isinstance(result, BuiltKernel):
                self._tell(build_finished(result))
        able = []
        for candidate in candidates:
            found = results.get(candidate.kernel)
            if isinstance(found, BuiltKernel):
                able.append((candidate, found))
            elif found is not None:
                key = self.workload.key
                self._keep([(candidate, Failure(key, candidate.name, found.stage, found.reason, found.log))])
        return able

    def _keep(self, outcomes: Sequence[tuple[Candidate | None, Outcome]]) -> None:
        """Record outcomes, all or none, then tell them. The candidate is None for a vendor's kernel."""
        kept = [(o, c, flags_of(c, self._families, self.identity.gpu.spec)) for c, o in outcomes]
        self._records.add_all(kept, self.identity, run=self.run_id)
        for _, outcome in outcomes:
            self._tell(CandidateFailed(outcome) if isinstance(outcome, Failure) else CandidateMeasured(outcome))

    def _result(self, finals: list[Measurement]) -> WorkloadFinished:
        ours = [m for m in finals if m.source == "template"]
        vendor = [m for m in finals if m.source != "template"]
        known = self._records.known(self.workload.key, self.identity)
        failed = sum(isinstance(r.outcome, Failure) for r in known.values())
        return WorkloadFinished(
            self.workload.key,
            min(ours, key=lambda m: m.us, default=None),
            min(vendor, key=lambda m: m.us, default=None),
            len(known) - failed,
            failed,
            from_records=False,
        )
