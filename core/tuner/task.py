"""What a tuning job knows of one workload while it is tuned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from core.build.artifact import BuiltKernel
from core.measure.measurement import Failure, Measurement, Outcome, Stage
from core.search.rank import Ranking
from templates.family import Candidate, Kernel
from templates.workload import Workload

SLOWEST_FINALIST = 1.3  # a candidate that screens this much slower than the best has no chance in the finals
HOPELESS = 2.0  # nor one whose estimate, corrected by what its family measured, is this much slower
_ENOUGH = 3  # measured candidates of a family, before its estimates are corrected by them


@dataclass
class Task:
    """`regions` are how many regions share the workload: their number weighs its candidates.

    A candidate is `waiting` until its kernel is built, then `ready`, then `running` on the GPU, then in `measured` or
    `failed` (or dropped as hopeless). The last three are by candidate name, since that is what outcomes carry. `gpu` is
    the number of the lane that prepares for the task, and that alone measures it once it is `begun`.
    """

    workload: Workload
    ranking: Ranking
    regions: int = 1
    waiting: dict[Kernel, list[Candidate]] = field(default_factory=dict)
    ready: list[Candidate] = field(default_factory=list)
    running: dict[str, Candidate] = field(default_factory=dict)
    built: dict[Kernel, BuiltKernel] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    measured: dict[str, Measurement] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    hopeless: int = 0
    cut: bool = False  # a time budget left kernels out: another run goes on with them
    widened: bool = False  # the best kernels' other launches have been added
    gpu: int | None = None
    begun: bool = False
    shown: list[str] = field(default_factory=list)  # finalists so far, those that failed there too
    rounds: int = 0  # of finals
    finals: list[Measurement] = field(default_factory=list)
    held: list[tuple[Candidate | None, Outcome]] = field(default_factory=list)  # of finals that are not over
    done: bool = False

    @property
    def key(self) -> str:
        return self.workload.key

    @property
    def estimate_us(self) -> float:
        """The best candidate's estimate over all regions: what the workload weighs in the model."""
        return min((r.score.us for r in self.ranking.candidates), default=0.0) * self.regions

    @property
    def screened(self) -> bool:
        """Nothing is waiting for the compiler or the GPU."""
        return not self.waiting and not self.ready and not self.running

    @property
    def to_screen(self) -> int:
        """Candidates without an outcome."""
        waiting = [c for group in self.waiting.values() for c in group]
        return (
            len(self.ready)
            + len(self.running)
            + sum(c.name not in self.measured and c.name not in self.failed for c in waiting)
        )

    def await_kernel(self, candidate: Candidate) -> None:
        self.candidates[candidate.name] = candidate
        self.waiting.setdefault(candidate.kernel, []).append(candidate)

    def kernel_built(self, kernel: Kernel, built: BuiltKernel) -> None:
        """The kernel is there: its candidates that have no outcome yet may be measured."""
        self.built[kernel] = built
        for candidate in self.waiting.pop(kernel, []):
            if candidate.name not in self.measured and candidate.name not in self.failed:
                self.ready.append(candidate)

    def kernel_failed(self, kernel: Kernel, failure: Failure) -> list[tuple[Candidate, Failure]]:
        """The failure of each candidate that waited for the kernel."""
        failures = []
        for candidate in self.waiting.pop(kernel, []):
            own = Failure(self.key, candidate.name, failure.stage, failure.reason, failure.log)
            self.failed[candidate.name] = own
            failures.append((candidate, own))
        return failures

    def take_ready(self) -> list[tuple[Candidate, BuiltKernel]]:
        """Candidates to screen now; those that stand no chance any more are dropped and counted."""
        ready, self.ready = self.ready, []
        worth = [c for c in ready if not self._is_hopeless(c)]
        self.hopeless += len(ready) - len(worth)
        self.running = {c.name: c for c in worth}
        return [(c, self.built[c.kernel]) for c in worth]

    def put_back(self) -> None:
        """What was to run and did not is ready again."""
        self.ready = [*self.running.values(), *self.ready]
        self.running = {}

    def release(self) -> None:
        """The GPU that had it is gone: another one takes it up, with the outcomes so far."""
        self.put_back()
        self.gpu, self.begun = None, False
        if self.best() is None:
            self.shown, self.rounds = [], 0

    def keep(self, outcome: Outcome) -> None:
        """An outcome of the screening, or a failure in the finals."""
        self.running.pop(outcome.candidate, None)
        if isinstance(outcome, Failure):
            self.failed[outcome.candidate] = outcome
            self.measured.pop(outcome.candidate, None)
        else:
            self.measured[outcome.candidate] = outcome

    def _estimates(self) -> Mapping[Kernel, float]:
        return {r.kernel: r.score.us for r in self.ranking.candidates}

    def _is_hopeless(self, candidate: Candidate) -> bool:
        """Slower than HOPELESS times the best, even if its estimate errs as far as its family's best did."""
        if self.widened or not self.measured:
            return False
        estimates = self._estimates()
        own = [
            m.us / estimates[self.candidates[name].kernel]
            for name, m in self.measured.items()
            if self.candidates[name].kernel.family == candidate.kernel.family
            and estimates.get(self.candidates[name].kernel, 0.0) > 0
        ]
        if len(own) < _ENOUGH or candidate.kernel not in estimates:
            return False
        best = min(m.us for m in self.measured.values())
        return estimates[candidate.kernel] * min(own) > HOPELESS * best

    def best_screened(self, count: int, beside: Sequence[str] = ()) -> list[Candidate]:
        """The fastest candidates that have not failed, without those named in `beside`."""
        order = sorted(self.measured.values(), key=lambda m: m.us)
        able = [m for m in order if m.candidate not in beside and m.candidate not in self.failed]
        near = [m for m in able if m.us <= SLOWEST_FINALIST * able[0].us]
        names = [m.candidate for m in near if self.candidates[m.candidate].kernel in self.built]
        return [self.candidates[name] for name in names[:count]]

    def best(self) -> Measurement | None:
        """The winner of the finals among template candidates."""
        held = [m for m in self.finals if m.source == "template"]
        return min(held, key=lambda m: m.us, default=None)

    def vendor(self) -> Measurement | None:
        held = [m for m in self.finals if m.source != "template"]
        return min(held, key=lambda m: m.us, default=None)


def sane(outcome: Outcome) -> Outcome:
    """The outcome, or a Failure in place of a measurement whose figures can't be true (no time, not a number)."""
    if isinstance(outcome, Failure):
        return outcome
    if not outcome.samples_us:
        return Failure(outcome.workload, outcome.candidate, Stage.LAUNCH, "no time was taken")
    for us in outcome.samples_us:
        if not (isfinite(us) and us > 0):
            return Failure(outcome.workload, outcome.candidate, Stage.LAUNCH, f"a time of {us} us can't be true")
    if not (isfinite(outcome.relative_l2) and isfinite(outcome.max_abs)):
        return Failure(outcome.workload, outcome.candidate, Stage.VERIFY, "the result holds values that are no numbers")
    return outcome
