"""The main window: puts the panels together and connects the actions; the controllers and panels do the work."""

from functools import partial
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QPoint, Qt, QTimer, QUrl
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent, QGuiApplication
from PySide6.QtWidgets import (
    QApplication,
    QDockWidget,
    QFileDialog,
    QMainWindow,
    QMenu,
    QMessageBox,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from app import edits, theme
from app.actions import Actions
from app.background import Background, Job
from app.document import Document
from app.estimates import Estimates
from app.export_control import ExportControl
from app.exporting import Exporter
from app.graph.canvas import Canvas
from app.loading import Opened, Request, load
from app.messages import MessageBar
from app.netron_control import NetronControl
from app.panels.candidates import CandidatesPanel
from app.panels.charts import ChartsPanel
from app.panels.details import DetailsPanel
from app.panels.log import LogPanel
from app.panels.nodes import NodesPanel
from app.panels.regions import RegionsPanel
from app.plan_control import PlanControl
from app.run import Changes
from app.status import Status
from app.theme import Theme
from app.tune_control import TuneControl
from core.errors import BoltError
from templates.types import DType

WELCOME = "Drop an ONNX model here, press Ctrl+O,\nor choose File, Open sample."
Area = Qt.DockWidgetArea


class Panel(Protocol):
    """What the window asks of every panel."""

    def set_document(self, document: Document | None) -> None: ...
    def set_theme(self, theme: Theme) -> None: ...


class MainWindow(QMainWindow):
    """One open model. `exporter` replaces the core's exporter in tests."""

    def __init__(self, chosen: Theme, exporter: Exporter | None = None) -> None:
        super().__init__()
        self.theme = chosen
        self.document: Document | None = None
        self.background = Background(self)
        self._opening: Job | None = None
        self._leaving = False
        self.setWindowTitle("Bolt Workbench")
        self.setWindowIcon(theme.icon("logo", chosen, "accent"))
        room = self.screen().availableSize()
        self.resize(min(1440, room.width()), min(900, room.height()))
        self.setAcceptDrops(True)
        self.commands = Actions(self, chosen)
        self.status = Status(self)
        self.setStatusBar(self.status)
        self._build_panels()
        self.plans = PlanControl(self)
        self.tuning = TuneControl(self)
        self.estimates = Estimates(self)
        self.netron = NetronControl(self)
        self.exports = ExportControl(self, exporter)
        self._connect()
        self._enable()

    # Putting together ----------------------------------------------------------------------------------------------

    def _build_panels(self) -> None:
        t = self.theme
        self.messages = MessageBar(t)
        self.canvas = Canvas(t)
        centre = QWidget()
        layout = QVBoxLayout(centre)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.messages)
        layout.addWidget(self.canvas, 1)
        self.setCentralWidget(centre)
        self.regions, self.nodes, self.details = RegionsPanel(t), NodesPanel(t), DetailsPanel(t)
        self.candidates, self.charts, self.log = CandidatesPanel(t), ChartsPanel(t, self.background), LogPanel(t)
        self.panels: tuple[Panel, ...] = (
            self.regions,
            self.nodes,
            self.details,
            self.candidates,
            self.charts,
            self.log,
        )
        left, bottom = QTabWidget(), QTabWidget()
        for tabs, pages in (
            (left, (("Regions", self.regions), ("Nodes", self.nodes))),
            (bottom, (("Candidates", self.candidates), ("Charts", self.charts), ("Log", self.log))),
        ):
            tabs.setDocumentMode(True)
            tabs.tabBar().setDrawBase(False)
            for title, page in pages:
                tabs.addTab(page, title)
        self.bottom = bottom
        self.setCorner(Qt.Corner.BottomLeftCorner, Area.BottomDockWidgetArea)
        self.setCorner(Qt.Corner.BottomRightCorner, Area.BottomDockWidgetArea)
        docks = [
            self._dock("Model", left, Area.LeftDockWidgetArea),
            self._dock("Details", self.details, Area.RightDockWidgetArea),
            self._dock("Run", bottom, Area.BottomDockWidgetArea),
        ]
        self.resizeDocks(docks[:2], [290, 310], Qt.Orientation.Horizontal)
        self.resizeDocks(docks[2:], [250], Qt.Orientation.Vertical)
        self.canvas.say(WELCOME)

    def _dock(self, title: str, widget: QWidget, area: Area) -> QDockWidget:
        dock = QDockWidget(title, self)
        dock.setObjectName(title)
        dock.setWidget(widget)
        dock.setFeatures(QDockWidget.DockWidgetFeature.DockWidgetMovable)
        dock.setTitleBarWidget(QWidget(dock))
        self.addDockWidget(area, dock)
        return dock

    def _connect(self) -> None:
        a = self.commands
        self.undo_action = QAction("Undo", self)
        self.redo_action = QAction("Redo", self)
        for action, name, keys in ((self.undo_action, "undo", "Ctrl+Z"), (self.redo_action, "redo", "Ctrl+Shift+Z")):
            action.setIcon(theme.icon(name, self.theme))
            action.setShortcut(keys)
            self.addAction(action)
        a.build(self.undo_action, self.redo_action)
        self.undo_action.triggered.connect(self.undo)
        self.redo_action.triggered.connect(self.redo)
        a["open"].triggered.connect(self.choose_model)
        a["quit"].triggered.connect(self.close)
        a["find"].triggered.connect(self.canvas.finder.open_finder)
        a["fit"].triggered.connect(self.canvas.view.fit_all)
        a["zoom"].triggered.connect(self.zoom_to_selection)
        a["copy"].triggered.connect(self.copy_names)
        a["theme"].triggered.connect(lambda dark: self.set_theme(theme.theme("dark" if dark else "light")))
        a["theme"].setChecked(self.theme.name == "dark")
        for sample in a.sample_actions:
            sample.triggered.connect(partial(self._open_sample, sample.text()))
        a.batch.activated.connect(self._reopen)
        a.dtype.activated.connect(self._reopen)
        self.regions.chosen.connect(self.zoom_to_selection)
        self.nodes.chosen.connect(self.zoom_to_selection)
        self.canvas.view.menu_wanted.connect(self._context_menu)
        self.canvas.view.opened.connect(self.details.text.setFocus)
        self.candidates.row_chosen.connect(self._select_workload)

    # Opening ------------------------------------------------------------------------------------------------------

    def open_later(self, source: str) -> None:
        """Open once the window is on the screen."""
        QTimer.singleShot(0, lambda: self.open(source))

    def choose_model(self) -> None:
        chosen, _ = QFileDialog.getOpenFileName(self, "Open a model", "", "ONNX models (*.onnx);;All files (*)")
        if chosen:
            self.open(chosen)

    def open(self, source: str) -> None:
        """Open a model (path or built-in name) in place of the one that is open."""
        if self.tuning.running:
            self.messages.show_text("warning", "A tuning job is running. Cancel it, then open another model.")
            return
        if not self._may_drop_edits():
            return
        self._load(Request(source, None, DType.F16))

    def _open_sample(self, name: str) -> None:
        self.open(name)

    def _reopen(self) -> None:
        """The same model at another batch or type."""
        if self.document is None:
            return
        if self.tuning.running or not self._may_drop_edits():
            self._show_choices(self.document)
            return
        a = self.commands
        batch = int(a.batch.currentText()) if a.batch.currentText().isdecimal() else None
        self._load(Request(self.document.session.source, batch, DType(a.dtype.currentData())))

    def _load(self, request: Request) -> None:
        if self._opening is not None:
            self._opening.cancel()
        name = Path(request.source).name
        self.messages.hide()
        if self.document is None:
            self.canvas.say(f"Opening {name}")
        self.status.show_busy(f"opening {name}")
        size = self.canvas.size()
        aspect = max(0.4, size.width() / max(1, size.height()))
        self._opening = self.background.start(
            f"opening {name}", lambda job: load(request, aspect, job.check), self._opened, self._open_failed
        )

    def _opened(self, opened: Opened) -> None:
        previous, self.document = self.document, Document(opened.session, self)
        self._opening = None
        self.status.show_busy("")
        self.canvas.show_document(self.document, opened.placement)
        for panel in self.panels:
            panel.set_document(self.document)
        if previous is not None:
            previous.deleteLater()
        self.document.selection_changed.connect(self._enable)
        self.document.plan_changed.connect(self._plan_changed)
        self.document.run_changed.connect(self._run_changed)
        self.document.undo.indexChanged.connect(self._enable)
        plan = self.document.plan
        self.log.add(
            "info", f"opened {self.document.title}: {len(self.document.graph.nodes)} nodes, {len(plan.regions)} regions"
        )
        if not plan.supported:
            first = next(r for r in plan.regions if not r.supported)
            self.messages.show_text(
                "warning", f"The model can be looked at but not exported yet. {first.id}: {first.reason}."
            )
        self.setWindowTitle(f"{self.document.title} - Bolt Workbench")
        self._show_choices(self.document)
        self._enable()
        self.estimates.refresh()

    def _open_failed(self, error: BoltError) -> None:
        self._opening = None
        self.status.show_busy("")
        self.messages.show_error(error)
        self.log.add("error", str(error))
        if self.document is None:
            self.canvas.say(WELCOME)
        else:
            self._show_choices(self.document)

    def _show_choices(self, document: Document) -> None:
        a = self.commands
        batch = document.session.batch
        a.batch.setCurrentText(str(batch) if batch is not None else a.batch.itemText(0))
        a.dtype.setCurrentIndex(a.dtype.findData(str(document.session.dtype)))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event.mimeData().urls())
        if path:
            event.acceptProposedAction()
            self.open(path)

    # What is open ---------------------------------------------------------------------------------------------------

    def _plan_changed(self) -> None:
        self.canvas.refresh()
        self.canvas.legend.rebuild()
        self._enable()
        self.estimates.refresh()

    def _run_changed(self, changes: Changes) -> None:
        if changes.workloads or changes.started or changes.finished:
            self.canvas.refresh()

    def _enable(self) -> None:
        """What can be done now; what can't says why in its tooltip."""
        document, a = self.document, self.commands
        for name in ("save_plan", "load_plan", "netron", "find", "fit"):
            a[name].setEnabled(document is not None)
        for name in ("copy", "zoom"):
            a[name].setEnabled(document is not None and bool(document.selection))
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
        menu.setToolTipsVisible(True)
        a = self.commands
        menu.addActions([a["fuse"], a["split"], a["reset"]])
        menu.addSeparator()
        menu.addActions([a["zoom"], a["copy"]])
        offer = edits.fuse_offer(self.document)
        if offer.offending in self.document.model.index:
            self.canvas.view.show_offending(self.document.model.index[offer.offending])
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(place)

    def zoom_to_selection(self) -> None:
        if self.document is not None:
            self.canvas.view.reveal(self.document.selection)

    def _select_workload(self, key: str) -> None:
        regions = self.document.plan.workloads.get(key, []) if self.document else []
        if self.document is not None and regions:
            self.document.select_region(regions[0])

    def copy_names(self) -> None:
        if self.document is not None:
            QGuiApplication.clipboard().setText("\n".join(self.document.selected_nodes()))

    def set_theme(self, chosen: Theme) -> None:
        self.theme = chosen
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, chosen)
        self.commands.set_theme(chosen)
        self.messages.set_theme(chosen)
        self.canvas.set_theme(chosen)
        for panel in self.panels:
            panel.set_theme(chosen)

    # Leaving --------------------------------------------------------------------------------------------------------

    def _may_drop_edits(self) -> bool:
        """Whether an edited plan may go: it is saved first if the user says so."""
        if self.document is None or not self.document.edited:
            return True
        buttons = QMessageBox.StandardButton
        answer = QMessageBox.question(
            self, "Edited plan", "The fusion plan has changes that are not saved.",
            buttons.Save | buttons.Discard | buttons.Cancel,
        )  # fmt: skip
        if answer == buttons.Save:
            return self.plans.save()
        return answer == buttons.Discard

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._leaving and not self._may_drop_edits():
            event.ignore()
            return
        self._leaving = True
        if self.tuning.running:
            self.tuning.cancel()
            self.status.show_busy("stopping the job, then closing")
            event.ignore()
            return
        self.tuning.close()
        self.background.close()
        self.netron.close()
        event.accept()

    def job_ended(self) -> None:
        """The tuning job is over; a window that waits to close does so."""
        self._enable()
        if self._leaving:
            self.close()


def _dropped(urls: "list[QUrl]") -> str:
    """The one local file among what is dropped, or ""."""
    return urls[0].toLocalFile() if len(urls) == 1 and urls[0].isLocalFile() else ""
