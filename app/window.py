"""The main window: puts the panels together and connects the actions; the controllers and panels do the work."""

from functools import partial
from typing import Protocol

from PySide6.QtCore import QByteArray, QPoint, Qt, QTimer
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QDockWidget, QMainWindow, QMenu, QStackedWidget, QTabWidget, QVBoxLayout, QWidget

from app import edits, theme
from app.actions import Actions
from app.advice_control import AdviceControl
from app.background import Background
from app.document import Document
from app.documents import Documents, ask_to_drop, dropped
from app.estimates import Estimates
from app.explaining import Explaining
from app.export_control import ExportControl
from app.exporting import Exporter
from app.follow import Follower
from app.graph.canvas import Canvas
from app.messages import MessageBar
from app.netron_control import NetronControl
from app.panels.advice import AdvicePanel
from app.panels.candidates import CandidatesPanel
from app.panels.charts import ChartsPanel
from app.panels.details import DetailsPanel
from app.panels.log import LogPanel
from app.panels.nodes import NodesPanel
from app.panels.queue import QueuePanel
from app.panels.records import RecordsPanel
from app.panels.regions import RegionsPanel
from app.panels.source import SourcePanel
from app.plan_control import PlanControl
from app.project_control import ProjectControl
from app.queue import Queue
from app.report import ReportControl
from app.run import Changes
from app.settings import Settings
from app.status import Status
from app.theme import Theme
from app.tune_control import TuneControl
from app.view_control import ViewControl
from app.welcome import Welcome
from templates.types import DType

Area = Qt.DockWidgetArea
LAYOUT_VERSION = 2
PLACES = "| rf smem anywhere "
MENU = f"fuse split pin | forbid allow {PLACES}| tune_selected retune | select_region zoom producers consumers copy"


class Panel(Protocol):
    """What the window asks of every panel."""

    def set_document(self, document: Document | None) -> None: ...
    def set_theme(self, theme: Theme) -> None: ...


class MainWindow(QMainWindow):
    """`exporter` replaces the core's exporter in tests."""

    def __init__(self, chosen: Theme, exporter: Exporter | None = None) -> None:
        super().__init__()
        self.theme = chosen
        self.settings, self.background = Settings(), Background(self)
        self._leaving = False
        self._links = Follower()
        self.setWindowTitle("Bolt Workbench")
        self.setWindowIcon(theme.icon("logo", chosen, "accent"))
        room = self.screen().availableSize()
        self.resize(min(1440, room.width()), min(900, room.height()))
        self.setAcceptDrops(True)
        self.setDockNestingEnabled(True)
        self.commands = Actions(self, chosen)
        self.status = Status(self)
        self.setStatusBar(self.status)
        self.documents = Documents(self)
        self._build_panels()
        self._build_actions()
        self.plans, self.projects = PlanControl(self), ProjectControl(self)
        self.tuning = TuneControl(self)
        self.estimates = Estimates(self)
        self.netron = NetronControl(self)
        self.exports = ExportControl(self, exporter)
        self.reports = ReportControl(self)
        self.views, self.advising = ViewControl(self), AdviceControl(self, self.advice)
        self._connect()
        self._arranged = self.saveState(LAYOUT_VERSION)
        self._restore_layout()
        self._switched()
        QTimer.singleShot(0, self.projects.offer_restore)

    @property
    def document(self) -> Document | None:
        """The model that is shown."""
        return self.documents.current

    # Putting together ----------------------------------------------------------------------------------------------

    def _build_panels(self) -> None:
        t = self.theme
        self.messages = MessageBar(t)
        self.canvas, self.welcome = Canvas(t), Welcome(t)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.welcome)
        self.pages.addWidget(self.canvas)
        centre = QWidget()
        layout = QVBoxLayout(centre)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.documents.tabs)
        layout.addWidget(self.messages)
        layout.addWidget(self.pages, 1)
        self.setCentralWidget(centre)
        self.explaining = Explaining(self.background, self)
        self.regions, self.nodes, self.details = RegionsPanel(t), NodesPanel(t), DetailsPanel(t, self.explaining)
        self.candidates, self.charts = CandidatesPanel(t, self.explaining), ChartsPanel(t, self.background)
        self.log, self.queue, self.advice = LogPanel(t), Queue(self), AdvicePanel(t)
        self.records, self.source = RecordsPanel(t, self.background), SourcePanel(t, self.explaining)
        left = (("Regions", self.regions), ("Nodes", self.nodes))
        bottom = (
            ("Candidates", self.candidates),
            ("Charts", self.charts),
            ("Advice", self.advice),
            ("Source", self.source),
            ("Queue", QueuePanel(t, self.queue)),
            ("Records", self.records),
            ("Log", self.log),
        )
        self.panels: tuple[Panel, ...] = (self.regions, self.nodes, self.details, *(page for _, page in bottom))
        self.left, self.bottom = _tabs(left), _tabs(bottom)
        self.setCorner(Qt.Corner.BottomLeftCorner, Area.BottomDockWidgetArea)
        self.setCorner(Qt.Corner.BottomRightCorner, Area.BottomDockWidgetArea)
        self.docks = [
            self._dock("Model", self.left, Area.LeftDockWidgetArea),
            self._dock("Details", self.details, Area.RightDockWidgetArea),
            self._dock("Run", self.bottom, Area.BottomDockWidgetArea),
        ]
        self.left.setMinimumWidth(236)
        self.details.setMinimumWidth(250)
        self.resizeDocks(self.docks[:2], [290, 310], Qt.Orientation.Horizontal)
        self.resizeDocks(self.docks[2:], [250], Qt.Orientation.Vertical)

    def _dock(self, title: str, widget: QWidget, area: Area) -> QDockWidget:
        dock = QDockWidget(title, self)
        dock.setObjectName(title)
        dock.setWidget(widget)
        dock.topLevelChanged.connect(lambda floating: dock.setTitleBarWidget(None if floating else QWidget(dock)))  # type: ignore[arg-type]
        dock.setTitleBarWidget(QWidget(dock))
        self.addDockWidget(area, dock)
        return dock

    def _build_actions(self) -> None:
        self.undo_action = QAction("Undo", self)
        self.redo_action = QAction("Redo", self)
        for action, name, keys in ((self.undo_action, "undo", "Ctrl+Z"), (self.redo_action, "redo", "Ctrl+Shift+Z")):
            action.setIcon(theme.icon(name, self.theme))
            action.setShortcut(keys)
            self.addAction(action)
        self.commands.build(self.undo_action, self.redo_action)
        for name in ("back", "forward", "fold", "lasso", "fit", "find"):
            self.canvas.legend.tools.addWidget(self.commands.small_button(name))
        for dock in self.docks:
            self.commands.panels_menu.addAction(dock.toggleViewAction())

    def _connect(self) -> None:
        a, documents = self.commands, self.documents
        self.undo_action.triggered.connect(self.undo)
        self.redo_action.triggered.connect(self.redo)
        a["open"].triggered.connect(documents.choose)
        a["close_tab"].triggered.connect(documents.close_current)
        a["quit"].triggered.connect(self.close)
        for sample in a.sample_actions:
            sample.triggered.connect(partial(self.open, sample.text()))
        a.batch.activated.connect(self._reopen)
        a.dtype.activated.connect(self._reopen)
        a.recent_menu.aboutToShow.connect(documents.fill_recent)
        documents.switched.connect(self._switched)
        self.welcome.open_wanted.connect(documents.choose)
        self.welcome.chosen.connect(self.open)
        self.regions.chosen.connect(self.zoom_to_selection)
        self.regions.menu_wanted.connect(self._context_menu)
        self.nodes.chosen.connect(self.zoom_to_selection)
        self.canvas.view.menu_wanted.connect(self._context_menu)
        self.canvas.view.opened.connect(self.details.text.setFocus)
        self.candidates.row_chosen.connect(self._select_workload)
        self.candidates.retune_wanted.connect(self.tuning.retune)
        for panel in (self.charts, self.records):
            panel.failed.connect(self.messages.show_error)
        self.records.told.connect(partial(self.messages.show_text, "done"))
        a.gpu.currentIndexChanged.connect(self._gpu_chosen)
        self._gpu_chosen()

    # Layout -------------------------------------------------------------------------------------------------------

    def _restore_layout(self) -> None:
        kept = self.settings.layout
        if kept is not None:
            self.restoreGeometry(kept[0])
            self.restoreState(kept[1], LAYOUT_VERSION)

    def reset_layout(self) -> None:
        self.settings.forget_layout()
        self.restoreState(QByteArray(self._arranged), LAYOUT_VERSION)
        for dock in self.docks:
            dock.show()

    # Opening ------------------------------------------------------------------------------------------------------

    def open_later(self, source: str) -> None:
        """Open once the window is on the screen."""
        QTimer.singleShot(0, lambda: self.open(source))

    def open(self, source: str, *_: object) -> None:
        self.documents.open(source)

    @property
    def aspect(self) -> float:
        """Width over height of the room for the graph."""
        size = self.pages.size()
        return max(0.4, size.width() / max(1, size.height()))

    def remember(self, path: str) -> None:
        self.settings.add_recent(path)

    def _gpu_chosen(self) -> None:
        for panel in (self.charts, self.source, self.details):
            panel.gpu = self.tuning.gpu
            panel.refresh()

    def _reopen(self) -> None:
        a = self.commands
        batch = int(a.batch.currentText()) if a.batch.currentText().isdecimal() else None
        self.documents.reopen(batch, DType(a.dtype.currentData()))

    def show_waiting(self, text: str) -> None:
        """Say what is being opened, if nothing is shown yet."""
        if self.document is None:
            self.canvas.say(text)
            self.pages.setCurrentWidget(self.canvas)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if dropped(event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        for path in dropped(event.mimeData().urls()):
            event.acceptProposedAction()
            self.open(path)

    # What is shown --------------------------------------------------------------------------------------------------

    def _switched(self) -> None:
        """Another model is shown, or none."""
        document = self.document
        if document is None:
            self._links.follow()
            self.canvas.clear()
            self.canvas.say("")
            self.welcome.show_recent(self.settings.recent)
            self.setWindowTitle("Bolt Workbench")
        elif document is not self.canvas.view.document:
            self._follow(document)
            self.canvas.show_document(document)
            self.setWindowTitle(f"{document.title} - Bolt Workbench")
            self.views.take_view(document)
        if document is None or document is not self.details.document:
            for panel in self.panels:
                panel.set_document(document)
            self._tell_opened(document)
        self.pages.setCurrentWidget(self.welcome if document is None else self.canvas)
        self._show_choices(document)
        self._enable()
        self.estimates.refresh()

    def _follow(self, document: Document) -> None:
        self._links.follow(
            (document.selection_changed, self._enable),
            (document.plan_changed, self._plan_changed),
            (document.run_changed, self._run_changed),
            (document.shape_changed, self._shape_changed),
            (document.undo.indexChanged, self._enable),
        )

    def _tell_opened(self, document: Document | None) -> None:
        if document is None:
            return
        plan = document.plan
        self.log.add("info", f"{document.title}: {len(document.graph.nodes)} nodes, {len(plan.regions)} regions")
        if not plan.supported:
            first = next(r for r in plan.regions if not r.supported)
            self.messages.show_text(
                "warning", f"The model can be looked at but not exported yet. {first.id}: {first.reason}."
            )

    def _show_choices(self, document: Document | None) -> None:
        a = self.commands
        if document is not None:
            batch = document.session.batch
            a.batch.setCurrentText(str(batch) if batch is not None else a.batch.itemText(0))
            a.dtype.setCurrentIndex(a.dtype.findData(str(document.session.dtype)))

    def _plan_changed(self) -> None:
        self.canvas.refresh()
        self.canvas.legend.rebuild()
        self._enable()
        self.estimates.refresh()

    def _shape_changed(self) -> None:
        if self.document is not None:
            self.canvas.show_document(self.document)
            self._enable()

    def _run_changed(self, changes: Changes) -> None:
        if changes.workloads or changes.started or changes.finished:
            self.canvas.refresh()

    def _enable(self) -> None:
        """What can be done now; what can't says why in its tooltip."""
        document = self.document
        self.views.enable()
        self.plans.enable()
        self.tuning.enable()
        self.exports.enable()
        undo = document.undo if document else None
        self.undo_action.setEnabled(undo is not None and undo.canUndo())
        self.redo_action.setEnabled(undo is not None and undo.canRedo())
        self.undo_action.setText(f"Undo {undo.undoText()}".strip() if undo else "Undo")
        self.redo_action.setText(f"Redo {undo.redoText()}".strip() if undo else "Redo")

    def undo(self) -> None:
        if self.document is not None:
            self.document.undo.undo()

    def redo(self) -> None:
        if self.document is not None:
            self.document.undo.redo()

    def _context_menu(self, place: QPoint) -> None:
        if self.document is None:
            return
        menu = QMenu(self)
        self.commands.fill(menu, MENU if self.commands["anywhere"].isEnabled() else MENU.replace(PLACES, ""))
        offer = edits.fuse_offer(self.document)
        if offer.offending in self.document.model.index:
            self.canvas.view.show_offending(self.document.model.index[offer.offending])
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(place)

    def zoom_to_selection(self) -> None:
        self.views.zoom_to_selection()

    def set_theme(self, chosen: Theme) -> None:
        self.views.set_theme(chosen)

    def _select_workload(self, key: str, candidate: str) -> None:
        regions = self.document.plan.workloads.get(key, []) if self.document else []
        if self.document is not None and regions:
            self.document.select_region(regions[0])
            self.source.choose(key, candidate)

    # Leaving --------------------------------------------------------------------------------------------------------

    def may_drop_edits(self, document: Document) -> bool:
        """Whether an edited plan may go; asks the user."""
        return ask_to_drop(self, document)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._leaving and not all(self.may_drop_edits(d) for d in self.documents.all):
            event.ignore()
            return
        self._leaving = True
        if self.tuning.running:
            self.tuning.cancel()
            self.status.show_busy("stopping the job, then closing")
            event.ignore()
            return
        self.settings.keep_layout(self.saveGeometry(), self.saveState(LAYOUT_VERSION))
        self.projects.close()
        self.tuning.close()
        self.background.close()
        self.netron.close()
        event.accept()

    def job_ended(self) -> None:
        """The tuning job is over; a window that waits to close does so."""
        self._enable()
        if self._leaving:
            self.close()


def _tabs(pages: "tuple[tuple[str, QWidget], ...]") -> QTabWidget:
    tabs = QTabWidget()
    tabs.setDocumentMode(True)
    tabs.tabBar().setDrawBase(False)
    for title, page in pages:
        tabs.addTab(page, title)
    return tabs
