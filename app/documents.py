"""The open models, one tab each: opening, switching, closing. Models are read in the background."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtWidgets import QFileDialog, QMessageBox, QTabBar

from app.background import Job
from app.document import Document, Plans
from app.loading import Opened, Request, load, shape, warm_up
from core.errors import BoltError
from core.importer.samples import sample_names
from core.project import SUFFIX
from templates.types import DType

if TYPE_CHECKING:
    from app.window import MainWindow

FILES = f"Models and projects (*.onnx *{SUFFIX});;ONNX models (*.onnx);;Projects (*{SUFFIX});;All files (*)"


@dataclass(frozen=True)
class Origin:
    """Where a document comes from: the one it replaces, its project file, or what a crashed run kept."""

    replaced: Document | None = None
    project: Path | None = None
    kept: Path | None = None


class Documents(QObject):
    """`current` is what the window shows. `switched` comes after another one, or none, became current."""

    switched = Signal()
    opened = Signal(object)  # Document

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self.all: list[Document] = []
        self.current: Document | None = None
        self._opening: Job | None = None
        self._waiting: list[tuple[Request, Origin | None]] = []
        self.tabs = QTabBar()
        self.tabs.setObjectName("models")
        self.tabs.setDocumentMode(True)
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.tabs.setTabsClosable(True)
        self.tabs.setMovable(True)
        self.tabs.setAccessibleName("Open models")
        self.tabs.hide()
        self.tabs.currentChanged.connect(self._tab_chosen)
        self.tabs.tabCloseRequested.connect(self.close_tab)
        self.tabs.tabMoved.connect(lambda a, b: self.all.insert(b, self.all.pop(a)))

    # Opening ------------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Import beside the window what the first model needs; what is missing then is told when it is opened."""
        self.window.background.start("warming up", lambda job: warm_up(), lambda _: None, lambda error: None)

    def choose(self) -> None:
        chosen, _ = QFileDialog.getOpenFileName(self.window, "Open a model or a project", "", FILES)
        if chosen:
            self.open(chosen)

    def open(self, source: str) -> None:
        """A model (path or built-in name) or a project; shows its tab if it is open already."""
        if Path(source).suffix == SUFFIX and source not in sample_names():
            self.window.projects.open(Path(source))
            return
        for document in self.all:
            if document.session.source == source and document.project is None:
                self.show(document)
                return
        self.load(Request(source, None, DType.F16))

    def reopen(self, batch: int | None, dtype: DType) -> None:
        """The current model at another batch or type, in its tab, with its plans."""
        document = self.current
        if document is None:
            return
        if self.window.tuning.tuned is document:
            self.switched.emit()
            return
        now = self.window.projects.project_of(document)
        request = Request(document.session.source, batch, dtype, now.plan, now.view, now.kept, now.plan_name)
        self.load(request, Origin(document, document.project))

    def load(self, request: Request, origin: Origin | None = None) -> None:
        """Read a model and show it; one at a time, in the order they were asked for."""
        if self._opening is not None:
            self._waiting.append((request, origin))
            return
        origin = origin or Origin()
        name = Path(request.source).name
        self.window.messages.hide()
        self.window.status.show_busy(f"opening {name}")
        self.window.show_waiting(f"Opening {name}")
        self._opening = self.window.background.start(
            f"opening {name}",
            lambda job: load(request, self.window.aspect, job.check),
            lambda opened: self._loaded(opened, origin),
            self._failed,
        )

    def _loaded(self, opened: Opened, origin: Origin) -> None:
        self._opening = None
        self.window.status.show_busy("")
        document = Document(opened.session, self, opened)
        document.project = origin.project
        document.set_plans(Plans(opened.plan or opened.session.plan, opened.plan_name, opened.kept))
        document.wanted_view = dict(opened.view)
        if origin.kept is not None:
            document.undo.resetClean()
            origin.kept.unlink(missing_ok=True)
        elif origin.replaced is not None and origin.replaced.edited:
            document.undo.resetClean()
        elif origin.project is not None or document.path is not None:
            self.window.remember(str(origin.project or document.path))
        self.add(document, origin.replaced)
        self.opened.emit(document)
        self._load_next()

    def _load_next(self) -> None:
        if self._waiting:
            self.load(*self._waiting.pop(0))

    def _failed(self, error: BoltError) -> None:
        self._opening = None
        self.window.status.show_busy("")
        self.window.messages.show_error(error)
        self.window.log.add("error", str(error))
        self.switched.emit()
        self._load_next()

    def fill_recent(self) -> None:
        menu = self.window.commands.recent_menu
        menu.clear()
        for path in self.window.settings.recent:
            menu.addAction(path).triggered.connect(partial(self.open, path))
        if menu.isEmpty():
            menu.addAction("Nothing yet").setEnabled(False)

    # Tabs ---------------------------------------------------------------------------------------------------------

    def add(self, document: Document, replaced: Document | None = None) -> None:
        """Show a document in a new tab, or in that of the one it replaces."""
        document.undo.cleanChanged.connect(self._name_tabs)
        if replaced is not None and replaced in self.all:
            at = self.all.index(replaced)
            self.all[at] = document
            self.current = None
            self._name_tab(document)
            self.show(document)
            self._drop(replaced)
            return
        self.all.append(document)
        blocked = self.tabs.blockSignals(True)
        self.tabs.addTab(document.title)
        self.tabs.blockSignals(blocked)
        self._name_tab(document)
        self.tabs.show()
        self.show(document)

    def show(self, document: Document) -> None:
        at = self.all.index(document)
        blocked = self.tabs.blockSignals(True)
        self.tabs.setCurrentIndex(at)
        self.tabs.blockSignals(blocked)
        self._show(document)

    def _tab_chosen(self, at: int) -> None:
        if 0 <= at < len(self.all):
            self._show(self.all[at])

    def _show(self, document: Document | None) -> None:
        if document is self.current and document is not None:
            return
        if self.current is not None:
            self.current.place = self.window.canvas.view.place
        self.current = document
        self.switched.emit()

    def _name_tabs(self) -> None:
        for document in self.all:
            self._name_tab(document)

    def _name_tab(self, document: Document) -> None:
        if document not in self.all:
            return
        at, session = self.all.index(document), document.session
        batch = f"  batch {session.batch}" if session.batch is not None else ""
        self.tabs.setTabText(at, f"{document.title}{batch}{' *' if document.edited else ''}")
        self.tabs.setTabToolTip(at, session.source)

    def close_tab(self, at: int) -> None:
        document = self.all[at]
        if self.window.tuning.tuned is document:
            self.window.messages.show_text(
                "warning", f"{document.title} is being tuned. Cancel the job, then close it."
            )
            return
        if not self.window.may_drop_edits(document):
            return
        self.all.pop(at)
        blocked = self.tabs.blockSignals(True)
        self.tabs.removeTab(at)
        self.tabs.blockSignals(blocked)
        self.tabs.setVisible(bool(self.all))
        if document is self.current:
            self.current = None
            self._show(self.all[self.tabs.currentIndex()] if self.all else None)
        self._drop(document)

    def close_current(self) -> None:
        if self.current is not None:
            self.close_tab(self.all.index(self.current))

    def _drop(self, document: Document) -> None:
        self.window.projects.forget(document)
        self.window.queue.forget(document)
        document.deleteLater()

    # Folding ------------------------------------------------------------------------------------------------------

    def fold(self, folded: bool) -> None:
        """Fold the repeated blocks of the current graph, or unfold them; laid out anew in the background."""
        document = self.current
        if document is None or bool(document.model.folds) == folded:
            return
        graph, plan, aspect = document.graph, document.plan, self.window.aspect
        folds, full = (document.repeats if folded else ()), document.full
        self.window.background.start(
            "laying out",
            lambda job: shape(graph, plan, folds, aspect, job.check, full),
            document.set_shape,
            self.window.messages.show_error,
        )


def dropped(urls: "list[QUrl]") -> list[str]:
    """The local files among what is dropped."""
    return [u.toLocalFile() for u in urls if u.isLocalFile()]


def ask_to_drop(window: "MainWindow", document: Document) -> bool:
    """Whether an edited plan may go: it is saved first if the user says so."""
    if not document.edited:
        return True
    buttons = QMessageBox.StandardButton
    answer = QMessageBox.question(
        window, "Edited plan", f"The fusion plan of {document.title} has changes that are not saved.",
        buttons.Save | buttons.Discard | buttons.Cancel,
    )  # fmt: skip
    if answer == buttons.Save:
        return window.projects.save(document)
    return answer == buttons.Discard
