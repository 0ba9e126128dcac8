"""Tune, pause, cancel and replay: the run's actions, and what the window says of it."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QFileDialog

from app import tuning
from app.bridge import EventBridge
from app.document import Document
from app.exporting import gpu_title
from app.format import seconds
from app.graph.model import box_line
from app.queue import Wish
from core.errors import BoltError
from core.fusion.plan import FusionPlan
from core.tuner.events import Event
from templates.gpu import known_gpu
from templates.workload import Workload

if TYPE_CHECKING:
    from app.window import MainWindow


class TuneControl(QObject):
    """Knows which GPU is here and which is meant, and runs one job at a time on the window's document."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self.here: str | None = None
        self.tuned: Document | None = None  # the document that the running job is of
        self.queue = window.queue
        self._replay_next = False  # once the model that is being opened is there
        window.documents.opened.connect(self._opened)
        self.bridge = EventBridge(self)
        self.job = tuning.Tuning(self.bridge, self)
        self.bridge.batch.connect(self._take)
        self.job.failed.connect(window.messages.show_error)
        self.job.ended.connect(self._ended)
        self.job.state_changed.connect(self.enable)
        a = window.commands
        a["tune"].triggered.connect(self.tune)
        a["pause"].triggered.connect(self.job.pause)
        a["cancel"].triggered.connect(self.cancel)
        a["replay"].triggered.connect(self.choose_run)
        a["replay_records"].triggered.connect(self.replay)
        a["tune_selected"].triggered.connect(lambda: self.tune_selected(anew=False))
        a["retune"].triggered.connect(lambda: self.tune_selected(anew=True))
        a.gpu.currentIndexChanged.connect(self.enable)
        window.candidates.again_wanted.connect(self.again)
        window.background.start("looking for a GPU", lambda job: _find_gpu(), self._gpu_found, self._no_gpu)
        self._count()
        window.status.speed.activated.connect(self._speed_chosen)

    def _speed_chosen(self) -> None:
        self.window.settings.speed = float(self.window.status.speed.currentData())
        self.job.set_speed(self.window.settings.speed)

    @property
    def running(self) -> bool:
        return self.job.running

    @property
    def gpu(self) -> str:
        """The GPU that is meant, by short or driver's name."""
        return str(self.window.commands.gpu.currentData())

    @property
    def gpu_is_here(self) -> bool:
        return self.here is not None and self.gpu == self.here

    @property
    def can_measure(self) -> bool:
        """The GPU that is meant is here, or a scheduler's workers are asked for it."""
        return self.gpu_is_here or bool(self.window.settings.scheduler)

    @property
    def not_here(self) -> str:
        """Why nothing can be measured on the GPU that is meant; "" where it can."""
        if self.gpu_is_here:
            return ""
        return f"There is no {gpu_title(self.gpu)} in this machine, so nothing can be measured here."

    def choose_gpu(self, name: str) -> None:
        """Aim at a GPU, by short or driver's name; one that is not known leaves the choice as it is."""
        known = known_gpu(name)
        box = self.window.commands.gpu
        found = [i for i in range(box.count()) if known_gpu(str(box.itemData(i))) == known or box.itemData(i) == name]
        if found and not self.running:
            box.setCurrentIndex(found[0])

    def enable(self) -> None:
        """What can be done now; what can't says why in its tooltip."""
        document, a = self.window.document, self.window.commands
        busy = "A job is running." if self.running else ""
        if document is None:
            nothing = "Open a model first."
        else:
            nothing = "" if document.plan.workloads else "The plan has no region that is tuned."
        for name in ("tune", "replay_records"):
            a.allow(name, nothing or busy)
        a.allow("replay", busy)
        unselected = "" if self.selected_workloads() else "Select a tuned region first."
        for name in ("tune_selected", "retune"):
            a.allow(name, nothing or ("" if self.can_measure else self.not_here) or unselected)
        for name in ("pause", "cancel"):
            a.allow(name, "" if busy else "No job is running.")
        self.window.candidates.not_here = self.not_here
        a["pause"].setChecked(self.job.paused)
        a["pause"].setText("Resume" if self.job.paused else "Pause")
        a.gpu.setEnabled(not self.running)
        for box in (a.batch, a.dtype):
            box.setEnabled(document is not None and document is not self.tuned)
        shown = self.tuned or document
        if shown is not None:
            self.window.status.show_run(shown.run, self.job.paused)

    def tune(self) -> None:
        """Measure here; without that GPU, offer what was recorded on one."""
        document = self.window.document
        if document is None or self.running:
            return
        if self.can_measure:
            self._start(self._live(document.plan), replayed=False)
        else:
            self._say_not_here()

    def selected_workloads(self) -> list[Workload]:
        """Of the selected nodes' regions, each once."""
        document = self.window.document
        if document is None:
            return []
        regions = {r.id: r for n in document.selected_nodes() if (r := document.plan.region_of(n)) is not None}
        found = {r.workload.key: r.workload for r in regions.values() if r.workload is not None}
        return list(found.values())

    def tune_selected(self, anew: bool) -> None:
        """Measure the selected regions alone, now or when the running job is over.

        `anew` leaves aside what the records hold of them.
        """
        document, workloads = self.window.document, self.selected_workloads()
        if document is None or not workloads:
            return
        ids = [r.id for w in workloads for r in document.plan.workloads[w.key]]
        self.queue.add(Wish(document, tuple(workloads), box_line(ids), anew))
        if not self.running:
            self._start_next()

    def retune(self, key: str) -> None:
        """Measure the region of a workload anew."""
        document = self.window.document
        regions = document.plan.workloads.get(key, []) if document is not None else []
        if document is not None and regions:
            document.select_region(regions[0])
            self.tune_selected(anew=True)

    def again(self, key: str, candidate: str) -> None:
        """Measure one candidate again, now or when the running job is over."""
        document = self.window.document
        regions = document.plan.workloads.get(key, []) if document is not None else []
        if document is not None and regions and regions[0].workload is not None and self.gpu_is_here:
            title = f"{regions[0].id}, {candidate} again"
            self.queue.add(Wish(document, (regions[0].workload,), title, candidate=candidate))
            if not self.running:
                self._start_next()

    def _start_next(self) -> None:
        wish = self.queue.take()
        if wish is None:
            return
        if wish.candidate:
            self._start(tuning.again(wish.workloads[0], wish.candidate), False, (), wish.document)
        else:
            source = self._live(list(wish.workloads), wish.anew)
            self._start(source, False, [w.key for w in wish.workloads], wish.document)

    def _live(self, work: FusionPlan | list[Workload], anew: bool = False) -> tuning.Source:
        settings = self.window.settings
        if settings.scheduler:
            return tuning.on_cluster(work, settings.scheduler, self.gpu, settings.budget_minutes, anew)
        return tuning.live(work, settings.budget_minutes, anew)

    def _say_not_here(self) -> None:
        document, gpu = self.window.document, self.gpu
        if document is not None:
            self.window.background.start(
                "looking for a recorded run",
                lambda job: (tuning.recorded_batch(document.title, gpu), tuning.can_replay(document.plan, gpu)),
                lambda found: self._offer_replay(document, *found),
                self.window.messages.show_error,
            )

    def _offer_replay(self, document: Document, batch: int | None, plays: bool) -> None:
        """Of the model as it is open, or at the batch size that a run was recorded at."""
        said = f"{self.not_here} "
        if batch is not None and batch != document.session.batch:
            self.window.messages.show_text(
                "info", f"{said}A run of {document.title} at batch {batch} was recorded on one and can be replayed.",
                f"Open at batch {batch} and replay", lambda: self._replay_at(document, batch),
            )  # fmt: skip
        elif not plays:
            self.window.messages.show_text(
                "info", f"{said}Nothing was recorded of this model either, so its times stay estimates. Tune it on a "
                "machine with that GPU (Settings can name a scheduler), or import such a machine's records in Records.",
            )  # fmt: skip
        else:
            self.window.messages.show_text(
                "info", f"{said}What was recorded on one can be replayed; every number then says so.",
                "Replay", self.replay,
            )  # fmt: skip

    def _replay_at(self, document: Document, batch: int) -> None:
        if document not in self.window.documents.all:
            return  # its tab was closed while the offer stood
        self.window.documents.show(document)
        self._replay_next = True
        self.window.documents.reopen(batch, document.session.dtype)

    def _opened(self) -> None:
        if self._replay_next:
            self._replay_next = False
            self.replay()

    def replay(self) -> None:
        """Play the shipped run or the records of the chosen GPU for the open model."""
        document = self.window.document
        if document is not None and not self.running:
            self._start(tuning.best_replay(document.plan, self.gpu, self.window.settings.speed), replayed=True)

    def choose_run(self) -> None:
        from core.tuner.runfile import RUNS

        folder = str(RUNS) if RUNS.is_dir() else ""
        chosen, _ = QFileDialog.getOpenFileName(self.window, "Replay a run", folder, "Recorded runs (*.jsonl.gz)")
        if chosen:
            self.replay_file(Path(chosen))

    def replay_file(self, path: Path) -> None:
        if self.window.document is None:
            self.window.messages.show_text("info", "Open the model of the run first, then replay it.")
        elif not self.running:
            self._start(tuning.replay_file(path, self.window.settings.speed), replayed=True)

    def start(self, source: tuning.Source, replayed: bool) -> None:
        """Run another source: tests bring their own."""
        self._start(source, replayed)

    def _start(
        self,
        source: tuning.Source,
        replayed: bool,
        only: Collection[str] | None = None,
        document: Document | None = None,
    ) -> None:
        """`only`: the workloads that the run begins from nothing; None for a run of the whole plan."""
        self.window.messages.hide()
        self.tuned = document or self.window.document
        assert self.tuned is not None
        speeds = self.window.status.speed
        speeds.setCurrentIndex(max(0, speeds.findData(self.window.settings.speed)))
        self.tuned.start_run(replayed, only)
        self.job.start(source)

    def cancel(self) -> None:
        """Stop the job, and what waits behind it."""
        self.queue.clear()
        self.job.cancel()
        self.window.status.job.setText("stopping; what was measured is kept")

    def _take(self, events: "list[Event]") -> None:
        if self.tuned is not None:
            self.tuned.run.file = self.job.file
            self.tuned.apply(events)
            self.window.status.show_run(self.tuned.run, self.job.paused)

    def _ended(self) -> None:
        document, self.tuned = self.tuned, None
        result = document.run.result if document is not None else None
        if document is not None:
            self._tell_result(document)
            document.take_back_run()
            QApplication.alert(self.window)
        self.window.records.outdate()
        self._count()
        self.window.job_ended()
        if result is not None and not result.error:
            self._start_next()

    def _tell_result(self, document: Document) -> None:
        run = document.run
        self.window.status.show_run(run, False)
        if run.result is None or run.result.error:
            return
        if run.workloads and not set(run.workloads) & set(document.plan.workloads):
            self.window.messages.show_text(
                "warning",
                f"The run is of {run.model} at another batch, type or plan: none of its workloads is in what is open.",
            )
            return
        faster = [w.speedup for w in run.workloads.values() if w.speedup is not None]
        better = sum(s >= 1 for s in faster)
        against = f" {better} of {len(faster)} are at least as fast as the vendor." if faster else ""
        verb = "Stopped" if run.result.cancelled else "Replayed" if run.replayed else "Tuned"
        done = sum(1 for w in run.workloads.values() if w.best)
        took = f" in {seconds(run.result.seconds)}" if not run.replayed else f", recorded on {run.gpu}"
        self.window.messages.show_text("done", f"{verb} {done} of {len(run.workloads)} workloads{took}.{against}")

    def _gpu_found(self, name: str) -> None:
        self.here = name
        self.window.commands.set_gpus(name)
        self.window.status.show_gpu(name.removeprefix("NVIDIA "))
        self.enable()

    def _no_gpu(self, error: BoltError) -> None:
        self.window.status.show_gpu("no GPU here")
        self.window.status.gpu.setToolTip(str(error))

    def _count(self) -> None:
        background = self.window.background
        background.start("counting records", lambda job: _count_records(), self._counted, self._not_counted)

    def _counted(self, text: str) -> None:
        self.window.status.show_records(text)

    def _not_counted(self, error: BoltError) -> None:
        self.window.status.show_records("records: not readable")
        self.window.status.records.setToolTip(str(error))

    def close(self) -> None:
        self.job.close()


def _find_gpu() -> str:
    from core.device import detect_gpu

    return detect_gpu().name


def _count_records() -> str:
    from core.records.store import Records

    records = Records()
    try:
        return f"records: {records.count():,}"
    finally:
        records.close()
