"""Two charts side by side, each chosen from a list; they are drawn when seen, and exported from here."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLabel, QSplitter, QToolButton, QVBoxLayout, QWidget

from app.background import Background, Job
from app.charts import compare, regions
from app.charts.picture import Context, Picture
from app.charts.view import ChartView
from app.document import Document
from app.follow import Follower
from app.run import Changes
from app.theme import Theme, icon
from core.errors import BoltError
from core.fusion.plan import FusionPlan
from templates.gpu import KNOWN_GPUS

Draw = Callable[[Document, Context], Picture]
CHARTS: dict[str, Draw] = {
    "Regions against the vendor": regions.against_vendor,
    "Latency by region": regions.waterfall,
    "Roofline": regions.roofline,
    "Tuning history": regions.history,
    "Plan A against B": compare.plans,
    "Run A against B": compare.runs,
    "GPU A against B": compare.gpus,
}
LIVE_MS = 250  # between two drawings while a job runs
STEP_MS = 10  # between two charts
OF_SELECTION = ("Tuning history",)
GPUS = "GPU A against B"
KINDS = "Picture (*.png);;Drawing (*.svg);;Table (*.csv)"


class ChartPane(QWidget):
    """One chart with its list and its tools. `changed` asks the panel to draw."""

    changed = Signal()
    failed = Signal(object)  # BoltError

    def __init__(self, theme: Theme, first: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.kind, self.other = QComboBox(), QComboBox()
        self.kind.addItems(list(CHARTS))
        self.kind.setCurrentText(first)
        self.kind.setAccessibleName("Chart")
        self.other.setAccessibleName("The other GPU")
        for name, spec in KNOWN_GPUS.items():
            self.other.addItem(spec.name.removeprefix("NVIDIA "), name)
        self.view = ChartView(theme)
        self.copy, self.save = QToolButton(), QToolButton()
        for button, tip in ((self.copy, "Copy picture and table"), (self.save, "Save as PNG, SVG or CSV")):
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setIconSize(QSize(16, 16))
        self.empty = QLabel()
        self.empty.setObjectName("muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 5, 8, 3)
        bar.addWidget(self.kind)
        bar.addWidget(self.other)
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
        self.other.currentIndexChanged.connect(self.changed)
        self.copy.clicked.connect(self.view.copy)
        self.save.clicked.connect(self.ask)
        self.set_theme(theme)
        self.show_picture(Picture("", empty="No model is open."))

    @property
    def name(self) -> str:
        return self.kind.currentText()

    def set_theme(self, theme: Theme) -> None:
        self.copy.setIcon(icon("copy", theme))
        self.save.setIcon(icon("save", theme))
        self.view.set_theme(theme)

    def show_picture(self, picture: Picture) -> None:
        something = bool(picture.marks)
        self.other.setVisible(self.name == GPUS)
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
        self._figuring: Job | None = None
        self._figures: dict[tuple[int, str], dict[str, tuple[float, bool]]] = {}  # (plan, GPU)
        self._dirty = True
        self._turn = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._draw_next)
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
                (document.plan_changed, self.refresh),
                (document.selection_changed, self._selection_changed),
                (document.estimates_changed, self.refresh),
            )
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        for pane in self.panes:
            pane.set_theme(theme)

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

    # Figures of GPUs -----------------------------------------------------------------------------------------------

    def _context(self, pane: ChartPane) -> Context:
        if pane.name != GPUS or self.document is None:
            return Context(self.gpu)
        other = str(pane.other.currentData())
        here, there = self._known(self.gpu), self._known(other)
        if here is None or there is None:
            return Context(self.gpu, other)
        return Context(self.gpu, other, here, there)

    def _known(self, gpu: str) -> dict[str, tuple[float, bool]] | None:
        """What is known of the plan on a GPU; None while it is worked out in the background."""
        assert self.document is not None
        plan = self.document.plan
        found = self._figures.get((id(plan), gpu))
        if found is None and self._figuring is None:
            self._figuring = self.background.start(
                f"figures of {gpu}", lambda job: _figures(plan, gpu, job), lambda f: self._figured(id(plan), gpu, f),
                lambda error: self._figured(id(plan), gpu, {}, error),
            )  # fmt: skip
        return found

    def _figured(
        self, plan: int, gpu: str, figures: dict[str, tuple[float, bool]], error: BoltError | None = None
    ) -> None:
        self._figuring = None
        self._figures[plan, gpu] = figures
        if error is not None:
            self.failed.emit(error)
        self.refresh()


def _figures(plan: FusionPlan, gpu: str, job: Job) -> dict[str, tuple[float, bool]]:
    from core.figures import plan_figures
    from core.records.store import Records

    records = Records()
    try:
        return plan_figures(plan, gpu, records, job.check)
    finally:
        records.close()


def _import_charts() -> None:
    import pyqtgraph  # noqa: F401
