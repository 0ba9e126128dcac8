"""Project files and autosave: what is open can be put away and taken up again, also after a crash."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFileDialog

from app.document import Document
from app.documents import Origin
from app.loading import Request
from core.errors import BoltError
from core.fusion.files import plan_data
from core.paths import cache_dir
from core.project import SUFFIX, Project, ProjectError, load_project, save_project

if TYPE_CHECKING:
    from app.window import MainWindow

FILES = f"Projects (*{SUFFIX})"
AUTOSAVE_MS = 3000


class ProjectControl(QObject):
    """Saves and opens projects. Edited documents are kept in the cache a few seconds after an edit."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        a = window.commands
        a["save_project"].triggered.connect(self.save_current)
        a["save_project_as"].triggered.connect(lambda: self.save_current(ask=True))
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(AUTOSAVE_MS)
        self._timer.timeout.connect(self.autosave)
        window.documents.opened.connect(self._watch)

    def _watch(self, document: Document) -> None:
        document.undo.indexChanged.connect(self._timer.start)
        if document.edited:
            self._timer.start()

    def project_of(self, document: Document) -> Project:
        plan = None if document.plan == document.automatic else plan_data(document.plan)
        session = document.session
        view = document.view_state(self.window)
        kept = {name: plan_data(p) for name, p in document.plans.kept.items()}
        return Project(
            session.source, session.batch, session.dtype, self.window.tuning.gpu, plan, view, kept, document.plans.name
        )

    # Files --------------------------------------------------------------------------------------------------------

    def save_current(self, ask: bool = False) -> None:
        if self.window.document is not None:
            self.save(self.window.document, ask)

    def save(self, document: Document, ask: bool = False) -> bool:
        """Whether it was saved: to its project file, or to one that is asked for."""
        path = document.project
        if path is None or ask:
            start = str(path or f"{document.title}{SUFFIX}")
            chosen, _ = QFileDialog.getSaveFileName(self.window, "Save the project", start, FILES)
            if not chosen:
                return False
            path = Path(chosen if chosen.endswith(SUFFIX) else chosen + SUFFIX)
        try:
            save_project(self.project_of(document), path)
        except BoltError as error:
            self.window.messages.show_error(error)
            return False
        document.project = path
        document.undo.setClean()
        self.forget(document)
        self.window.remember(str(path))
        self.window.log.add("info", f"saved the project {path}")
        return True

    def open(self, path: Path, kept: bool = False) -> None:
        """Open a project file, or what a crashed run `kept`."""
        try:
            project = load_project(path)
        except ProjectError as error:
            self.window.messages.show_error(error)
            self.window.log.add("error", str(error))
            return
        self.window.tuning.choose_gpu(project.gpu)
        request = Request(
            project.model, project.batch, project.dtype, project.plan, project.view, project.kept, project.plan_name
        )
        self.window.documents.load(request, Origin(kept=path) if kept else Origin(project=path))

    # Autosave -----------------------------------------------------------------------------------------------------

    def _kept(self, document: Document) -> Path:
        return autosave_dir() / f"{os.getpid()}-{id(document):x}{SUFFIX}"

    def autosave(self) -> None:
        """Keep every edited document; drop what is kept of those that are not."""
        if not self.window.settings.autosave:
            return
        for document in self.window.documents.all:
            if not document.edited:
                self.forget(document)
                continue
            try:
                save_project(self.project_of(document), self._kept(document))
            except ProjectError as error:
                self.window.log.add("warning", f"not autosaved: {error}")

    def forget(self, document: Document) -> None:
        self._kept(document).unlink(missing_ok=True)

    def close(self) -> None:
        """A window that closes in good order leaves nothing to restore."""
        self._timer.stop()
        for document in self.window.documents.all:
            self.forget(document)

    def offer_restore(self) -> None:
        """Say what a run that crashed left, and open it if the user wants."""
        left = leftovers()
        if left:
            what = "One model was" if len(left) == 1 else f"{len(left)} models were"
            self.window.messages.show_text(
                "info",
                f"{what} open with unsaved changes when the program ended unexpectedly.",
                "Restore",
                self.restore,
            )

    def restore(self) -> None:
        for path in leftovers():
            self.open(path, kept=True)


def autosave_dir() -> Path:
    return cache_dir() / "autosave"


def leftovers() -> list[Path]:
    """Autosaved projects of processes that are no more, the oldest first."""
    found = [p for p in autosave_dir().glob(f"*{SUFFIX}") if not _alive(p.name.partition("-")[0])]
    return sorted(found, key=lambda p: p.stat().st_mtime)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ValueError:
        return True  # no name of ours: leave the file alone
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
