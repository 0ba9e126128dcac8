"""Words over a list or table that has nothing to show: what to do next."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QAbstractItemView, QLabel


class Hint(QLabel):
    """Covers the rows of a view, below its header, and lets the mouse through. `say` with "" takes it away."""

    def __init__(self, view: QAbstractItemView) -> None:
        super().__init__(view.viewport())
        self.setObjectName("muted")
        self.setWordWrap(True)
        self.setMargin(16)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._port = view.viewport()
        self._port.installEventFilter(self)

    def say(self, text: str) -> None:
        self.setText(text)
        self.setVisible(bool(text))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self.setGeometry(self._port.rect())
        return False
