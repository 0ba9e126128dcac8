"""Words over a list or table that has nothing to show: what to do next."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QLabel, QVBoxLayout


class Hint(QLabel):
    """Covers the rows of a view, below its header, and lets the mouse through. `say` with "" takes it away."""

    def __init__(self, view: QAbstractItemView) -> None:
        super().__init__(wordWrap=True)
        self.setObjectName("muted")
        self.setMargin(16)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        layout = QVBoxLayout(view.viewport())
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self)

    def say(self, text: str) -> None:
        self.setText(text)
        self.setVisible(bool(text))
