"""Draws one Picture with pyqtgraph (imported on first use), tells the values under the pointer, and exports."""

import atexit
from collections.abc import Callable
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMimeData, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QGuiApplication, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QToolTip, QVBoxLayout, QWidget

from app.charts.picture import Bars, Dots, Line, Mark, Picture
from app.theme import Theme, base_font
from core.errors import BoltError
from core.files import write_atomically

LABEL = 30  # pixels that a name under the axis takes
NEAR = 24  # pixels from which a dot is meant
FAINT = 110
DECADES = 15  # either way from one: no figure of a chart lies beyond
HEAD, HEAD_LINE = 24, 16  # pixels of the title's first line and of each further one
COPIED = "application/x-bolt-chart"  # tells our own copy from others'
MOST_TICKS = 12  # of a logarithmic axis
SIDES = 90  # pixels beside the title: the axis and a margin


class ChartView(QWidget):
    """A plot made at the first `draw`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.picture = Picture("")
        self.plot: Any = None
        self._tips: Any = None
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        if self.plot is not None:
            self._style()
            self.draw(self.picture)

    def _build(self) -> None:
        import pyqtgraph

        pyqtgraph.setConfigOptions(antialias=True)
        self.plot = pyqtgraph.PlotWidget()
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.setFrameShape(self.plot.Shape.NoFrame)
        self.plot.scene().sigMouseMoved.connect(self._hover)
        self.plot.sigRangeChanged.connect(self._name_places)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self.plot)
        self._style()

    def _style(self) -> None:
        t = self.theme
        self.plot.setBackground(t["surface"])
        self.plot.showGrid(x=False, y=True, alpha=0.12)
        for side in ("left", "bottom"):
            axis = self.plot.getAxis(side)
            axis.enableAutoSIPrefix(False)  # units are as they are written
            axis.setPen(t["border"])
            axis.setTextPen(t["muted"])
            axis.setStyle(tickFont=base_font(10), tickLength=-4)

    # Drawing ------------------------------------------------------------------------------------------------------

    def draw(self, picture: Picture) -> None:
        """Replace what is shown; the range stays while the same chart is drawn anew."""
        if self.plot is None:
            self._build()
        self.picture = picture
        plot, t = self.plot, self.theme
        plot.setAccessibleName(picture.title)
        plot.clear()
        for mark in picture.marks:
            if isinstance(mark, Bars):
                self._draw_bars(mark)
            elif isinstance(mark, Dots):
                self._draw_dots(mark)
            else:
                self._draw_line(mark)
        self._tips = self._tip_places()
        self._show_head()
        plot.setLabel("left", picture.y_label, color=t.hex("muted"))
        plot.setLabel("bottom", picture.x_label, color=t.hex("muted"))
        self._set_range()
        self._name_places()

    def _show_head(self) -> None:
        """Title, key and note over the plot, where they hide nothing and go along into files.

        They take as many lines as they need; one piece wider than its plot is elided, or it would push the plot out of
        its pane.
        """
        metrics = QFontMetricsF(base_font(11, bold=True))
        width = float(max(1, self.width() - SIDES))
        pieces = [("muted", "", self.picture.title)]
        pieces += [(mark.token, _sign(mark), mark.name) for mark in self.picture.marks]
        pieces += [("faint", "", part) for part in self.picture.note.split("; ") if part]
        lines: list[list[str]] = [[]]
        room = width
        for at, (token, sign, text) in enumerate(pieces):
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, width - metrics.horizontalAdvance(sign) - 8)
            taken = metrics.horizontalAdvance(f"{sign} {shown}    ")
            if lines[-1] and taken > room:
                lines.append([])
                room = width
            room -= taken
            lines[-1].append(self._piece(token, sign, shown, bold=not at))
        self.plot.setTitle("<br>".join("&nbsp;&nbsp;&nbsp;".join(line) for line in lines), size="11px")
        height = HEAD + HEAD_LINE * (len(lines) - 1)
        item = self.plot.getPlotItem()
        item.titleLabel.setMaximumHeight(height)
        item.layout.setRowFixedHeight(0, height)

    def _piece(self, token: str, sign: str, text: str, bold: bool) -> str:
        said = f"<b>{escape(text)}</b>" if bold else escape(text)
        words = self.theme.hex("muted" if sign or bold else "faint")
        return f"<span style='color:{self.theme.hex(token)}'>{sign}</span> <span style='color:{words}'>{said}</span>"

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.plot is not None:
            self._show_head()
            self._name_places()

    def _set_range(self) -> None:
        bars = [m for m in self.picture.marks if isinstance(m, Bars)]
        if not bars:
            self.plot.getPlotItem().enableAutoRange()
            self.plot.getPlotItem().autoRange()
            return
        tops = [h + b for m in bars for h, b in zip(m.height, m.base or [0.0] * len(m.height), strict=True)]
        right = max(x for m in bars for x in m.x)
        least = {1: 3.7, 2: 1.7, 3: 2.7}.get(len(self.picture.names), 6.0)  # a few bars alone would be walls
        self.plot.setXRange(-0.7, max(least, right + 1.0), padding=0)
        self.plot.setYRange(0, max([1.0, *tops]) * 1.1, padding=0)

    def _draw_bars(self, mark: Bars) -> None:
        import numpy
        import pyqtgraph

        color = self.theme[mark.token]
        brush = QBrush(color, Qt.BrushStyle.BDiagPattern) if mark.hatched else QBrush(color)
        pen = pyqtgraph.mkPen(color if mark.hatched else None, width=1) if mark.hatched else None
        base = list(mark.base) or [0.0] * len(mark.x)
        self.plot.addItem(
            pyqtgraph.BarGraphItem(
                x=list(mark.x),
                y0=base,
                height=list(mark.height),
                width=mark.width,
                brush=brush,
                pen=pen,
                name=mark.name,
            )
        )
        if mark.spread:
            y = numpy.array(mark.height)
            low, high = (numpy.array(side) for side in zip(*mark.spread, strict=True))
            ink = pyqtgraph.mkPen(self.theme["text"], width=1)
            x = numpy.array(mark.x)
            self.plot.addItem(pyqtgraph.ErrorBarItem(x=x, y=y, bottom=y - low, top=high - y, beam=0.12, pen=ink))

    def _draw_dots(self, mark: Dots) -> None:
        import pyqtgraph

        color = QColor(self.theme.soft(mark.token, FAINT)) if mark.faint else self.theme[mark.token]
        pen = pyqtgraph.mkPen(color, width=1.6) if mark.hollow else None
        brush = None if mark.hollow else QBrush(color)
        xs, ys = self._scaled(mark.x, mark.y)
        shape = "x" if mark.crosses else "o"
        self.plot.addItem(pyqtgraph.ScatterPlotItem(x=xs, y=ys, size=mark.size, pen=pen, brush=brush, symbol=shape))

    def _draw_line(self, mark: Line) -> None:
        import pyqtgraph

        style = Qt.PenStyle.DashLine if mark.dashed else Qt.PenStyle.SolidLine
        pen = pyqtgraph.mkPen(self.theme[mark.token], width=1.5 if mark.dashed else 2, style=style)
        xs, ys = self._scaled(mark.x, mark.y)
        if mark.step:
            self.plot.plot([*xs, xs[-1]], ys, stepMode="center", pen=pen)
        else:
            self.plot.plot(xs, ys, pen=pen)

    def _scaled(self, xs: Any, ys: Any) -> tuple[list[float], list[float]]:
        """Places on the axes: their logarithms where the chart is logarithmic."""
        across = [log10(x) for x in xs] if self.picture.log else list(xs)
        return across, [log10(y) for y in ys] if self.picture.log or self.picture.log_y else list(ys)

    def _name_places(self) -> None:
        """As many names under the axis as there is room for."""
        names = self.picture.names
        if not names:
            for side, at in (("bottom", 0), ("left", 1)):
                low, high = self.plot.viewRange()[at]
                logarithmic = self.picture.log or (at == 1 and self.picture.log_y)
                self.plot.getAxis(side).setTicks([log_ticks(low, high)] if logarithmic else None)
            return
        self.plot.getAxis("left").setTicks(None)
        low, high = self.plot.viewRange()[0]
        step = max(1, -(-int((high - low) * LABEL) // max(1, self.plot.width())))
        self.plot.getAxis("bottom").setTicks([[name for i, name in enumerate(names) if i % step == 0]])

    # The pointer --------------------------------------------------------------------------------------------------

    def tip_at(self, place: QPointF) -> str:
        """What is said of a place of the plot's scene: of the column under it, or of the nearest dot."""
        box = self.plot.getPlotItem().vb
        if self.picture.names:
            x = box.mapSceneToView(place).x()
            near = min(self.picture.tips, key=lambda t: abs(t.x - x), default=None)
            return near.text if near is not None and abs(near.x - x) <= 0.5 else ""
        if not self.picture.tips:
            return ""
        at, (wide, high) = box.mapSceneToView(place), box.viewPixelSize()
        away = abs(self._tips[0] - at.x()) / wide + abs(self._tips[1] - at.y()) / high
        nearest = int(away.argmin())
        return self.picture.tips[nearest].text if away[nearest] < NEAR else ""

    def _tip_places(self) -> Any:
        """Where the tips are, as two arrays on the axes: there may be tens of thousands."""
        import numpy

        tips = [] if self.picture.names else self.picture.tips
        return numpy.array(self._scaled([t.x for t in tips], [t.y for t in tips]))

    def _hover(self, place: QPointF) -> None:
        text = self.tip_at(place)
        if text:
            QToolTip.showText(self.plot.mapToGlobal(self.plot.mapFromScene(place)), text, self.plot)
        else:
            QToolTip.hideText()

    # Out ----------------------------------------------------------------------------------------------------------

    def svg(self) -> bytes:
        from PySide6.QtSvg import QSvgGenerator

        data = QByteArray()
        buffer = QBuffer(data)
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        size = self.plot.size()
        made = QSvgGenerator()
        made.setOutputDevice(buffer)
        made.setSize(QSize(size.width(), size.height()))
        made.setViewBox(QRect(0, 0, size.width(), size.height()))
        made.setTitle(self.picture.title)
        painter = QPainter(made)
        painter.fillRect(QRect(0, 0, size.width(), size.height()), self.theme["surface"])
        painter.setPen(QPen())
        self.plot.render(painter, QRectF(0, 0, size.width(), size.height()), self.plot.viewport().rect())
        painter.end()
        return bytes(data.data())

    def png(self) -> bytes:
        data = QByteArray()
        buffer = QBuffer(data)
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        self.plot.grab().toImage().save(buffer, "PNG")
        return bytes(data.data())

    def save(self, path: Path) -> None:
        """PNG, SVG or CSV by the name's end. Raises BoltError."""
        writers: dict[str, Callable[[], str | bytes]] = {
            ".svg": self.svg, ".png": self.png, ".csv": self.picture.csv,
        }  # fmt: skip
        made = writers.get(path.suffix.lower())
        if made is None:
            raise BoltError(f"{path.name} is no PNG, SVG or CSV file", "end its name with .png, .svg or .csv")
        try:
            write_atomically(path, made())
        except OSError as error:
            remedy = "choose another folder, or make room on the disk"
            raise BoltError(f"can't write the chart to {path}: {error.strerror or error}", remedy) from error

    def copy(self) -> None:
        """The picture and the table, both at once: what is pasted depends on where."""
        data = QMimeData()
        data.setImageData(self.plot.grab().toImage())
        data.setText(self.picture.csv())
        data.setData(COPIED, b"")
        QGuiApplication.clipboard().setMimeData(data)
        atexit.unregister(_let_go_of_clipboard)
        atexit.register(_let_go_of_clipboard)


def _let_go_of_clipboard() -> None:
    """Qt frees a copied picture when the interpreter is gone, and crashes. It goes before; what others copied stays."""
    if QGuiApplication.instance() is not None and QGuiApplication.clipboard().mimeData().hasFormat(COPIED):
        QGuiApplication.clipboard().clear()


def _sign(mark: Mark) -> str:
    if isinstance(mark, Bars):
        return "▨" if mark.hatched else "■"
    if isinstance(mark, Dots):
        return "×" if mark.crosses else "○" if mark.hollow else "●"
    return "╌╌" if mark.dashed else "━"


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Places between two logarithms: powers of ten alone where there are many, finer steps where there are few."""
    low, high = max(low, -DECADES), min(high, DECADES)
    if low > high:
        return []
    if high - low > 3:
        return _ticks(low, high, (1,))
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(n / 10 for n in range(10, 100))):
        if len(found := _ticks(low, high, steps)) > 2:
            break
    every = ceil(len(found) / MOST_TICKS)
    return found[::every]


def _ticks(low: float, high: float, steps: tuple[float, ...]) -> list[tuple[float, str]]:
    found = [m * 10.0**e for e in range(floor(low), ceil(high) + 1) for m in steps]
    return [(log10(value), f"{value:,.6g}") for value in found if low <= log10(value) <= high]
