"""Two charts side by side, each chosen from a list; they are drawn when seen, and exported from here."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLabel, QSplitter, QToolButton, QVBoxLayout, QWidget

from app.background import Background, Job
from app.charts import compare, gains, regions
from app.charts.picture import Context, Picture
from app.charts.view import ChartView
from app.document import Document
from app.follow import Follower
from app.panels.chart_facts import RECORDS, ChartFacts, run_title
from app.plan_compare import offer_plans
from app.run import Changes
from app.theme import Theme, icon
from core.errors import BoltError
from core.paths import RESOURCES
from templates.gpu import KNOWN_GPUS

GPUS, RUNS, PLANS = "GPU A against B", "Run A against B", "Plan A against B"
RUNS_FOLDER = RESOURCES / "runs"
Draw = Callable[[Document, Context], Picture]
CHARTS: dict[str, Draw] = {
    "Regions against the vendor": regions.against_vendor,
    "Latency by region": regions.waterfall,
    "Roofline": regions.roofline,
    "Tuning history": regions.history,
    gains.TITLE: gains.fusion,
    PLANS: compare.plans,
    RUNS: compare.runs,
    GPUS: compare.gpus,
}
LIVE_MS = 250  # between two drawings while a job runs
STEP_MS = 10  # between two charts
OF_SELECTION = ("Tuning history",)
NEEDS = {GPUS: "gpus", RUNS: "runs", gains.TITLE: "gains", "Latency by region": "whole"}  # beyond the document
ASK = "ask"  # in place of a run: a file dialog
KINDS = "Picture (*.png);;Drawing (*.svg);;Table (*.csv)"


class ChartPane(QWidget):
    """One chart with its list and its tools. `changed` asks the panel to draw."""

    changed = Signal()
    failed = Signal(object)  # BoltError

    def __init__(self, theme: Theme, first: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.kind, self.other, self.run = QComboBox(), QComboBox(), QComboBox()
        self.kind.addItems(list(CHARTS))
        self.kind.setCurrentText(first)
        self.kind.setAccessibleName("Chart")
        self.other.setAccessibleName("The other GPU")
        self.plans = (QComboBox(), QComboBox())
        for name, box in zip("AB", self.plans, strict=True):
            box.setAccessibleName(f"Plan {name}")
            box.setToolTip(f"Plan {name}")
        boxes = (self.kind, self.other, self.run, *self.plans)
        for box in boxes:
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(8)
            box.setMaximumWidth(240)
        for name, spec in KNOWN_GPUS.items():
            self.other.addItem(spec.name.removeprefix("NVIDIA "), name)
        self.run.setAccessibleName("The run to compare with")
        self.run.addItem("The run before this one", "")
        self.run.addItem("The records", RECORDS)
        for path in sorted(RUNS_FOLDER.glob("*.jsonl.gz")):
            self.run.addItem(run_title(str(path)), str(path))
        self.run.addItem("A run file…", ASK)
        self.view = ChartView(theme)
        self.copy, self.save = QToolButton(), QToolButton()
        for button, tip in ((self.copy, "Copy picture and table"), (self.save, "Save as PNG, SVG or CSV")):
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setIconSize(QSize(16, 16))
        self.empty = QLabel(wordWrap=True)
        self.empty.setObjectName("muted")
        self.empty.setMargin(16)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 5, 8, 3)
        bar.setSpacing(6)
        for box in boxes:
            bar.addWidget(box, 4)
        bar.addStretch(1)
        bar.addWidget(self.copy)
        bar.addWidget(self.save)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.view, 1)
        layout.addWidget(self.empty, 1)
        self.kind.currentIndexChanged.connect(self.changed)
        for box in (self.other, *self.plans):
            box.currentIndexChanged.connect(self.changed)
        self.run.currentIndexChanged.connect(self._run_chosen)
        self.copy.clicked.connect(self.view.copy)
        self.save.clicked.connect(self.ask)
        self.set_theme(theme)
        self.show_picture(Picture("", empty="No model is open."))

    @property
    def name(self) -> str:
        return self.kind.currentText()

    @property
    def chosen(self) -> str:
        """The GPU or run on the other side, as the chart that is shown needs it."""
        return str((self.other if self.name == GPUS else self.run).currentData())

    def _run_chosen(self) -> None:
        if self.run.currentData() == ASK:
            folder = str(RUNS_FOLDER) if RUNS_FOLDER.is_dir() else ""
            path, _ = QFileDialog.getOpenFileName(self, "Compare with a run", folder, "Recorded runs (*.jsonl.gz)")
            self.choose_run(path)
        else:
            self.changed.emit()

    def choose_run(self, path: str) -> None:
        """Compare with a run file; "" with the run before."""
        at = self.run.findData(path)
        if at < 0:
            at = self.run.count() - 1
            self.run.insertItem(at, run_title(path), path)
        self.run.setCurrentIndex(at)

    def set_theme(self, theme: Theme) -> None:
        self.copy.setIcon(icon("copy", theme))
        self.save.setIcon(icon("save", theme))
        self.view.set_theme(theme)

    def show_picture(self, picture: Picture) -> None:
        something = bool(picture.marks)
        self.other.setVisible(self.name == GPUS)
        self.run.setVisible(self.name == RUNS)
        for box in self.plans:
            box.setVisible(self.name == PLANS)
        self.view.setVisible(something)
        self.empty.setVisible(not something)
        self.empty.setText(picture.empty)
        for button in (self.copy, self.save):
            button.setEnabled(something)
        if something:
            self.view.draw(picture)
        else:
            self.view.picture = picture

    def ask(self) -> None:
        name = self.view.picture.title.replace(" ", "-").replace(":", "").lower()
        chosen, kind = QFileDialog.getSaveFileName(self, "Save the chart", f"{name}.png", KINDS)
        if not chosen:
            return
        path = Path(chosen)
        if not path.suffix:
            path = path.with_suffix("." + kind.partition("*.")[2].rstrip(")"))
        try:
            self.view.save(path)
        except BoltError as error:
            self.failed.emit(error)


class ChartsPanel(QWidget):
    failed = Signal(object)  # BoltError

    def __init__(self, theme: Theme, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.background = background
        self.document: Document | None = None
        self.gpu = ""  # the one that is meant, by the window
        self._loading: Job | None = None
        self.facts = ChartFacts(background, self)
        self._dirty = True
        self._turn = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._draw_next)
        self.facts.ready.connect(self.refresh)
        self.facts.failed.connect(self.failed)
        names = list(CHARTS)
        self.panes = (ChartPane(theme, names[0]), ChartPane(theme, "Tuning history"))
        self.splitter = QSplitter()
        for pane in self.panes:
            self.splitter.addWidget(pane)
            pane.changed.connect(partial(self._redraw, pane))
            pane.failed.connect(self.failed)
        self.splitter.setStretchFactor(0, 3)
        self.splitter.setStretchFactor(1, 2)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.splitter)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.run_changed, self._take),
                (document.plan_changed, self._plans_changed),
                (document.selection_changed, self._selection_changed),
                (document.estimates_changed, self.refresh),
                (document.exported, self.refresh),
            )
        self._plans_changed()

    def set_theme(self, theme: Theme) -> None:
        for pane in self.panes:
            pane.set_theme(theme)

    def _plans_changed(self) -> None:
        if self.document is not None:
            for pane in self.panes:
                offer_plans(self.document, *pane.plans)
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._dirty:
            self.refresh()

    def _take(self, changes: Changes) -> None:
        if changes.finished:
            self.refresh()
        elif (changes.workloads or changes.started) and not self._timer.isActive():
            self._turn = 0
            self._timer.start(LIVE_MS)

    def _draw_next(self) -> None:
        """One chart a tick, so that the window answers in between."""
        self._timer.stop()
        self._dirty = not self.isVisible()
        if not self._dirty and self._turn < len(self.panes) and self._library_is_here():
            self._draw(self.panes[self._turn])
            self._turn += 1
            self._timer.start(STEP_MS)

    def _selection_changed(self) -> None:
        if self.isVisible():
            for pane in self.panes:
                if pane.name in OF_SELECTION:
                    self._draw(pane)

    def refresh(self) -> None:
        """Draw again, now if it is visible, else when it is shown; the charts one after another."""
        self._turn = 0
        self._draw_next()

    def _redraw(self, pane: ChartPane) -> None:
        """Another chart was chosen."""
        if self.isVisible():
            self._draw(pane)

    def _draw(self, pane: ChartPane) -> None:
        if self.document is None:
            pane.show_picture(Picture("", empty="No model is open."))
        elif self._library_is_here():
            pane.show_picture(CHARTS[pane.name](self.document, self._context(pane)))

    # pyqtgraph takes most of a second to import, which the window must not wait for -------------------------------

    def _library_is_here(self) -> bool:
        if self._loading is None and "pyqtgraph" in sys.modules:
            return True
        if self._loading is None:
            self._loading = self.background.start(
                "loading charts", lambda job: _import_charts(), self._loaded, self._broken
            )
        return False

    def _loaded(self, _: object) -> None:
        self._loading = None
        self.refresh()

    def _broken(self, error: BoltError) -> None:
        for pane in self.panes:
            pane.show_picture(Picture("", empty=str(error)))

    def _context(self, pane: ChartPane) -> Context:
        assert self.document is not None
        made = self.facts.context(NEEDS.get(pane.name, ""), self.document, self.gpu, pane.chosen)
        return replace(made, plans=(pane.plans[0].currentText(), pane.plans[1].currentText()))


def _import_charts() -> None:
    import pyqtgraph  # noqa: F401
