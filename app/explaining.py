"""Candidates explained in the background: parameters, the rank's reason and the source, kept once worked out."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.background import Background, Job
from core.errors import BoltError
from core.search.explain import Explained
from core.search.words import Geometry
from templates.gpu import known_gpu
from templates.workload import Workload

Key = tuple[str, str, str]  # workload key, GPU, candidate


@dataclass(frozen=True)
class Story:
    """`explained` is None where no family knows the candidate any more; `source` is then empty."""

    explained: Explained | None
    source: str


class Explaining(QObject):
    """`ready` comes after something asked for has been worked out."""

    ready = Signal()

    def __init__(self, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.background = background
        self._known: dict[Key, Story] = {}
        self._asked: set[Key] = set()
        self._geometries: dict[tuple[str, str], dict[str, Geometry]] = {}  # (workload key, GPU)

    def story(self, workload: Workload, gpu: str, candidate: str) -> Story | None:
        """What is known; None while it is worked out."""
        key = workload.key, gpu, candidate
        if key not in self._known and key not in self._asked:
            self._asked.add(key)
            self.background.start(
                "explaining", lambda job: _tell(workload, gpu, candidate, job), lambda s: self._take(key, s),
                lambda error: self._give_up(key, error),
            )  # fmt: skip
        return self._known.get(key)

    def geometries(self, workloads: Sequence[Workload], gpu: str) -> dict[str, Geometry]:
        """Of every kernel that may be tried on the workloads, by name, as far as it is known; the rest follows."""
        missing = [w for w in workloads if (w.key, gpu) not in self._geometries]
        if missing:
            self._geometries |= {(w.key, gpu): {} for w in missing}
            self.background.start(
                "reading kernel names", lambda job: _shapes(missing, gpu, job), self._learn, lambda error: None
            )
        return {name: g for w in workloads for name, g in self._geometries[w.key, gpu].items()}

    def _learn(self, found: "dict[tuple[str, str], dict[str, Geometry]]") -> None:
        self._geometries |= found
        self.ready.emit()

    def _take(self, key: Key, story: Story) -> None:
        self._known[key] = story
        self.ready.emit()

    def _give_up(self, key: Key, error: BoltError) -> None:
        self._known[key] = Story(None, f"// {error}")
        self.ready.emit()


def _tell(workload: Workload, gpu: str, name: str, job: Job) -> Story:
    from core.device import detect_gpu
    from core.search.explain import explain, find_candidate, source_of

    spec = known_gpu(gpu) or detect_gpu().spec
    found = find_candidate(workload, spec, name)
    job.check()
    if found is None:
        return Story(None, "")
    return Story(explain(found, workload, spec), source_of(found))


def _shapes(workloads: Sequence[Workload], gpu: str, job: Job) -> dict[tuple[str, str], dict[str, Geometry]]:
    """Nothing for a GPU that nobody knows: the columns then stay empty."""
    from core.device import detect_gpu
    from core.search.words import geometries

    spec = known_gpu(gpu) or detect_gpu().spec
    found = {}
    for workload in workloads:
        job.check()
        found[workload.key, gpu] = geometries(workload, spec)
    return found
