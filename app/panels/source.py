"""A candidate as text: the CUDA source that the exporter compiles too, its PTX and its machine code, coloured."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.document import Document
from app.explaining import Explaining
from app.exporting import gpu_title
from app.follow import Follower
from app.listing import Form, Listing, Listings
from app.panels.colouring import Highlighter
from app.run import Changes
from app.theme import Theme, base_font, icon
from templates.family import Kernel
from templates.workload import Workload

NOTHING = "Select a tuned region, or a row of Candidates, to see its kernel as CUDA source, PTX and machine code."
VENDORS = "No template makes this kernel: it is the vendor's, or of an older version of its family."


class SourcePanel(QWidget):
    """Shows the candidate that was chosen in the table, else the best (or first) one of the selected region."""

    def __init__(self, theme: Theme, explaining: Explaining, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.explaining = explaining
        self.listings = Listings(explaining.background, self)
        self.document: Document | None = None
        self.gpu = ""
        self._chosen: tuple[str, str] | None = None  # workload key, candidate
        self._kernel: Kernel | None = None  # of what is shown
        self.form = QComboBox()
        self.form.setAccessibleName("Show as")
        for form in Form:
            self.form.addItem(form.value, form)
        self.name, self.facts = QLabel(), QLabel()
        for label in (self.name, self.facts):
            label.setObjectName("muted")
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            # a long name is cut off; it never widens the window
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.copy = QToolButton()
        self.copy.setToolTip("Copy the text")
        self.copy.setAccessibleName("Copy the text")
        self.text = self._text()
        self.highlighter = Highlighter(self.text.document(), theme)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.text)
        self.pages.addWidget(self._empty_page())
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 5, 8, 3)
        bar.setSpacing(12)
        bar.addWidget(self.form)
        titles = QVBoxLayout()
        titles.setSpacing(0)
        titles.addWidget(self.name)
        titles.addWidget(self.facts)
        bar.addLayout(titles, 1)
        bar.addWidget(self.copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.pages, 1)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        self.form.currentIndexChanged.connect(self.refresh)
        self.act.clicked.connect(self._act)
        explaining.ready.connect(self.refresh)
        self.listings.ready.connect(self.refresh)
        self.set_theme(theme)

    def _text(self) -> QPlainTextEdit:
        text = QPlainTextEdit(readOnly=True)
        text.setAccessibleName("The kernel as text")
        text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        font = base_font(12)
        font.setFamilies(["monospace"])
        font.setStyleHint(QFont.StyleHint.Monospace)
        text.setFont(font)
        text.document().setDocumentMargin(10)
        return text

    def _empty_page(self) -> QWidget:
        page = QWidget()
        self.empty = QLabel(wordWrap=True)
        self.empty.setObjectName("muted")
        self.empty.setTextFormat(Qt.TextFormat.PlainText)
        self.empty.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.act = QPushButton()
        layout = QVBoxLayout(page)
        layout.setContentsMargins(24, 8, 24, 8)
        layout.setSpacing(10)
        layout.addStretch(1)
        layout.addWidget(self.empty)
        layout.addWidget(self.act, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addStretch(1)
        return page

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
            self.listings.look_again()
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

    @property
    def shown_form(self) -> Form:
        return Form(self.form.currentData())  # Qt hands a StrEnum back as plain text

    def refresh(self) -> None:
        if not self.isVisible():
            return
        wanted = self._wanted()
        self._kernel = None
        if wanted is None:
            self._show("", Listing(why_not=NOTHING))
            return
        story = self.explaining.story(wanted[0], self.gpu, wanted[1])
        if story is None:
            self._show(wanted[1], Listing(why_not="Looking for the kernel."))
        elif story.explained is None:
            self._show(wanted[1], Listing(why_not=story.source.removeprefix("// ") or VENDORS))
        elif self.shown_form is Form.CUDA:
            self._show(wanted[1], Listing(story.source))
        else:
            self._kernel = story.explained.candidate.kernel
            self._show(wanted[1], self._listing(self._kernel))

    def _listing(self, kernel: Kernel) -> Listing:
        found = self.listings.listing(kernel, self.gpu, self.shown_form)
        if found is not None:
            return found
        compiling = self.listings.compiling(kernel, self.gpu, self.shown_form)
        return Listing(why_not=f"Compiling for {gpu_title(self.gpu)}." if compiling else "Looking in the cache.")

    def _show(self, name: str, shown: Listing) -> None:
        self.name.setText(name)
        self.name.setToolTip(name)
        self.facts.setText(shown.facts)
        self.facts.setToolTip(shown.facts)
        self.facts.setVisible(bool(shown.facts))
        self.copy.setEnabled(bool(shown.text))
        self.pages.setCurrentIndex(0 if shown.text else 1)
        self.empty.setText(shown.why_not)
        compiling = self._kernel is not None and self.listings.compiling(self._kernel, self.gpu, self.shown_form)
        self.act.setVisible(shown.offer or compiling)
        self.act.setText("Stop" if compiling else f"Compile for {gpu_title(self.gpu)}")
        if shown.text != self.text.toPlainText():
            self.highlighter.form = self.shown_form
            self.text.setPlainText(shown.text)

    def _act(self) -> None:
        if self._kernel is None:
            return
        if self.listings.compiling(self._kernel, self.gpu, self.shown_form):
            self.listings.stop(self._kernel, self.gpu, self.shown_form)
        else:
            self.listings.compile(self._kernel, self.gpu, self.shown_form)
