"""A line drawn by hand round nodes: what it encloses, and how it looks while it is drawn."""

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygon
from PySide6.QtWidgets import QWidget

from app.theme import Theme

STEP = 3  # pixels between two points of the line


def enclosed(x: np.ndarray, y: np.ndarray, corners: Sequence[QPointF]) -> np.ndarray:
    """Indices of the points (x, y) within a closed polygon, ascending; even-odd rule, so crossings make holes.

    Every edge of the polygon looks only at the points between its two heights, found by bisection.
    """
    order = np.argsort(y, kind="stable")
    xs, ys = x[order], y[order]
    odd = np.zeros(len(x), dtype=bool)
    ends = np.asarray([(c.x(), c.y()) for c in corners], dtype=float).reshape(-1, 2)
    for (ax, ay), (bx, by) in zip(ends.tolist(), np.roll(ends, -1, axis=0).tolist(), strict=True):
        low, high = (ay, by) if ay < by else (by, ay)
        first, last = np.searchsorted(ys, (low, high), side="left")  # the lower end belongs to the edge, the upper not
        if first < last:
            crossing = ax + (ys[first:last] - ay) * ((bx - ax) / (by - ay))
            odd[first:last] ^= xs[first:last] < crossing
    return np.sort(order[odd])


class Lasso(QWidget):
    """Lies over the view while the line is drawn; lets the mouse through."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme, self._over = theme, parent
        self.points: list[QPoint] = []
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def begin(self, place: QPoint) -> None:
        self.points = [place]
        self.setGeometry(QRect(QPoint(0, 0), self._over.size()))
        self.show()
        self.raise_()

    def extend(self, place: QPoint) -> None:
        if (place - self.points[-1]).manhattanLength() >= STEP:
            self.points.append(place)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        fill = QColor(self.theme["accent"])
        fill.setAlpha(28)
        painter.setBrush(fill)
        painter.setPen(Qt.PenStyle.NoPen)
        line = QPolygon(self.points)
        painter.drawPolygon(line)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(self.theme["accent"], 1.6))
        painter.drawPolyline(line)
        painter.setPen(QPen(self.theme["accent"], 1.0, Qt.PenStyle.DashLine))
        painter.drawLine(self.points[-1], self.points[0])
