"""What charts need beyond the document, worked out in the background and kept: records, run files, gains, GPUs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.background import Background, Job
from app.charts.picture import Context, Whole
from app.document import Document
from app.run import Run
from core.errors import BoltError
from core.fusion.plan import FusionPlan
from core.gains import Gains, Timed
from templates.gpu import known_gpu

RECORDS = "records"  # in place of a run file: what the records hold of the GPU that is meant
MOST_KEPT = 16
Figures = dict[str, tuple[float, bool]]  # workload -> (us, measured)


class ChartFacts(QObject):
    """`ready` comes when something that was asked for is there, `failed` when it can't be."""

    ready = Signal()
    failed = Signal(object)  # BoltError

    def __init__(self, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.background = background
        self._known: dict[tuple[Any, ...], Any] = {}
        self._asked: dict[tuple[Any, ...], Job] = {}
        self._alive: list[object] = []  # what the keys name by id

    def context(self, kind: str, document: Document, gpu: str, other: str) -> Context:
        """For a chart of a kind ("gpus", "runs", "gains", "whole", or another that needs nothing)."""
        made = Context(gpu)
        if kind == "gpus" and other:
            here, there = self.figures(document.plan, gpu), self.figures(document.plan, other)
            if here is None or there is None:
                return replace(made, other_gpu=other)
            return replace(made, other_gpu=other, figures=here, other_figures=there)
        if kind == "runs" and other:
            return replace(made, other_run=self.run(document.plan, gpu, other), other_name=run_title(other))
        if kind == "gains":
            return replace(made, gains=self.gains(document, gpu))
        if kind == "whole":
            return replace(made, whole=self.whole(document))
        return made

    def figures(self, plan: FusionPlan, gpu: str) -> Figures | None:
        """What is known of the plan on a GPU; None while it is worked out."""
        return self._get(("figures", id(plan), gpu), plan, lambda job: _figures(plan, gpu, job), {})

    def run(self, plan: FusionPlan, gpu: str, source: str) -> Run | None:
        """A run file, played to its end, or a run made of the records."""
        return self._get(("run", id(plan), gpu, source), plan, lambda job: _run(plan, gpu, source), Run(replayed=True))

    def gains(self, document: Document, gpu: str) -> Gains | None:
        run, plan = document.run, document.plan
        key = ("gains", id(plan), id(run), run.measurements, gpu)
        return self._get(key, (plan, run), _gains(document, gpu), Gains((), 0))

    def whole(self, document: Document) -> Whole | None:
        """The whole model as one graph, timed by its export or the benchmarks; None else, or while it is sought."""
        here, asked = _exported(document), _in_benchmarks(document)
        if here is not None or asked is None:
            return here
        found: Whole | None = self._get(("whole", *asked), None, lambda job: _whole(*asked), None)
        return found

    def _get(self, key: tuple[Any, ...], alive: object, work: Callable[[Job], Any], otherwise: Any) -> Any:
        """What is known under the key; else None, and it is worked out. `otherwise` stands for what can't be."""
        if key not in self._known and key not in self._asked:
            self._alive.append(alive)
            self._asked[key] = self.background.start(
                f"looking up {key[0]}", work, lambda found: self._take(key, found),
                lambda error: self._take(key, otherwise, error),
            )  # fmt: skip
        return self._known.get(key)

    def _take(self, key: tuple[Any, ...], found: Any, error: BoltError | None = None) -> None:
        del self._asked[key]
        while len(self._known) >= MOST_KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[key] = found
        self._alive = self._alive[-4 * MOST_KEPT :]
        if error is not None:
            self.failed.emit(error)
        self.ready.emit()


def run_title(source: str) -> str:
    return "from records" if source == RECORDS else Path(source).name.removesuffix(".jsonl.gz")


def _figures(plan: FusionPlan, gpu: str, job: Job) -> Figures:
    from core.figures import plan_figures
    from core.records.store import Records

    records = Records()
    try:
        return plan_figures(plan, gpu, records, job.check)
    finally:
        records.close()


def _run(plan: FusionPlan, gpu: str, source: str) -> Run:
    from core.device import resolve_gpu
    from core.records.store import Records
    from core.tuner.replay import events_from_records
    from core.tuner.runfile import read_run

    if source != RECORDS:
        events = read_run(Path(source))
    else:
        records = Records()
        try:
            events = events_from_records(plan, records, resolve_gpu(gpu).name)
        finally:
            records.close()
    run = Run(replayed=source != RECORDS)
    run.apply([timed.event for timed in events])
    return run


def whole_context(document: Document, gpu: str) -> Callable[[Job], Context]:
    """What works out, beside the window, all that the charts of one document need."""
    worked_out, here, asked = _gains(document, gpu), _exported(document), _in_benchmarks(document)

    def context(job: Job) -> Context:
        whole = _whole(*asked) if here is None and asked is not None else here
        return Context(gpu, gains=worked_out(job), whole=whole)

    return context


def _gains(document: Document, gpu: str) -> Callable[[Job], Gains]:
    """The document is read now; what is returned works beside the window."""
    run, graph, plan = document.run, document.graph, document.plan
    here = {
        key: Timed(w.best.us, min(w.best.us, w.vendor.us if w.vendor else w.best.us), f"{w.age} runs ago")
        for key, w in run.workloads.items()
        if w.best is not None
    }
    said, driver = run.provenance, run.gpu or gpu

    def work(job: Job) -> Gains:
        from core.gains import gains, recorded_times
        from core.records.store import Records

        known, records = known_gpu(driver), Records()
        try:
            job.check()
            name = known.name if known else driver
            return gains(graph, plan, [(said, here.get), ("from records", recorded_times(records, name))], known)
        finally:
            records.close()

    return work


def _exported(document: Document) -> Whole | None:
    return document.whole[1] if document.whole is not None and document.whole[0] == document.plan else None


def _in_benchmarks(document: Document) -> tuple[str, str] | None:
    """The name in the benchmarks' table and the GPU; None where nothing there can be this document."""
    session = document.session
    if document.plan != document.automatic or session.batch is None or str(session.dtype) != "f16":
        return None
    return f"{document.title} b{session.batch}", document.run.gpu


def _whole(name: str, gpu: str) -> Whole | None:
    from core.bench.table import recorded

    data = recorded("models")
    row = next((r for r in data["rows"] if r["name"] == name and r["ours_us"]), None)
    if row is None or data["gpu"] != gpu:
        return None
    return Whole(float(row["ours_us"]), f"recorded {data['date']}")
