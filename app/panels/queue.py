"""The regions that wait to be tuned: first is next; move them up and down, or take them out."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QListWidget, QToolButton, QVBoxLayout, QWidget

from app.document import Document
from app.queue import Queue
from app.theme import Theme, icon

NOTHING = "Nothing waits. While a job runs, Run, Tune selected regions (Ctrl+Shift+T) puts regions here."
BUTTONS = (("up", "previous", "Sooner"), ("down", "next", "Later"), ("out", "close", "Take out of the queue"))


class QueuePanel(QWidget):
    def __init__(self, theme: Theme, queue: Queue, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.queue = queue
        self.list = QListWidget()
        self.list.setAccessibleName("Queue")
        self.empty = QLabel(NOTHING)
        self.empty.setObjectName("muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.buttons: dict[str, QToolButton] = {}
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 6, 12, 6)
        for name, _, said in BUTTONS:
            button = self.buttons[name] = QToolButton()
            button.setToolTip(said)
            button.setAccessibleName(said)
            button.setIconSize(QSize(16, 16))
            bar.addWidget(button)
        bar.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.list, 1)
        layout.addWidget(self.empty, 1)
        self.buttons["up"].clicked.connect(lambda: self._move(-1))
        self.buttons["down"].clicked.connect(lambda: self._move(1))
        self.buttons["out"].clicked.connect(self._remove)
        self.list.currentRowChanged.connect(self._enable)
        queue.changed.connect(self.refresh)
        self.set_theme(theme)
        self.refresh()

    def set_document(self, document: Document | None) -> None:
        """The queue is of all open models: nothing changes."""

    def set_theme(self, theme: Theme) -> None:
        for name, sign, _ in BUTTONS:
            self.buttons[name].setIcon(icon(sign, theme))

    def refresh(self) -> None:
        at = self.list.currentRow()
        self.list.clear()
        for number, wish in enumerate(self.queue.wishes, start=1):
            self.list.addItem(f"{number}.  {wish.document.title}: {wish.title}{', anew' if wish.anew else ''}")
        self.list.setCurrentRow(min(max(at, 0), self.list.count() - 1))
        self.list.setVisible(bool(self.queue.wishes))
        self.empty.setVisible(not self.queue.wishes)
        self._enable()

    def _enable(self) -> None:
        at, last = self.list.currentRow(), self.list.count() - 1
        self.buttons["up"].setEnabled(at > 0)
        self.buttons["down"].setEnabled(0 <= at < last)
        self.buttons["out"].setEnabled(at >= 0)

    def _move(self, by: int) -> None:
        self.list.setCurrentRow(self.queue.move(self.list.currentRow(), by))

    def _remove(self) -> None:
        self.queue.remove(self.list.currentRow())
