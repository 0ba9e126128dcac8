"""The list of regions: state, what it is, speed-up as a bar and a number, the reason of those left alone."""

from enum import IntEnum
from typing import Any

from PySide6.QtCore import (
    QAbstractListModel,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QBrush, QColor, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.document import Document
from app.estimates import Estimate
from app.follow import Follower
from app.format import micros, one_line, ratio, tip, workload_line
from app.graph.model import box_line, region_title
from app.panels.hint import Hint
from app.run import Changes, State
from app.theme import Theme, base_font, icon, pixmap
from core.fusion.edit import bans_at
from core.fusion.plan import Region

HATCH = Qt.BrushStyle.BDiagPattern
Index = QModelIndex | QPersistentModelIndex
ICONS = {State.QUEUED: "queued", State.RUNNING: "running", State.DONE: "done", State.FAILED: "failed"}
NO_MODEL = "Open a model, and the regions of its plan are listed here: what is fused, and why the rest is not."
NO_MATCH = "No region has all of these words in its name, nodes or reason."
MARKS = {"pin": "pinned", "forbid": "a fusion with it is forbidden"}
TOKENS = {
    "queued": "faint",
    "running": "accent",
    "done": "good",
    "failed": "bad",
    "idle": "faint",
    "alone": "faint",
    "unsupported": "bad",
}


class Role(IntEnum):
    REGION = Qt.ItemDataRole.UserRole
    STATE = Qt.ItemDataRole.UserRole + 1


class RegionModel(QAbstractListModel):
    """Regions of the plan that pass the filter, in execution order."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.document: Document | None = None
        self.shown: list[Region] = []
        self._filter = ""

    def set_document(self, document: Document | None) -> None:
        self.document = document
        self.refilter()

    def set_filter(self, text: str) -> None:
        self._filter = text.lower()
        self.refilter()

    def refilter(self) -> None:
        self.beginResetModel()
        regions = self.document.plan.regions if self.document else ()
        words = self._filter.split()
        self.shown = [r for r in regions if all(w in self._haystack(r) for w in words)] if words else list(regions)
        self.endResetModel()

    def _haystack(self, region: Region) -> str:
        work = region.workload.key if region.workload else ""
        marks = " ".join(MARKS[mark] for mark in self.marks(region))
        return f"{region.id} {self.title(region)} {region.reason} {' '.join(region.nodes)} {work} {marks}".lower()

    def bans(self, region: Region) -> list[tuple[str, ...]]:
        """The forbidden fusions that name a node of the region."""
        return bans_at(self.document.plan, region.nodes) if self.document else []

    def marks(self, region: Region) -> list[str]:
        """What the user decided of the region, each by the name of its icon."""
        return ["pin"] * region.pinned + ["forbid"] * bool(self.bans(region))

    def told(self, region: Region) -> str:
        """The tooltip's lines."""
        lines = [region.reason, f"Nodes: {box_line(region.nodes)}"]
        lines += ["Pinned: planning leaves it as it is."] * region.pinned
        lines += [f"Forbidden: {' + '.join(ban)}" for ban in self.bans(region)]
        return "\n".join(lines)

    def touched(self) -> None:
        if self.shown:
            self.dataChanged.emit(self.index(0), self.index(len(self.shown) - 1))

    def row_of(self, region: Region) -> int:
        return next((i for i, r in enumerate(self.shown) if r is region), -1)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's own signature
        return 0 if parent.isValid() else len(self.shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self.document is None:
            return None
        region = self.shown[index.row()]
        if role == Role.REGION:
            return region
        if role == Role.STATE:
            return self.state(region)
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            speed = self.speedup(region)
            said = f", {ratio(speed)} {self.document.run.provenance}" if speed else ""
            decided = "".join(f", {MARKS[mark]}" for mark in self.marks(region))
            return f"{region.id} {self.title(region)}{said}, {self.state(region)}{decided}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip(self.told(region))
        return None

    def title(self, region: Region) -> str:
        return region_title(region, self.document.graph) if self.document else ""

    def state(self, region: Region) -> str:
        """The name of the state's icon."""
        assert self.document is not None
        if not region.supported:
            return "unsupported"
        if region.workload is None:
            return "alone"
        run = self.document.workload_run(region)
        return ICONS.get(run.state, "running") if run else "idle"

    def speedup(self, region: Region) -> float | None:
        run = self.document.workload_run(region) if self.document else None
        return run.speedup if run else None


class RegionDelegate(QStyledItemDelegate):
    """Two lines a region; the bar's middle is the vendor, to its right is faster."""

    HEIGHT = 46
    BAR = 54

    def __init__(self, model: RegionModel, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.model, self.theme = model, theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, self.HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        region: Region = index.data(Role.REGION)
        state: str = index.data(Role.STATE)
        area: QRect = option.rect
        flags = option.state
        t = self.theme
        painter.save()
        if flags & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, t["accent_soft"])
        elif flags & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(area, t["raised"])
        painter.fillRect(area.left(), area.top() + 7, 3, area.height() - 14, t[f"kind.{region.kind}"])
        scale = painter.device().devicePixelRatioF()
        painter.drawPixmap(area.left() + 11, area.top() + 8, pixmap(state, t.hex(TOKENS[state]), 15, scale))
        right = self._paint_speed(painter, area, region)
        left = area.left() + 34
        alone = region.workload is None
        painter.setFont(base_font(13))
        painter.setPen(t["muted" if alone else "text"])
        place = QRect(left, area.top() + 5, right - left, 19)
        for mark in self.model.marks(region):
            painter.drawPixmap(place.left(), place.top() + 3, pixmap(mark, t.hex("accent"), 13, scale))
            place.setLeft(place.left() + 17)
        self._line(painter, place, f"{region.id}  {self.model.title(region)}")
        painter.setFont(base_font(11))
        painter.setPen(t["bad"] if not region.supported else t["faint" if alone else "muted"])
        second = workload_line(region.workload) if region.workload else region.reason
        wide = area.right() - 10 if alone else right
        self._line(painter, QRect(left, area.top() + 24, wide - left, 16), second)
        painter.setPen(t["grid"])
        painter.drawLine(left, area.bottom(), area.right(), area.bottom())
        painter.restore()

    def _line(self, painter: QPainter, where: QRect, text: str) -> None:
        text = painter.fontMetrics().elidedText(one_line(text), Qt.TextElideMode.ElideRight, where.width())
        painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)

    def _paint_speed(self, painter: QPainter, area: QRect, region: Region) -> int:
        """Number over bar at the right; returns where the text must end."""
        document = self.model.document
        right = area.right() - 10
        if document is None:
            return right
        run = document.workload_run(region)
        if run is None or run.best is None:
            return self._paint_estimate(painter, area, document.estimate(region), right)
        speedup = run.speedup
        number = ratio(speedup) if speedup else micros(run.best.us)
        painter.setFont(base_font(12, bold=True))
        painter.setPen(self.theme["text"])
        box = QRect(right - 74, area.top() + 5, 74, 18)
        painter.drawText(box, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, number)
        if speedup:
            self._bar(painter, QRect(right - self.BAR, area.top() + 26, self.BAR, 4), speedup)
        said = document.run.provenance
        if said != "measured":
            painter.setFont(base_font(9))
            painter.setPen(self.theme["faint"])
            under = QRect(right - 74, area.top() + 31, 74, 12)
            painter.drawText(under, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, said)
        return right - 80

    def _paint_estimate(self, painter: QPainter, area: QRect, estimate: Estimate | None, right: int) -> int:
        if estimate is None:
            return right
        where = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.setFont(base_font(12))
        painter.setPen(self.theme["muted"])
        painter.drawText(QRect(right - 74, area.top() + 5, 74, 18), where, micros(estimate.us))
        painter.fillRect(QRect(right - self.BAR, area.top() + 26, self.BAR, 4), QBrush(self.theme["border"], HATCH))
        painter.setFont(base_font(9))
        painter.setPen(self.theme["faint"])
        painter.drawText(QRect(right - 74, area.top() + 31, 74, 12), where, "estimated")
        return right - 80

    def _bar(self, painter: QPainter, track: QRect, speedup: float) -> None:
        """Half the track is a factor of two."""
        from math import log2

        painter.fillRect(track, self.theme["grid"])
        middle = track.center().x()
        reach = round(min(1.0, abs(log2(speedup))) * track.width() / 2)
        color: QColor = self.theme.speedup(speedup)
        painter.fillRect(middle if speedup >= 1 else middle - reach, track.top(), max(1, reach), track.height(), color)
        painter.fillRect(middle, track.top() - 2, 1, track.height() + 4, self.theme["muted"])


class RegionsPanel(QWidget):
    """Filter over the list. Choosing a row selects the region's nodes; `chosen` asks the canvas to show them."""

    chosen = Signal()
    menu_wanted = Signal(QPoint)  # global position

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.filter = QLineEdit(placeholderText="Filter regions")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter regions")
        self.model = RegionModel(self)
        self.list = QListView()
        self.list.setAccessibleName("Regions")
        self.list.setModel(self.model)
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.delegate = RegionDelegate(self.model, theme, self)
        self.list.setItemDelegate(self.delegate)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.setSpacing(8)
        head = QVBoxLayout()
        head.setContentsMargins(8, 0, 8, 0)
        head.addWidget(self.filter)
        layout.addLayout(head)
        layout.addWidget(self.list)
        self._search = self.filter.addAction(icon("search", theme, "faint"), QLineEdit.ActionPosition.LeadingPosition)
        self.filter.textChanged.connect(self._refilter)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.customContextMenuRequested.connect(self._menu)
        self.list.selectionModel().currentChanged.connect(self._current_changed)
        self.empty = Hint(self.list)
        self.model.modelReset.connect(self._say)
        self._syncing = False
        self._say()

    def _say(self) -> None:
        """An empty list tells what to do."""
        words = NO_MODEL if self.model.document is None else NO_MATCH
        self.empty.say("" if self.model.shown else words)

    def _menu(self, place: QPoint) -> None:
        """Of the row under the mouse."""
        if self.list.indexAt(place).isValid():
            self.list.setCurrentIndex(self.list.indexAt(place))
            self.menu_wanted.emit(self.list.viewport().mapToGlobal(place))

    def set_document(self, document: Document | None) -> None:
        self.model.set_document(document)
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.plan_changed, self._plan_changed),
                (document.run_changed, self._run_changed),
                (document.selection_changed, self._sync),
                (document.estimates_changed, self.model.touched),
            )

    def set_theme(self, theme: Theme) -> None:
        self.delegate.theme = theme
        self._search.setIcon(icon("search", theme, "faint"))
        self.list.viewport().update()

    def _refilter(self, text: str) -> None:
        self._syncing = True
        self.model.set_filter(text)
        self._syncing = False
        self._sync()

    def _plan_changed(self) -> None:
        self._refilter(self.filter.text())

    def _run_changed(self, changes: Changes) -> None:
        if changes.workloads or changes.started or changes.finished:
            self.model.touched()

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        document = self.model.document
        if self._syncing or document is None or not current.isValid():
            return
        self._syncing = True
        document.select_region(self.model.shown[current.row()])
        self._syncing = False
        self.chosen.emit()

    def _sync(self) -> None:
        """The row of the selected region, without telling the document again."""
        if self._syncing or self.model.document is None:
            return
        self._syncing = True
        region = self.model.document.selected_region()
        row = self.model.row_of(region) if region is not None else -1
        if row >= 0:
            index = self.model.index(row)
            self.list.selectionModel().setCurrentIndex(index, QItemSelectionModel.SelectionFlag.ClearAndSelect)
            self.list.scrollTo(index)
        else:
            self.list.selectionModel().clear()
        self._syncing = False
