"""Charts: each region against the vendor, and the search as it goes. pyqtgraph is imported when first shown."""

import sys
from math import ceil
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor, QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QVBoxLayout, QWidget

from app.background import Background, Job
from app.document import Document
from app.estimates import Estimate
from app.follow import Follower
from app.format import micros, ratio
from app.run import Changes, WorkloadRun
from app.theme import Theme, base_font
from core.errors import BoltError
from core.fusion.plan import Region
from core.measure.measurement import Measurement

BAR = 0.38
LABEL = 30  # pixels that a region's name takes
NOTHING = "Press Tune, and each region appears here against the vendor's kernel."


class ChartsPanel(QWidget):
    """Left: time of each tuned region, ours and the vendor's, with spread. Right: best so far of one workload."""

    def __init__(self, theme: Theme, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.theme = theme
        self.background = background
        self._loading: Job | None = None
        self.document: Document | None = None
        self.bars: Any = None
        self.live: Any = None
        self._shown: list[Region] = []
        self._heights: list[float] = []
        self._dirty = True
        self.empty = QLabel(NOTHING)
        self.empty.setObjectName("muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.splitter = QSplitter()
        self.splitter.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.empty)
        layout.addWidget(self.splitter)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.run_changed, self._take),
                (document.plan_changed, self.refresh),
                (document.selection_changed, self._selection_changed),
                (document.estimates_changed, self.refresh),
            )
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        if self.bars is not None:
            self._style()
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._dirty:
            self.refresh()

    def _take(self, changes: Changes) -> None:
        if changes.workloads or changes.started or changes.finished:
            self.refresh()

    def _selection_changed(self) -> None:
        if self.isVisible() and self.bars is not None:
            self._draw_live()

    def refresh(self) -> None:
        """Draw again, now if it is visible, else when it is shown."""
        self._dirty = not self.isVisible()
        if self._dirty:
            return
        something = self.document is not None and bool(self.document.run.workloads or self.document.estimates)
        self.empty.setVisible(not something)
        self.splitter.setVisible(something)
        if something:
            if self.bars is None and not self._library_is_here():
                return
            if self.bars is None:
                self._build()
            self._draw_bars()
            self._draw_live()

    def _library_is_here(self) -> bool:
        """Whether pyqtgraph is loaded; else it is on its way, and the panel draws when it has come."""
        if self._loading is None and "pyqtgraph" in sys.modules:
            return True
        if self._loading is None:
            self._loading = self.background.start(
                "loading charts", lambda job: _import_charts(), self._loaded, self._broken
            )
        return False

    def _loaded(self, _: object) -> None:
        self._loading = None
        self.refresh()

    def _broken(self, error: BoltError) -> None:
        self.empty.setText(str(error))
        self.empty.show()
        self.splitter.hide()

    # Building ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        import pyqtgraph

        pyqtgraph.setConfigOptions(antialias=True)
        self.bars, self.live = pyqtgraph.PlotWidget(), pyqtgraph.PlotWidget()
        for plot, name in ((self.bars, "Regions against the vendor"), (self.live, "Best so far")):
            plot.setMenuEnabled(False)
            plot.hideButtons()
            plot.setAccessibleName(name)
            plot.setFrameShape(plot.Shape.NoFrame)
            self.splitter.addWidget(plot)
        self.splitter.setStretchFactor(0, 3)
        self.splitter.setStretchFactor(1, 2)
        self.bars.setMouseEnabled(x=True, y=False)
        self.bars.scene().sigMouseMoved.connect(self._hover)
        self.bars.sigXRangeChanged.connect(self._label_regions)
        self._style()

    def _style(self) -> None:
        t = self.theme
        for plot in (self.bars, self.live):
            plot.setBackground(t["surface"])
            plot.showGrid(x=False, y=True, alpha=0.12)
            for side in ("left", "bottom"):
                axis = plot.getAxis(side)
                axis.setPen(t["border"])
                axis.setTextPen(t["muted"])
                axis.setStyle(tickFont=base_font(10), tickLength=-4)

    # Drawing -----------------------------------------------------------------------------------------------------

    def _draw_bars(self) -> None:
        assert self.document is not None
        document, t = self.document, self.theme
        self.bars.clear()
        self._heights = []
        if self.bars.plotItem.legend is not None:
            self.bars.plotItem.legend.clear()
        self._shown = [r for r in document.plan.regions if self._of(r) or document.estimate(r)]
        runs = [self._of(r) for r in self._shown]
        said = document.run.provenance
        legend = self.bars.addLegend(offset=(-8, 4), labelTextColor=t["muted"], labelTextSize="10px", colCount=3)
        for name, offset, token, found in (
            (f"ours, {said}", -BAR / 2, "ours", [r.best if r else None for r in runs]),
            (f"vendor, {said}", BAR / 2, "vendor", [r.vendor if r else None for r in runs]),
        ):
            at = [(i + offset, m) for i, m in enumerate(found) if m is not None]
            if at:
                self._bars_of(name, [x for x, _ in at], [m.us for _, m in at], QBrush(t[token]))
                self.bars.addItem(self._spreads([x for x, _ in at], [m for _, m in at]))
        guesses = [(i - BAR / 2, self._guess(r)) for i, r in enumerate(self._shown)]
        hatched = QBrush(t["ours"], Qt.BrushStyle.BDiagPattern)
        drawn = [(x, e.us) for x, e in guesses if e is not None]
        if drawn:
            self._bars_of("ours, estimated", [x for x, _ in drawn], [us for _, us in drawn], hatched, t["ours"])
        legend.setVisible(True)
        self._label_regions()
        self.bars.setLabel("left", "time of a region, us", color=t.hex("muted"))
        self.bars.setXRange(-0.7, max(6.0, len(self._shown) - 0.3), padding=0)
        self.bars.setYRange(0, max([1.0, *self._heights]) * 1.25, padding=0)
        self._label_regions()

    def _bars_of(
        self, name: str, xs: list[float], heights: list[float], brush: QBrush, line: QColor | None = None
    ) -> None:
        import pyqtgraph

        self._heights += heights
        pen = pyqtgraph.mkPen(line, width=1) if line is not None else None
        self.bars.addItem(pyqtgraph.BarGraphItem(x=xs, height=heights, width=BAR, brush=brush, pen=pen, name=name))

    def _label_regions(self) -> None:
        """As many region names under the bars as there is room for."""
        low, high = self.bars.viewRange()[0]
        step = max(1, ceil((high - low) * LABEL / max(1, self.bars.width())))
        self.bars.getAxis("bottom").setTicks([[(i, r.id) for i, r in enumerate(self._shown) if i % step == 0]])

    def _spreads(self, xs: list[float], found: list[Measurement]) -> Any:
        import numpy
        import pyqtgraph

        y = numpy.array([m.us for m in found])
        low, high = (numpy.array(side) for side in zip(*(m.spread_us for m in found), strict=True))
        return pyqtgraph.ErrorBarItem(
            x=numpy.array(xs),
            y=y,
            bottom=y - low,
            top=high - y,
            beam=0.12,
            pen=pyqtgraph.mkPen(self.theme["text"], width=1),
        )

    def _of(self, region: Region) -> WorkloadRun | None:
        assert self.document is not None
        run = self.document.workload_run(region)
        return run if run is not None and (run.best or run.vendor) else None

    def _guess(self, region: Region) -> Estimate | None:
        """The estimate of a region that has no figure yet."""
        assert self.document is not None
        run = self.document.workload_run(region)
        return None if run is not None and run.best else self.document.estimate(region)

    def _draw_live(self) -> None:
        import pyqtgraph

        assert self.document is not None
        t = self.theme
        self.live.clear()
        run = self._followed()
        self.live.setVisible(run is not None)
        if run is None:
            return
        names = self.document.plan.workloads.get(run.key, [])
        title = f"{names[0].id}: " if names else ""
        self.live.setTitle(
            f"{title}candidates and the best so far, {self.document.run.provenance}", color=t.hex("muted"), size="11px"
        )
        xs, ys = [n for n, _ in run.samples], [us for _, us in run.samples]
        dots = pyqtgraph.ScatterPlotItem(x=xs, y=ys, size=5, pen=None, brush=t.soft("ours", 110))
        self.live.addItem(dots)
        steps = [*run.best_so_far, (xs[-1], run.best_so_far[-1][1])] if run.best_so_far else []
        if steps:
            line = pyqtgraph.mkPen(t["ours"], width=2)
            xs, ys = [x for x, _ in steps], [y for _, y in steps]
            self.live.plot([*xs, xs[-1]], ys, stepMode="center", pen=line)
        if run.vendor is not None:
            pen = pyqtgraph.mkPen(t["vendor"], width=1.5, style=Qt.PenStyle.DashLine)
            self.live.addItem(pyqtgraph.InfiniteLine(run.vendor.us, angle=0, pen=pen, label=f"{run.vendor.source}"))
        self.live.setLabel("left", "us", color=t.hex("muted"))
        self.live.setLabel("bottom", "measurements", color=t.hex("muted"))

    def _followed(self) -> WorkloadRun | None:
        """The selected region's workload; else the one that was measured last."""
        assert self.document is not None
        region = self.document.selected_region()
        chosen = self.document.workload_run(region) if region is not None else None
        if chosen is not None and chosen.samples:
            return chosen
        sampled = [r for r in self.document.run.workloads.values() if r.samples]
        return max(sampled, key=lambda r: r.samples[-1][0], default=None)

    def _hover(self, place: Any) -> None:
        """The values of the bars under the pointer."""
        at = round(self.bars.plotItem.vb.mapSceneToView(place).x())
        if not 0 <= at < len(self._shown):
            self.bars.setToolTip("")
            return
        region = self._shown[at]
        run = self._of(region)
        lines = [f"{region.id}"]
        if run and run.best:
            lines.append(f"ours {micros(run.best.us)}")
        if run and run.vendor:
            lines.append(f"{run.vendor.source} {micros(run.vendor.us)}")
        if run and run.speedup:
            lines.append(ratio(run.speedup))
        estimate = self._guess(region)
        if estimate is not None:
            lines.append(f"estimated {micros(estimate.us)}, not measured")
        self.bars.setToolTip("\n".join(lines))


def _import_charts() -> None:
    """Takes most of a second, which the window must not wait for."""
    import pyqtgraph  # noqa: F401
