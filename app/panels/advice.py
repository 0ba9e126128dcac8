"""Advice on the model itself. What gives it (core/advise) fills the panel; until then it says where to look instead."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QVBoxLayout, QWidget

from app.document import Document
from app.follow import Follower
from app.run import Changes
from app.theme import Theme

WIDTH = 640  # pixels that a line of words is read well in
NO_MODEL = "Open a model: what could be changed in it, and what that would give, stands here."
NOT_TUNED = "Press Tune first: advice is given by measured prices, and nothing of this model was measured yet."
NONE_YET = (
    "There is no advice on this model yet. Until there is: Charts, Fusion gains shows what each fusion gives, and "
    "Details of a region tells what could not join it and why. Change that in the model, open it anew and compare."
)


class AdvicePanel(QWidget):
    """`fill` puts a view of advice in place of what is said without any."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.document: Document | None = None
        self.empty = QLabel(wordWrap=True)
        self.empty.setObjectName("muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setMaximumWidth(WIDTH)
        page = QWidget()
        centred = QHBoxLayout(page)
        centred.setContentsMargins(24, 24, 24, 24)
        centred.addWidget(self.empty)
        self.pages = QStackedWidget()
        self.pages.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.pages)
        self.refresh()

    def fill(self, view: QWidget) -> None:
        self.pages.addWidget(view)
        self.pages.setCurrentWidget(view)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.run_changed, self._run_changed),
            )
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """The words take their colour from the style sheet."""

    def _run_changed(self, changes: Changes) -> None:
        if changes.started or changes.finished:
            self.refresh()

    def refresh(self) -> None:
        if self.document is None:
            self.empty.setText(NO_MODEL)
        else:
            tuned = any(w.best for w in self.document.run.workloads.values())
            self.empty.setText(NONE_YET if tuned else NOT_TUNED)
