"""Advice on the model itself. app.advice_control fills the panel; until then it says what to do next."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QVBoxLayout, QWidget

from app.document import Document
from app.follow import Follower
from app.run import Changes
from app.theme import Theme

WIDTH = 640  # pixels that a line of words is read well in
NO_MODEL = "Open a model: what could be changed in it, and what that would give, stands here."
LOOKING = "Looking for what could be changed in the model."
NONE_YET = (
    "There is no advice on this model: it has no convolution or matrix product whose activation, width or shape could "
    "be another one. Charts, Fusion gains shows what each fusion gives."
)


class AdvicePanel(QWidget):
    """`fill` puts a view of advice in place of what is said without any, `say` puts words in its place."""

    outdated = Signal()  # the document, its plan or what is known of it is another one

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.document: Document | None = None
        self.empty = QLabel(NO_MODEL, wordWrap=True)
        self.empty.setObjectName("muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setMaximumWidth(WIDTH)
        self._words = QWidget()
        centred = QHBoxLayout(self._words)
        centred.setContentsMargins(24, 24, 24, 24)
        centred.addWidget(self.empty)
        self.pages = QStackedWidget()
        self.pages.addWidget(self._words)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.pages)

    def fill(self, view: QWidget) -> None:
        self.pages.addWidget(view)
        self.pages.setCurrentWidget(view)

    def say(self, text: str) -> None:
        self.empty.setText(text)
        self.pages.setCurrentWidget(self._words)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
            self.say(NO_MODEL)
        else:
            self._links.follow(
                (document.run_changed, self._run_changed),
                (document.plan_changed, self.outdated.emit),
            )
        self.outdated.emit()

    def set_theme(self, theme: Theme) -> None:
        """The words and the table take their colours from the style sheet and the palette."""

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.outdated.emit()

    def _run_changed(self, changes: Changes) -> None:
        if changes.finished:
            self.outdated.emit()
