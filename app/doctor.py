"""The page that checks this machine: what is found, and how to mend what is not. The checks are the verb `doctor`'s."""

from html import escape
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QTextBrowser, QVBoxLayout, QWidget

from app.background import Background, Job
from app.theme import Theme
from core.errors import BoltError

if TYPE_CHECKING:
    from core.cli.doctor import Check

SIGNS = {True: ("good", "found"), False: ("bad", "missing")}


class Doctor(QDialog):
    """Fills as the checks come in. Without `self_test` nothing is compiled or run."""

    _found = Signal(object)

    def __init__(self, background: Background, theme: Theme, parent: QWidget, self_test: bool = False) -> None:
        super().__init__(parent)
        self.setWindowTitle("This machine")
        self.resize(720, 520)
        self.theme = theme
        self.checks: list[Check] = []
        self.verdict = QLabel("Looking")
        self.verdict.setTextFormat(Qt.TextFormat.PlainText)
        self.text = QTextBrowser()
        self.text.setAccessibleName("Checks")
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        copy = buttons.addButton("Copy", QDialogButtonBox.ButtonRole.ActionRole)
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 16, 16, 12)
        layout.addWidget(self.verdict)
        layout.addWidget(self.text)
        layout.addWidget(buttons)
        self._found.connect(self._add, Qt.ConnectionType.QueuedConnection)
        self.job = background.start(
            "checking this machine", lambda job: self._look(job, self_test), self._done, self._failed
        )
        self.finished.connect(self.job.cancel)

    def _look(self, job: Job, self_test: bool) -> None:
        from core.cli.doctor import examine

        for check in examine("cuda-bindings", self_test):
            job.check()
            self._found.emit(check)

    def _add(self, check: "Check") -> None:
        self.checks.append(check)
        self.text.setHtml(checks_html(self.checks, self.theme))

    def _done(self, _: object) -> None:
        missing = [c.name for c in self.checks if c.essential and not c.found]
        self.verdict.setText(f"Missing: {', '.join(missing)}" if missing else "Everything needed is here.")

    def _failed(self, error: BoltError) -> None:
        self.verdict.setText(str(error))


def checks_html(checks: "list[Check]", theme: Theme) -> str:
    rows = []
    for check in checks:
        token, word = SIGNS[check.found]
        if not check.found and not check.essential:
            token, word = "muted", "not here"
        remedy = f"<br><span style='color:{theme.hex('muted')}'>{escape(check.remedy)}</span>" if check.remedy else ""
        rows.append(
            f"<tr><td style='padding:4px 16px 4px 0'><b>{escape(check.name)}</b></td>"
            f"<td style='padding:4px 16px 4px 0; color:{theme.hex(token)}'>{word}</td>"
            f"<td style='padding:4px 0'>{escape(check.value)}{remedy}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"
