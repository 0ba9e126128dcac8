"""What the ranking rules expect of workloads that nobody measured: drawn hatched, said to be estimates."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.background import Job
from core.errors import BoltError
from templates.gpu import known_gpu
from templates.workload import Workload

if TYPE_CHECKING:
    from app.window import MainWindow


@dataclass(frozen=True)
class Estimate:
    """The rules' best candidate for a workload on a GPU; `us` ranks, it was never timed."""

    us: float
    candidate: str
    why: str


class Estimates(QObject):
    """Computes in the background what the open plan lacks, for the GPU that is chosen."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self._job: Job | None = None
        self._known: dict[tuple[str, str], Estimate] = {}  # (workload key, GPU)
        window.commands.gpu.currentIndexChanged.connect(self.refresh)

    def refresh(self) -> None:
        """Show what is known for the plans and the GPU, and start on the rest."""
        document = self.window.document
        if document is None:
            return
        if self._job is not None:
            self._job.cancel()
        gpu = self.window.tuning.gpu
        plans = (document.plan, document.automatic, *document.plans.kept.values())
        wanted = {key: regions[0].workload for plan in plans for key, regions in plan.workloads.items()}
        missing = [w for key, w in wanted.items() if w is not None and (key, gpu) not in self._known]
        document.set_estimates({key: e for key in wanted if (e := self._known.get((key, gpu))) is not None})
        self._job = None
        if missing:
            self._job = self.window.background.start(
                "estimating",
                lambda job: _estimate(missing, gpu, job),
                lambda found: self._found(found, gpu),
                self._failed,
            )

    def _found(self, found: dict[str, Estimate], gpu: str) -> None:
        self._known |= {(key, gpu): estimate for key, estimate in found.items()}
        self.refresh()

    def _failed(self, error: BoltError) -> None:
        self.window.log.add("warning", f"no estimates: {error}")


def _estimate(workloads: list[Workload], gpu: str, job: Job) -> dict[str, Estimate]:
    """Workloads that no family serves are left out; so is everything on a GPU whose limits are not known."""
    from core.device import detect_gpu
    from core.search.rank import rank

    spec = known_gpu(gpu) or detect_gpu().spec
    found = {}
    for workload in workloads:
        job.check()
        ranked = rank(workload, spec, limit=1).candidates
        if ranked:
            found[workload.key] = Estimate(ranked[0].score.us, ranked[0].candidate.name, ranked[0].score.why)
    return found
