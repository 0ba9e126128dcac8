"""The generated CUDA source of a candidate, coloured; it is what the exporter compiles."""

import re

from PySide6.QtGui import QColor, QFont, QGuiApplication, QShowEvent, QSyntaxHighlighter, QTextCharFormat, QTextDocument
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from app.document import Document
from app.explaining import Explaining
from app.follow import Follower
from app.run import Changes
from app.theme import Theme, base_font, icon
from templates.workload import Workload

WORDS = (
    "alignas|auto|bool|break|case|char|class|const|constexpr|continue|decltype|default|do|double|"
    "else|enum|explicit|extern|false|float|for|if|inline|int|long|namespace|nullptr|operator|private|"
    "public|return|short|signed|sizeof|static|static_assert|struct|switch|template|this|true|typedef|"
    "typename|union|unsigned|using|void|volatile|while|__global__|__device__|__host__|__shared__|"
    "__restrict__|__launch_bounds__"
)
RULES = (
    ("op.gemm", re.compile(rf"\b(?:{WORDS})\b")),
    ("op.pool", re.compile(r"\b(?:cutlass|cute|bolt)\b")),
    ("op.arithmetic", re.compile(r"\b\d[\w.]*\b")),
    ("op.activation", re.compile(r'"(?:[^"\\]|\\.)*"|<[\w./]+\.h(?:pp)?>')),
    ("kind.pointwise", re.compile(r"^\s*#.*$")),
    ("faint", re.compile(r"//.*$")),
)
NOTHING = "Select a tuned region, or a row of Candidates, to see the source that is compiled for it."


class CudaHighlighter(QSyntaxHighlighter):
    """Line by line; later rules win over earlier ones."""

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        super().__init__(document)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self.formats = [(pattern, _format(theme[token])) for token, pattern in RULES]
        self.rehighlight()

    def highlightBlock(self, text: str) -> None:
        for pattern, style in self.formats:
            for match in pattern.finditer(text):
                self.setFormat(match.start(), match.end() - match.start(), style)


def _format(color: QColor) -> QTextCharFormat:
    made = QTextCharFormat()
    made.setForeground(color)
    return made


class SourcePanel(QWidget):
    """Shows the candidate that was chosen in the table, else the best (or first) one of the selected region."""

    def __init__(self, theme: Theme, explaining: Explaining, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.explaining = explaining
        self.document: Document | None = None
        self.gpu = ""
        self._chosen: tuple[str, str] | None = None  # workload key, candidate
        self.name = QLabel()
        self.name.setObjectName("muted")
        self.copy = QToolButton()
        self.copy.setToolTip("Copy the source")
        self.copy.setAccessibleName("Copy the source")
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setAccessibleName("Generated source")
        self.text.setPlaceholderText(NOTHING)
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        font = base_font(12)
        font.setFamilies(["monospace"])
        font.setStyleHint(QFont.StyleHint.Monospace)
        self.text.setFont(font)
        self.text.document().setDocumentMargin(10)
        self.highlighter = CudaHighlighter(self.text.document(), theme)
        bar = QHBoxLayout()
        bar.setContentsMargins(12, 5, 8, 3)
        bar.addWidget(self.name, 1)
        bar.addWidget(self.copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.text, 1)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        explaining.ready.connect(self.refresh)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self.copy.setIcon(icon("copy", theme))
        self.highlighter.set_theme(theme)

    def set_document(self, document: Document | None) -> None:
        self.document, self._chosen = document, None
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.selection_changed, self._selection_changed),
                (document.run_changed, self._run_changed),
                (document.estimates_changed, self.refresh),
            )
        self.refresh()

    def choose(self, workload: str, candidate: str) -> None:
        """A row of the table."""
        self._chosen = workload, candidate
        self.refresh()

    def _selection_changed(self) -> None:
        self._chosen = None
        self.refresh()

    def _run_changed(self, changes: Changes) -> None:
        if changes.finished:
            self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def _wanted(self) -> tuple[Workload, str] | None:
        if self.document is None:
            return None
        if self._chosen is not None:
            regions = self.document.plan.workloads.get(self._chosen[0])
            work = regions[0].workload if regions else None
            return (work, self._chosen[1]) if work is not None else None
        region = self.document.selected_region()
        if region is None or region.workload is None:
            return None
        run, estimate = self.document.workload_run(region), self.document.estimate(region)
        if run is not None and run.best is not None and run.best.source == "template":
            return region.workload, run.best.candidate
        return (region.workload, estimate.candidate) if estimate is not None else None

    def refresh(self) -> None:
        if not self.isVisible():
            return
        wanted = self._wanted()
        text, name = "", ""
        if wanted is not None:
            story = self.explaining.story(wanted[0], self.gpu, wanted[1])
            name = wanted[1]
            if story is None:
                text = "// working it out"
            elif story.source:
                text = story.source
            else:
                text = "// No template makes this kernel: it is the vendor's, or of an older version of its family."
        self.name.setText(name)
        self.copy.setEnabled(bool(text))
        if text != self.text.toPlainText():
            self.text.setPlainText(text)
