"""The action that shows the open model in Netron's page."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices

from app.document import Document
from app.netron import NetronServer
from core.errors import BoltError

if TYPE_CHECKING:
    from app.window import MainWindow


class NetronControl(QObject):
    """Serves one model at a time, until the window closes."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self.server: NetronServer | None = None
        window.commands["netron"].triggered.connect(self.open)

    def open(self) -> None:
        """The file as it is; a built-in sample as the graph it became."""
        document = self.window.document
        if document is not None:
            self.window.background.start(
                "opening Netron", lambda job: _model(document), self._serve, self.window.messages.show_error
            )

    def _serve(self, model: tuple[bytes, str]) -> None:
        self.close()
        try:
            self.server = NetronServer(*model)
        except BoltError as error:
            self.window.messages.show_error(error)
            return
        if not QDesktopServices.openUrl(QUrl(self.server.url)):
            self.window.messages.show_text("info", f"No browser answered. Netron shows the model at {self.server.url}")

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None


def _model(document: Document) -> tuple[bytes, str]:
    if document.path is not None:
        return document.path.read_bytes(), document.path.name
    from core.graph.to_onnx import to_model

    return to_model(document.graph).SerializeToString(), f"{document.title}.onnx"
