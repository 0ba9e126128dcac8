"""Every command by name: type a few letters, press Enter. What can't be done now is grey and says why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QAction, QBrush, QKeyEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from app.theme import Theme

MOST = 60
MOVES = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp)


@dataclass(frozen=True)
class Entry:
    """One line; `reason` says why it can't be done, "" if it can."""

    text: str
    do: Callable[[], object]
    keys: str = ""
    reason: str = ""


def entry_of(action: QAction, group: str = "") -> Entry:
    text = action.text().replace("&", "").partition("\t")[0].replace("…", "")
    reason = "" if action.isEnabled() else (action.statusTip() or "not possible now")
    return Entry(f"{group}{text}", action.trigger, action.shortcut().toString(), reason)


def matching(entries: Sequence[Entry], text: str) -> list[Entry]:
    """Entries that hold every word; those that begin with the text first."""
    words = text.lower().split()
    found = [e for e in entries if all(w in e.text.lower() for w in words)]
    return sorted(found, key=lambda e: (bool(e.reason), not e.text.lower().startswith(text.lower().strip())))


class Palette(QDialog):
    def __init__(self, entries: Sequence[Entry], theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Dialog | Qt.WindowType.FramelessWindowHint)
        self.setObjectName("palette")
        self.setWindowTitle("Commands")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.theme, self.entries = theme, list(entries)
        self.shown: list[Entry] = []
        self.text = QLineEdit(placeholderText="Type a command, a sample, a region or a node")
        self.text.setAccessibleName("Command")
        self.list = QListWidget()
        self.list.setAccessibleName("Commands")
        self.list.setUniformItemSizes(True)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(6)
        layout.addWidget(self.text)
        layout.addWidget(self.list)
        self.text.textChanged.connect(self._search)
        self.text.installEventFilter(self)
        self.list.itemClicked.connect(lambda item: self._do(self.list.row(item)))
        self.resize(560, 380)
        self._search("")
        centre = parent.mapToGlobal(parent.rect().center())
        self.move(centre.x() - self.width() // 2, parent.mapToGlobal(parent.rect().topLeft()).y() + 90)

    def _search(self, text: str) -> None:
        self.list.clear()
        self.shown = matching(self.entries, text)[:MOST]
        for entry in self.shown:
            aside = entry.reason or entry.keys
            item = QListWidgetItem(f"{entry.text}      {aside}" if aside else entry.text)
            if entry.reason:
                item.setForeground(QBrush(self.theme["faint"]))
                item.setToolTip(entry.reason)
            self.list.addItem(item)
        self.list.setCurrentRow(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._do(self.list.currentRow())
                return True
            if event.key() in MOVES:
                self.list.keyPressEvent(event)
                return True
        return super().eventFilter(watched, event)

    def _do(self, row: int) -> None:
        if 0 <= row < len(self.shown) and not self.shown[row].reason:
            self.accept()
            self.shown[row].do()
