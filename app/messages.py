"""The line under the toolbar that tells what went wrong and what to do; it can be copied and closed."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from app.theme import Theme, icon, pixmap
from core.errors import BoltError

TOKENS = {"error": "bad", "warning": "warn", "info": "accent", "done": "good"}


class MessageBar(QFrame):
    """One message at a time; the newest wins. Hidden when there is none."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("message")
        self.theme = theme
        self.level = "info"
        self.sign = QLabel()
        self.text = QLabel(wordWrap=True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.act = QPushButton()
        self.act.hide()
        self.copy = QToolButton()
        self.copy.setToolTip("Copy the message")
        self.copy.setAccessibleName("Copy the message")
        self.close_button = QToolButton()
        self.close_button.setToolTip("Close the message")
        self.close_button.setAccessibleName("Close the message")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 8, 8, 8)
        layout.setSpacing(10)
        layout.addWidget(self.sign)
        layout.addWidget(self.text, 1)
        layout.addWidget(self.act)
        layout.addWidget(self.copy)
        layout.addWidget(self.close_button)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text.text()))
        self.close_button.clicked.connect(self.hide)
        self._action: Callable[[], None] | None = None
        self.act.clicked.connect(self._do)
        self.set_theme(theme)
        self.hide()

    def show_error(self, error: BoltError) -> None:
        sentence = error.what[:1].upper() + error.what[1:]
        remedy = error.remedy[:1].upper() + error.remedy[1:]
        self.show_text("error", f"{sentence}.\n{remedy}." if remedy else f"{sentence}.")

    def show_text(self, level: str, text: str, offer: str = "", action: Callable[[], None] | None = None) -> None:
        """A message, with a button that does `action` if there is one."""
        self.level = level
        self._action = action
        self.act.setText(offer)
        self.act.setVisible(action is not None)
        self.setProperty("level", level)
        self.style().unpolish(self)
        self.style().polish(self)
        self.text.setText(text)
        self.text.setAccessibleName(f"{level}: {text}")
        self._draw_icons()
        self.show()

    def _do(self) -> None:
        action = self._action
        self.hide()
        if action is not None:
            action()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self._draw_icons()

    def _draw_icons(self) -> None:
        name = "done" if self.level == "done" else self.level
        self.sign.setPixmap(pixmap(name, self.theme.hex(TOKENS[self.level]), 18, self.devicePixelRatioF()))
        self.close_button.setIcon(icon("close", self.theme))
        self.copy.setIcon(icon("copy", self.theme))
