"""The main window: puts the panels together and carries the actions; the panels hold the looks."""

from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QDockWidget,
    QMainWindow,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from app.background import Background, Job
from app.document import Document
from app.graph.canvas import Canvas
from app.loading import Opened, load
from app.messages import MessageBar
from app.panels.details import DetailsPanel
from app.panels.nodes import NodesPanel
from app.panels.regions import RegionsPanel
from app.theme import Theme
from templates.types import DType

WELCOME = "Drop an ONNX model here, press Ctrl+O,\nor open a sample from the File menu."


class MainWindow(QMainWindow):
    def __init__(self, chosen: Theme) -> None:
        super().__init__()
        self.theme = chosen
        self.document: Document | None = None
        self.background = Background(self)
        self._opening: Job | None = None
        self.setWindowTitle("Bolt Workbench")
        self.resize(1440, 900)
        self.setAcceptDrops(True)
        self._build_panels()

    def _build_panels(self) -> None:
        self.messages = MessageBar(self.theme)
        self.canvas = Canvas(self.theme)
        centre = QWidget()
        layout = QVBoxLayout(centre)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.messages)
        layout.addWidget(self.canvas, 1)
        self.setCentralWidget(centre)
        self.regions = RegionsPanel(self.theme)
        self.nodes = NodesPanel(self.theme)
        self.details = DetailsPanel(self.theme)
        lists = QTabWidget()
        lists.setDocumentMode(True)
        lists.addTab(self.regions, "Regions")
        lists.addTab(self.nodes, "Nodes")
        self._dock("Model", lists, Qt.DockWidgetArea.LeftDockWidgetArea)
        self._dock("Details", self.details, Qt.DockWidgetArea.RightDockWidgetArea)
        self.canvas.say(WELCOME)

    def _dock(self, title: str, widget: QWidget, area: Qt.DockWidgetArea) -> QDockWidget:
        dock = QDockWidget(title, self)
        dock.setObjectName(title)
        dock.setWidget(widget)
        self.addDockWidget(area, dock)
        return dock

    def open_later(self, source: str) -> None:
        QTimer.singleShot(0, lambda: self.open(source))

    def open(self, source: str) -> None:
        self._opening = self.background.start(
            f"opening {Path(source).name}",
            lambda check: load(source, None, DType.F16, None, 1.5, check),
            self._opened,
            self.messages.show_error,
        )

    def _opened(self, opened: Opened) -> None:
        document = Document(opened.session, self)
        self.document = document
        self.canvas.show_document(document, opened.placement)
        for p in (self.regions, self.nodes, self.details):
            p.set_document(document)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.background.close()
        event.accept()
