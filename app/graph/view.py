"""The canvas: zoom at the cursor, pan, click, rubber band, lasso, hover, and the ways to a place."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsScene, QGraphicsView, QRubberBand, QToolTip, QWidget

from app.document import Document
from app.graph.describe import tooltip
from app.graph.item import GraphItem, Mode
from app.graph.lasso import Lasso
from app.graph.motion import LEAST, MOST, Motion, held_inside, place_of
from app.theme import Theme

STEP = 1.15
DRAG = 4  # pixels before a press is a drag


class GraphView(QGraphicsView):
    """Shows one document. Gestures change the document's selection; everything drawn comes from it."""

    menu_wanted = Signal(QPoint)  # global position
    opened = Signal()  # double click or Enter: show the details
    zoomed = Signal(float)
    moved = Signal(QRectF)  # the part of the scene that is in view now
    lasso_wanted = Signal(bool)  # the lasso was taken up, or put away, by its key

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.document: Document | None = None
        self.item: GraphItem | None = None
        self.setScene(QGraphicsScene(self))
        self.scene().setItemIndexMethod(QGraphicsScene.ItemIndexMethod.NoIndex)
        self.setFrameShape(QGraphicsView.Shape.NoFrame)
        self.setTransformationAnchor(QGraphicsView.ViewportAnchor.NoAnchor)
        self.setResizeAnchor(QGraphicsView.ViewportAnchor.AnchorViewCenter)
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.SmartViewportUpdate)
        self.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setMouseTracking(True)
        self.setAccessibleName("Graph")
        self.setAccessibleDescription("The graph of the model. The Nodes tab has the same nodes as a table.")
        self._press: QPoint | None = None
        self._pan_from: QPoint | None = None
        self._space = False
        self._band = QRubberBand(QRubberBand.Shape.Rectangle, self.viewport())
        self.lasso = Lasso(theme, self.viewport())
        self._lassoing = self._lasso_tool = False  # the press draws a line; every press does
        self.motion = Motion(lambda: (self.zoom, self.seen.center()), self._show_place, self)
        self._fitted = True  # the whole graph is shown, also after a resize; told before the view moves
        for bar in (self.horizontalScrollBar(), self.verticalScrollBar()):
            bar.valueChanged.connect(self._tell_place)
        self.zoomed.connect(self._tell_place)
        self.set_theme(theme)

    def show_document(self, document: Document) -> None:
        """Show a document at its placement."""
        assert document.placement is not None
        placement = document.placement
        self.clear()
        self.document = document
        self.item = GraphItem(document, placement, self.theme)
        self.scene().addItem(self.item)
        self.scene().setSceneRect(self.item.boundingRect().adjusted(-4000, -4000, 4000, 4000))
        document.selection_changed.connect(self.item.update)
        self.fit()

    def clear(self) -> None:
        if self.document is not None and self.item is not None:
            self.document.selection_changed.disconnect(self.item.update)
        self.scene().clear()
        self.document = self.item = None

    def set_theme(self, theme: Theme) -> None:
        self.theme = self.lasso.theme = theme
        self.setBackgroundBrush(theme["canvas"])
        if self.item is not None:
            self.item.theme = theme
            self.item.refresh()

    def set_mode(self, mode: Mode) -> None:
        if self.item is not None:
            self.item.mode = mode
            self.item.refresh()

    # Where the view stands --------------------------------------------------------------------------------------

    @property
    def zoom(self) -> float:
        return self.transform().m11()

    def fit(self, area: QRectF | None = None) -> None:
        """The whole graph, or an area, in view at once; an area never above 100 %."""
        if self.item is not None:
            self.motion.stop()
            self._fitted = area is None
            self._show_place(*self._place_of(area or self.item.boundingRect()))

    def fit_all(self) -> None:
        if self.item is not None:
            self._fitted = True
            self.motion.travel(*self._place_of(self.item.boundingRect()))

    def _place_of(self, area: QRectF) -> tuple[float, QPointF]:
        return place_of(area, self.viewport().rect())

    def _show_place(self, zoom: float, centre: QPointF) -> None:
        self._set_zoom(zoom)
        self.centerOn(centre)

    @property
    def seen(self) -> QRectF:
        """What is in view, in scene units."""
        return self.mapToScene(self.viewport().rect()).boundingRect()

    @property
    def place(self) -> tuple[float, float, float] | None:
        """Zoom and centre, to come back to; None while the whole graph is shown."""
        centre = self.seen.center()
        return None if self._fitted else (self.zoom, centre.x(), centre.y())

    def go_to(self, place: tuple[float, float, float] | None) -> None:
        if place is None:
            self.fit()
            return
        self.motion.stop()
        self._fitted = False
        self._show_place(place[0], QPointF(place[1], place[2]))

    def centre_on(self, place: QPointF) -> None:
        self.motion.stop()
        self.centerOn(place)
        self._fitted = False

    def _tell_place(self) -> None:
        self.moved.emit(self.seen)

    def reveal(self, boxes: "tuple[int, ...] | list[int]") -> None:
        """Bring boxes into view at a readable size."""
        if self.item is None or not boxes:
            return
        area = QRectF()
        for i in boxes:
            area = area.united(self.item.rect_of(i))
        if self.zoom < 0.5 or not self.seen.contains(area):
            zoom, centre = self._place_of(area.adjusted(-200, -100, 200, 100))
            port = QRectF(self.viewport().rect())
            self._fitted = False
            self.motion.travel(zoom, held_inside(zoom, centre, self.item.boundingRect(), port))

    def _set_zoom(self, scale: float) -> None:
        scale = min(MOST, max(LEAST, scale))
        self.resetTransform()
        self.scale(scale, scale)
        self.zoomed.emit(scale)

    def glide(self, place: QPointF, factor: float) -> None:
        """Zoom at a point of the viewport, with motion; further turns of the wheel add up."""
        wanted = min(MOST, max(LEAST, self.motion.target_zoom * factor))
        self._fitted = False
        self.motion.zoom_about(wanted, self.mapToScene(place.toPoint()))

    def zoom_at(self, place: QPointF, factor: float) -> None:
        """Zoom at a point of the viewport at once."""
        self.motion.stop()
        before = self.mapToScene(place.toPoint())
        wanted = min(MOST, max(LEAST, self.zoom * factor))
        self.scale(wanted / self.zoom, wanted / self.zoom)
        after = self.mapFromScene(before)
        self._scroll_by(after - place.toPoint())
        self._fitted = False
        self.zoomed.emit(self.zoom)

    def _scroll_by(self, offset: QPoint) -> None:
        self.horizontalScrollBar().setValue(self.horizontalScrollBar().value() + offset.x())
        self.verticalScrollBar().setValue(self.verticalScrollBar().value() + offset.y())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._fitted:
            self.fit()
        self._tell_place()

    # Gestures ---------------------------------------------------------------------------------------------------

    def wheelEvent(self, event: QWheelEvent) -> None:
        factor = STEP ** (event.angleDelta().y() / 120)
        # A touchpad tells pixels and is smooth of itself; a wheel tells notches.
        (self.glide if event.pixelDelta().isNull() else self.zoom_at)(event.position(), factor)
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        self.motion.stop()
        if event.button() == Qt.MouseButton.MiddleButton or (
            event.button() == Qt.MouseButton.LeftButton and self._space
        ):
            self._pan_from = place
            self.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)
        elif event.button() == Qt.MouseButton.LeftButton:
            self._press = place
            self._lassoing = self._lasso_tool or bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        if self._pan_from is not None:
            self._scroll_by(self._pan_from - place)
            self._pan_from = place
            self._fitted = False
        elif self._press is not None:
            self._drag(self._press, place)
        else:
            self._hover(self.box_at(place))

    def _drag(self, start: QPoint, place: QPoint) -> None:
        if not (self._band.isVisible() or self.lasso.isVisible()) and (place - start).manhattanLength() <= DRAG:
            return
        if not self._lassoing:
            self._band.setGeometry(QRect(start, place).normalized())
            self._band.show()
            return
        if not self.lasso.isVisible():
            self.lasso.begin(start)
        self.lasso.extend(place)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        adding = bool(event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier))
        if self._pan_from is not None:
            self._pan_from = None
            self.set_lasso(self._lasso_tool)
        elif self._press is not None and event.button() == Qt.MouseButton.LeftButton:
            if self._band.isVisible():
                self._take_band(adding)
            elif self.lasso.isVisible():
                self._take_lasso(adding)
            else:
                self._click(self.box_at(event.position().toPoint()), adding)
            self._press = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.document is None:
            return
        region = self.document.region_at(box) if (box := self.box_at(event.position().toPoint())) >= 0 else None
        if region is not None:
            self.document.select_region(region)
            self.opened.emit()

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(-1)
        super().leaveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        box = self.box_at(event.pos())
        if self.document is not None and box >= 0 and box not in self.document.selection:
            self._click(box, False)
        self.menu_wanted.emit(event.globalPos())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys: dict[int, Callable[[], None]] = {
            Qt.Key.Key_F: self.fit_all,
            Qt.Key.Key_Escape: self._escape,
            Qt.Key.Key_Return: self.opened.emit,
            Qt.Key.Key_Plus: lambda: self.glide(QPointF(self.viewport().rect().center()), STEP),
            Qt.Key.Key_Minus: lambda: self.glide(QPointF(self.viewport().rect().center()), 1 / STEP),
            Qt.Key.Key_L: lambda: self.lasso_wanted.emit(not self._lasso_tool),
            Qt.Key.Key_Down: lambda: self._step(1),
            Qt.Key.Key_Up: lambda: self._step(-1),
        }
        if event.key() == Qt.Key.Key_Space:
            if not event.isAutoRepeat():
                self._space = True
                self.viewport().setCursor(Qt.CursorShape.OpenHandCursor)
        elif event.key() in keys and not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            keys[event.key()]()
        else:
            super().keyPressEvent(event)

    def keyReleaseEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = False
            self.set_lasso(self._lasso_tool)
        super().keyReleaseEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            box = self.box_at(event.pos())
            if self.document is not None and box >= 0:
                QToolTip.showText(event.globalPos(), tooltip(self.document, box), self.viewport())
            else:
                QToolTip.hideText()
            return True
        return super().viewportEvent(event)

    def box_at(self, place: QPoint) -> int:
        """The box under a point of the viewport, -1 for none."""
        if self.item is None:
            return -1
        scene = self.mapToScene(place)
        return self.item.hit(scene.x(), scene.y())

    def _hover(self, box: int) -> None:
        if self.item is not None and box != self.item.hovered:
            self.item.hovered = box
            self.item.update()

    def _click(self, box: int, adding: bool) -> None:
        document = self.document
        if document is None:
            return
        self._clear_offending()
        if box < 0:
            if not adding:
                document.select([])
        elif adding:
            kept = [i for i in document.selection if i != box]
            document.select(kept if box in document.selection else [*document.selection, box])
        else:
            document.select([box])

    def _take_band(self, adding: bool) -> None:
        area = self.mapToScene(self._band.geometry()).boundingRect()
        self._band.hide()
        if self.item is not None:
            self._take(self.item.inside(area), adding)

    def _take_lasso(self, adding: bool) -> None:
        line = [self.mapToScene(p) for p in self.lasso.points]
        self.lasso.hide()
        if self.item is not None:
            self._take(self.item.enclosed(line), adding)

    def _take(self, boxes: list[int], adding: bool) -> None:
        if self.document is not None:
            self._clear_offending()
            kept = self.document.selection if adding else ()
            self.document.select([*kept, *boxes])

    def set_lasso(self, on: bool) -> None:
        """Every drag draws a lasso, or a frame."""
        self._lasso_tool = on
        self.viewport().setCursor(Qt.CursorShape.CrossCursor if on else Qt.CursorShape.ArrowCursor)

    def _step(self, by: int) -> None:
        """To the next or previous box along an edge: the keyboard's way through the graph."""
        document = self.document
        if document is None or self.item is None:
            return
        edges = self.item.placement.edges
        at = document.selection[-1] if document.selection else -1
        near = [b for a, b in edges if a == at] if by > 0 else [a for a, b in edges if b == at]
        following = near[0] if near else (at if at >= 0 else 0)
        document.select([following])
        self.reveal([following])

    def _escape(self) -> None:
        """End the gesture that runs; without one put the lasso away, and clear what is marked and selected."""
        if self._band.isVisible() or self.lasso.isVisible():
            self._band.hide()
            self.lasso.hide()
            self._press = None
            return
        self.lasso_wanted.emit(False)
        self.show_hits([])
        self._clear_offending()
        if self.document is not None:
            self.document.select([])

    def show_hits(self, boxes: list[int]) -> None:
        if self.item is not None:
            self.item.marked = set(boxes)
            self.item.update()

    def show_offending(self, box: int) -> None:
        """Mark the node that stands in the way of a fusion."""
        if self.item is not None:
            self.item.offending = box
            self.item.update()

    def _clear_offending(self) -> None:
        self.show_offending(-1)

    def sizeHint(self) -> QSize:
        return QSize(800, 600)
