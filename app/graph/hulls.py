"""Shapes that the canvas draws: outlines of regions, curves of edges, the stripe of a box."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainterPath

from app.graph.placement import Point

PAD = 6.0
NEARBY = 60.0  # boxes closer than this are joined at full width
BAND = 5.0  # half the width of what joins boxes that are further apart


def outline(boxes: Sequence[int], rects: Sequence[QRectF], edges: Sequence[tuple[int, int]]) -> QPainterPath:
    """One soft shape round the boxes, joined along the edges between them."""
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    for box in boxes:
        grown = QPainterPath()
        grown.addRoundedRect(rects[box].adjusted(-PAD, -PAD, PAD, PAD), 10, 10)
        path = path.united(grown)
    for a, b in edges:
        path = path.united(_band(rects[a], rects[b]))
    return path.simplified()


def _band(upper: QRectF, lower: QRectF) -> QPainterPath:
    """The quadrilateral from the foot of one box to the head of another; full width where they overlap."""
    narrow = min(upper.width(), lower.width()) / 2 - 6
    apart = lower.top() - upper.bottom()
    half = narrow + PAD if apart < NEARBY else min(narrow, BAND)
    a, b = upper.center().x(), lower.center().x()
    band = QPainterPath(QPointF(a - half, upper.bottom() - 8))
    band.lineTo(a + half, upper.bottom() - 8)
    band.lineTo(b + half, lower.top() + 8)
    band.lineTo(b - half, lower.top() + 8)
    band.closeSubpath()
    return band


def curve(points: Sequence[Point]) -> QPainterPath:
    """A smooth curve downwards through the points."""
    x, y = points[0]
    path = QPainterPath(QPointF(x, y))
    for nx, ny in points[1:]:
        middle = (y + ny) / 2
        path.cubicTo(x, middle, nx, middle, nx, ny)
        x, y = nx, ny
    return path


def right_angles(points: Sequence[Point], radius: float = 6.0) -> QPainterPath:
    """Straight runs with rounded corners."""
    path = QPainterPath(QPointF(*points[0]))
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        path.lineTo(*start)
        path.quadTo(QPointF(*corner), QPointF(*end))
    path.lineTo(*points[-1])
    return path


def _towards(corner: Point, other: Point, radius: float) -> Point:
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = max(abs(dx), abs(dy))
    step = min(radius, length / 2) / length if length else 0.0
    return corner[0] + dx * step, corner[1] + dy * step


def stripe(rect: QRectF, width: float, radius: float) -> QPainterPath:
    """The coloured left edge of a box, its outer corners rounded as the box's are."""
    whole, cut = QPainterPath(), QPainterPath()
    whole.addRoundedRect(rect, radius, radius)
    cut.addRect(QRectF(rect.left(), rect.top(), width, rect.height()))
    return whole.intersected(cut)
