"""The key of the colours: swatches with words, in as many lines as its width needs."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Theme

SWATCH, GAP, BETWEEN, LINE = 11.0, 5.0, 18.0, 19.0  # pixels


class Keys(QWidget):
    """Paints (colour, text) pairs; a height for each width, so that no text is ever cut off."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.entries: list[tuple[str, str]] = []
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)  # it never widens the window
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def show_entries(self, entries: list[tuple[str, str]], theme: Theme) -> None:
        self.entries, self.theme = entries, theme
        words = ", ".join(text for _, text in entries)
        self.setAccessibleName(f"Key: {words}")
        self.updateGeometry()
        self.update()

    def one_line(self) -> float:
        """The width at which one line holds all."""
        return sum(self._width(text) for _, text in self.entries)

    def _width(self, text: str) -> float:
        return SWATCH + GAP + QFontMetricsF(self.font()).horizontalAdvance(text) + BETWEEN

    def places(self, width: float) -> list[QPointF]:
        """The top left corner of each entry's line."""
        found, x, y = [], 0.0, 0.0
        for _, text in self.entries:
            taken = self._width(text)
            if x and x + taken - BETWEEN > width:
                x, y = 0.0, y + LINE
            found.append(QPointF(x, y))
            x += taken
        return found

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        places = self.places(width)
        return round((places[-1].y() if places else 0.0) + LINE)

    def sizeHint(self) -> QSize:
        return QSize(round(self.one_line()), round(LINE))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, round(LINE))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        places = self.places(self.width())
        top = max(0.0, (self.height() - self.heightForWidth(self.width())) / 2)
        for (color, text), at in zip(self.entries, places, strict=True):
            box = QRectF(at.x(), top + at.y() + (LINE - SWATCH) / 2, SWATCH, SWATCH)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(color))
            painter.drawRoundedRect(box, 3, 3)
            painter.setPen(self.theme["muted"])
            words = QRectF(box.right() + GAP, top + at.y(), self.width(), LINE)
            painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
        painter.end()
