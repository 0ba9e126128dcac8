"""The whole graph as one painted item: arrays in, level of detail by zoom, only what is exposed."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.document import Document
from app.format import RESIDENCES, ratio
from app.graph import hulls
from app.graph.drawing import draw
from app.graph.lasso import enclosed
from app.graph.placement import Placement
from app.run import State
from app.theme import Theme, base_font

FAR = 0.16  # below: coloured blocks and straight lines
NEAR = 0.42  # from here: both lines of text, rounded boxes, curves
READABLE = 0.22  # from here to NEAR: the operator alone, in large type
MARGIN = 60.0


class Mode(StrEnum):
    """What colour means; the value is shown in the legend's list."""

    REGION = "Region kind"
    OPERATOR = "Operator"
    TIME = "Time"
    SPEEDUP = "Speed-up over vendor"
    STATE = "Tuning state"


def longest_us(document: Document) -> float:
    """The longest measured time of a region of the plan; 0 if nothing was measured."""
    runs = (document.run.workloads.get(key) for key in document.plan.workloads)
    return max((run.best.us for run in runs if run is not None and run.best), default=0.0)


STATE_TOKENS = {State.QUEUED: "faint", State.RUNNING: "accent", State.DONE: "good", State.FAILED: "bad"}


class GraphItem(QGraphicsItem):
    """Draws a document's boxes, edges and regions at a placement. The view asks it what lies where."""

    def __init__(self, document: Document, placement: Placement, theme: Theme) -> None:
        super().__init__()
        self.document, self.placement, self.theme = document, placement, theme
        self.mode = Mode.REGION
        self.hovered = -1
        self.marked: set[int] = set()  # search hits
        self.offending = -1
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemUsesExtendedStyleOption)
        p = placement
        self.left, self.right = p.x - p.widths / 2, p.x + p.widths / 2
        self.top, self.bottom = p.y - p.height / 2, p.y + p.height / 2
        drawing = document.drawing if placement is document.placement and document.drawing else draw(placement)
        self._rects = drawing.rects
        self._edge_boxes, self._line_box, self._lines = drawing.edge_boxes, drawing.line_boxes, drawing.lines
        self._edge_paths: dict[int, QPainterPath] = {}
        self._hulls: dict[int, QPainterPath] = {}
        self._drawn_plan = document.plan
        self._texts: dict[int, tuple[str, str]] = {}
        self._titles: dict[int, str] = {}
        left, top, right, bottom = p.bounds
        self._bounds = QRectF(left, top, right - left, bottom - top).adjusted(-MARGIN, -MARGIN, MARGIN, MARGIN)
        self.refresh()

    def boundingRect(self) -> QRectF:
        return self._bounds

    def rect_of(self, box: int) -> QRectF:
        return self._rects[box]

    def hit(self, x: float, y: float) -> int:
        """The box under a scene point, -1 for none."""
        inside = np.nonzero((self.left <= x) & (x <= self.right) & (self.top <= y) & (y <= self.bottom))[0]
        return int(inside[0]) if len(inside) else -1

    def inside(self, area: QRectF) -> list[int]:
        """Boxes that touch a scene rectangle."""
        return self._touching(area).tolist()

    def enclosed(self, line: Sequence[QPointF]) -> list[int]:
        """Boxes whose middle lies within a closed line in scene units."""
        return enclosed(self.placement.x, self.placement.y, line).tolist()

    def refresh(self) -> None:
        """Colours again, after the plan, the run, the mode or the theme changed."""
        if self._drawn_plan is not self.document.plan:
            self._drawn_plan = self.document.plan
            self._hulls.clear()
        self._longest = longest_us(self.document)
        self._box_colors = self._colors()
        self.update()

    def _touching(self, area: QRectF) -> np.ndarray:
        x = (self.left <= area.right()) & (self.right >= area.left())
        return np.nonzero(x & (self.top <= area.bottom()) & (self.bottom >= area.top()))[0]

    # Colour -------------------------------------------------------------------------------------------------------

    def region_color(self, region_at: int) -> QColor:
        region = self.document.plan.regions[region_at]
        if self.mode is Mode.OPERATOR:
            return self.theme["faint"]
        if self.mode is Mode.REGION:
            return self.theme[f"kind.{region.kind}"]
        run = self.document.workload_run(region)
        if self.mode is Mode.STATE:
            return self.theme[STATE_TOKENS.get(run.state, "accent")] if run else self.theme["border"]
        if self.mode is Mode.TIME:
            return self.theme.heat(run.best.us / self._longest) if run and run.best else self.theme["border"]
        speedup = run.speedup if run else None
        return self.theme.speedup(speedup) if speedup else self.theme["border"]

    def _colors(self) -> list[QColor]:
        of_region = [self.region_color(i) for i in range(len(self.document.plan.regions))]
        found = []
        for box, region in zip(self.document.model.boxes, self.document.region_of_box, strict=True):
            by_operator = self.mode is Mode.OPERATOR or region < 0
            found.append(self.theme[f"op.{box.family}"] if by_operator else of_region[region])
        return found

    # Painting -----------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        zoom = option.levelOfDetailFromTransform(painter.worldTransform())
        self._paint(painter, option.exposedRect.adjusted(-20, -30, 20, 30), zoom)

    def _paint(self, painter: QPainter, exposed: QRectF, zoom: float) -> None:
        shown = self._touching(exposed)
        if zoom >= FAR:
            self._paint_hulls(painter, shown, zoom)
        self._paint_edges(painter, exposed, zoom)
        if zoom < FAR:
            self._paint_blocks(painter, shown)
        else:
            self._paint_boxes(painter, shown, zoom)
        self._paint_marks(painter, zoom)

    def paint_all(self, painter: QPainter, target: QRectF) -> None:
        """The whole graph fitted into a rectangle of the painter's, at the detail that it has room for."""
        zoom = target.width() / self._bounds.width()
        painter.translate(target.topLeft())
        painter.scale(zoom, zoom)
        painter.translate(-self._bounds.topLeft())
        self._paint(painter, self._bounds, zoom)

    def paint_overview(self, painter: QPainter) -> None:
        """All boxes as blocks of colour."""
        self._paint_blocks(painter, np.arange(len(self._rects)))

    def _paint_blocks(self, painter: QPainter, shown: np.ndarray) -> None:
        by_color: dict[int, list[QRectF]] = {}
        for i in shown.tolist():
            by_color.setdefault(self._box_colors[i].rgba(), []).append(self._rects[i])
        painter.setPen(Qt.PenStyle.NoPen)
        for rgba, rects in by_color.items():
            painter.setBrush(QBrush(QColor.fromRgba(rgba)))
            painter.drawRects(rects)

    def _paint_hulls(self, painter: QPainter, shown: np.ndarray, zoom: float) -> None:
        regions = dict.fromkeys(self.document.region_of_box[i] for i in shown.tolist())
        hovered = self.document.region_of_box[self.hovered] if self.hovered >= 0 else -1
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, zoom >= NEAR)
        for region in regions:
            if region < 0:
                continue
            color = QColor(self.region_color(region))
            strong = region == hovered
            plain = (
                len(self.document.plan.regions[region].nodes) == 1
                and self.document.plan.regions[region].workload is None
            )
            color.setAlpha(90 if strong else 24 if plain else 52)
            painter.setBrush(color)
            color.setAlpha(255 if strong else 70 if plain else 150)
            pen = QPen(color, 1.5 if strong else 1.0)
            pen.setCosmetic(True)
            if plain:
                pen.setStyle(Qt.PenStyle.DashLine)
            painter.setPen(pen)
            painter.drawPath(self.hull(region))
            if zoom >= NEAR:
                self._paint_tag(painter, region)

    def hull(self, region: int) -> QPainterPath:
        path = self._hulls.get(region)
        if path is None:
            names = self.document.plan.regions[region].nodes
            boxes = self._drawn(names)
            path = self._hulls[region] = hulls.outline(boxes, self._rects, self._edges_among(boxes))
        return path

    def _drawn(self, names: tuple[str, ...]) -> list[int]:
        """Boxes of operators, without those that are folded away."""
        model = self.document.model
        return [i for n in names if model.boxes[i := model.index[n]].node is not None]

    @cached_property
    def _after(self) -> dict[int, list[int]]:
        """Box -> the boxes it leads to, rails left out."""
        after: dict[int, list[int]] = {}
        for (a, b), rail in zip(self.placement.edges, self.placement.rail.tolist(), strict=True):
            if not rail:
                after.setdefault(a, []).append(b)
        return after

    def _edges_among(self, boxes: list[int]) -> list[tuple[int, int]]:
        if len(boxes) < 2:
            return []
        members = set(boxes)
        return [(a, b) for a in boxes for b in self._after.get(a, ()) if b in members]

    def _paint_tag(self, painter: QPainter, region_at: int) -> None:
        """The region's number, and its speed-up once there is one, over its first box."""
        region = self.document.plan.regions[region_at]
        run = self.document.workload_run(region)
        kept = [RESIDENCES[region.residence]] if region.residence else []
        text = " ".join([region.id, *kept, *["pinned"] * region.pinned])
        if run is not None and run.speedup is not None:
            text += f"  {ratio(run.speedup)}" + (
                "" if self.document.run.measured_here else f" {self.document.run.provenance}"
            )
        first = self._rects[self._drawn(region.nodes)[0]]
        painter.setFont(base_font(9))
        color = QColor(self.region_color(region_at))
        painter.setPen(color if self.mode is not Mode.OPERATOR else self.theme["muted"])
        place = QRectF(first.left() - 4, first.top() - 18, first.width() + 60, 11)
        painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)

    def _paint_edges(self, painter: QPainter, exposed: QRectF, zoom: float) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if zoom < NEAR:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(QPen(self.theme["edge"], 0))
            box = self._line_box
            seen = (box[:, 0] <= exposed.right()) & (box[:, 2] >= exposed.left())
            seen &= (box[:, 1] <= exposed.bottom()) & (box[:, 3] >= exposed.top())
            painter.drawLines([self._lines[i] for i in np.nonzero(seen)[0].tolist()])
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        box = self._edge_boxes
        seen = (box[:, 0] <= exposed.right()) & (box[:, 2] >= exposed.left())
        seen &= (box[:, 1] <= exposed.bottom()) & (box[:, 3] >= exposed.top())
        normal, rail = QPen(self.theme["edge"], 1.2), QPen(self.theme["rail"], 1.2)
        lit = QPen(self.theme["accent"], 1.8)
        chosen = {self.hovered, *self.document.selection} - {-1}
        for i in np.nonzero(seen)[0].tolist():
            a, b = self.placement.edges[i]
            painter.setPen(lit if a in chosen or b in chosen else rail if self.placement.rail[i] else normal)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawPath(self._edge_path(i))
            painter.setBrush(painter.pen().color())
            painter.setPen(Qt.PenStyle.NoPen)
            x, y = self.placement.paths[i][-1]
            painter.drawPolygon([QPointF(x, y), QPointF(x - 3.5, y - 7), QPointF(x + 3.5, y - 7)])

    def _edge_path(self, i: int) -> QPainterPath:
        path = self._edge_paths.get(i)
        if path is None:
            points = self.placement.paths[i]
            make = hulls.right_angles if self.placement.rail[i] else hulls.curve
            path = self._edge_paths[i] = make(points)
        return path

    def _paint_boxes(self, painter: QPainter, shown: np.ndarray, zoom: float) -> None:
        near = zoom >= NEAR
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, near)
        border = QPen(self.theme["node_border"], 1 if near else 0)
        fill = QBrush(self.theme["node"])
        for i in shown.tolist():
            rect, color = self._rects[i], self._box_colors[i]
            box = self.document.model.boxes[i]
            operator = box.node is not None or bool(box.members)
            if box.members and near:
                self._paint_pile(painter, rect)
            painter.setPen(border)
            painter.setBrush(fill if operator else QBrush(self.theme["canvas"]))
            if not near:
                painter.drawRect(rect)
                painter.fillRect(QRectF(rect.left(), rect.top(), 12 if operator else 0, rect.height()), color)
                continue
            radius = 6 if operator else rect.height() / 2
            painter.drawRoundedRect(rect, radius, radius)
            if operator:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(color)
                painter.drawPath(hulls.stripe(rect, 5.0, 6.0))
        if near:
            self._paint_text(painter, shown)
        elif zoom >= READABLE:
            self._paint_titles(painter, shown)

    def _paint_pile(self, painter: QPainter, rect: QRectF) -> None:
        """Edges of boxes beneath: folded repeats look like a pile."""
        painter.setPen(QPen(self.theme["node_border"], 1))
        painter.setBrush(QBrush(self.theme["raised"]))
        for shift in (6.0, 3.0):
            painter.drawRoundedRect(rect.translated(shift, shift), 6, 6)

    def _paint_titles(self, painter: QPainter, shown: np.ndarray) -> None:
        font = base_font(22, bold=True)
        painter.setFont(font)
        painter.setPen(self.theme["text"])
        metrics = QFontMetricsF(font)
        boxes = self.document.model.boxes
        for i in shown.tolist():
            inner = self._rects[i].adjusted(18, 0, -6, 0)
            title = self._titles.get(i)
            if title is None:
                title = self._titles[i] = metrics.elidedText(boxes[i].title, Qt.TextElideMode.ElideRight, inner.width())
            painter.drawText(inner, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, title)

    def _paint_text(self, painter: QPainter, shown: np.ndarray) -> None:
        title_font, detail_font = base_font(12, bold=True), base_font(10)
        boxes = self.document.model.boxes
        for font, line, token in ((title_font, 0, "text"), (detail_font, 1, "muted")):
            painter.setFont(font)
            painter.setPen(self.theme[token])
            metrics = QFontMetricsF(font)
            for i in shown.tolist():
                rect = self._rects[i]
                operator = boxes[i].node is not None or bool(boxes[i].members)
                inner = rect.adjusted(14, 5, -8, -4) if operator else rect.adjusted(16, 5, -16, -4)
                texts = self._texts.get(i)
                if texts is None:
                    bold = QFontMetricsF(title_font)
                    texts = self._texts[i] = (
                        bold.elidedText(boxes[i].title, Qt.TextElideMode.ElideMiddle, inner.width()),
                        QFontMetricsF(detail_font).elidedText(
                            boxes[i].detail, Qt.TextElideMode.ElideRight, inner.width()
                        ),
                    )
                where = Qt.AlignmentFlag.AlignLeft if operator else Qt.AlignmentFlag.AlignHCenter
                if not texts[1]:
                    if line == 0:
                        painter.drawText(inner, where | Qt.AlignmentFlag.AlignVCenter, texts[0])
                    continue
                half = QRectF(
                    inner.left(), inner.top() + line * (metrics.height() + 3), inner.width(), metrics.height()
                )
                if line == 1:
                    half.moveBottom(inner.bottom())
                painter.drawText(half, where | Qt.AlignmentFlag.AlignVCenter, texts[line])

    def _paint_marks(self, painter: QPainter, zoom: float) -> None:
        """Search hits, the hovered box, the selection and the node in the way, each by its own outline."""
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, zoom >= FAR)
        groups = [(self.marked, "warn", 2.0), ([self.hovered] if self.hovered >= 0 else [], "accent", 1.2)]
        groups += [
            (self.document.selection, "accent", 2.2),
            ([self.offending] if self.offending >= 0 else [], "bad", 2.6),
        ]
        for boxes, token, width in groups:
            pen = QPen(self.theme[token], width)
            pen.setCosmetic(True)
            painter.setPen(pen)
            for i in boxes:
                painter.drawRoundedRect(self._rects[i].adjusted(-2, -2, 2, 2), 7, 7)
