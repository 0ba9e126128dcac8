"""The whole graph, small, in a corner of the canvas; a frame shows what is in view, a click or a drag goes there."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QWidget

from app.graph.item import GraphItem
from app.theme import Theme

LARGEST = QSize(220, 150)
LEAST = 40
SHARE = 3.5  # of the canvas's width and height it takes one part at most
GAP = 12
MARGIN = 6


class Minimap(QWidget):
    """Draws an item's boxes as a picture; `wanted` carries the scene point to centre on."""

    wanted = Signal(QPointF)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = theme
        self.item: GraphItem | None = None
        self.frame = QRectF()
        self._picture: QPixmap | None = None
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Overview of the graph")
        self.hide()

    def show_item(self, item: GraphItem | None) -> None:
        self.item = item
        self.redraw()

    def fit_into(self, canvas: QSize) -> None:
        """As large as a canvas of that size can spare, in its lower right corner."""
        if self.item is not None:
            bounds = self.item.boundingRect()
            wide, high = min(LARGEST.width(), canvas.width() / SHARE), min(LARGEST.height(), canvas.height() / SHARE)
            scale = min(wide / bounds.width(), high / bounds.height())
            size = QSize(max(LEAST, round(bounds.width() * scale)), max(LEAST, round(bounds.height() * scale)))
            if size != self.size():
                self.resize(size)
                self.redraw()
        self.move(canvas.width() - self.width() - GAP, canvas.height() - self.height() - GAP)

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self.redraw()

    def redraw(self) -> None:
        """The colours changed."""
        self._picture = None
        self.update()

    def set_frame(self, seen: QRectF) -> None:
        """What the view shows, in scene units. With the whole graph in view the map only hides it."""
        self.frame = seen
        self.setVisible(
            self.item is not None and not seen.contains(self.item.boundingRect().adjusted(70, 70, -70, -70))
        )
        self.update()

    def _scale(self) -> tuple[float, QRectF]:
        assert self.item is not None
        bounds = self.item.boundingRect()
        inner = self.rect().adjusted(MARGIN, MARGIN, -MARGIN, -MARGIN)
        return min(inner.width() / bounds.width(), inner.height() / bounds.height()), bounds

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.item is None:
            return
        if self._picture is None:
            self._picture = self._draw()
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._picture)
        scale, bounds = self._scale()
        seen = self.frame.intersected(bounds)
        frame = QRectF(
            MARGIN + (seen.left() - bounds.left()) * scale, MARGIN + (seen.top() - bounds.top()) * scale,
            max(4.0, seen.width() * scale), max(4.0, seen.height() * scale),
        )  # fmt: skip
        fill = QColor(self.theme["accent"])
        fill.setAlpha(36)
        painter.setBrush(fill)
        painter.setPen(QPen(self.theme["accent"], 1.5))
        painter.drawRect(frame)

    def _draw(self) -> QPixmap:
        assert self.item is not None
        ratio = self.devicePixelRatioF()
        picture = QPixmap(self.size() * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(self.theme["surface"])
        painter = QPainter(picture)
        painter.setPen(QPen(self.theme["border"], 1))
        painter.drawRect(QRectF(0.5, 0.5, self.width() - 1, self.height() - 1))
        scale, bounds = self._scale()
        painter.translate(MARGIN, MARGIN)
        painter.scale(scale, scale)
        painter.translate(-bounds.topLeft())
        self.item.paint_overview(painter)
        painter.end()
        return picture

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._go(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._go(event.position())

    def _go(self, place: QPointF) -> None:
        if self.item is not None:
            scale, bounds = self._scale()
            self.wanted.emit(QPointF((place.x() - MARGIN) / scale, (place.y() - MARGIN) / scale) + bounds.topLeft())
