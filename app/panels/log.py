"""The log of the run, errors and warnings marked."""

from html import escape

from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from app.document import Document
from app.follow import Follower
from app.run import Changes
from app.theme import Theme, base_font

MOST_LINES = 5000
TOKENS = {"info": "text", "warning": "warn", "error": "bad"}


class LogPanel(QWidget):
    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.theme = theme
        self.document: Document | None = None
        self._written = 0
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setMaximumBlockCount(MOST_LINES)
        self.text.setAccessibleName("Log")
        self.text.setPlaceholderText("What the tuner and the exporter say appears here.")
        self.text.setFont(base_font(12))
        self.text.document().setDocumentMargin(10)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.text)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.run_changed, self._take),
            )
        self._rewrite()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self._rewrite()

    def add(self, level: str, text: str) -> None:
        """A line that no run made: opening, exporting."""
        self._write(level, text)

    def _rewrite(self) -> None:
        self.text.clear()
        self._written = 0
        self._append_new()

    def _take(self, changes: Changes) -> None:
        if changes.log:
            if self.document is not None and len(self.document.run.log) < self._written:
                self._written = 0
            self._append_new()

    def _append_new(self) -> None:
        lines = self.document.run.log if self.document else []
        for level, text in lines[self._written :]:
            self._write(level, text)
        self._written = len(lines)

    def _write(self, level: str, text: str) -> None:
        sign = "" if level == "info" else f"<b>{level}:</b> "
        self.text.appendHtml(
            f"<span style='color:{self.theme.hex(TOKENS.get(level, 'text'))}'>{sign}{escape(text)}</span>"
        )
