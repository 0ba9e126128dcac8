"""The rows of the candidates' table: tens of thousands, filtered and sorted here, not by a proxy."""

from collections.abc import Callable, Collection
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, QTimer
from PySide6.QtGui import QBrush, QIcon
from PySide6.QtWidgets import QWidget

from app.document import Document
from app.format import figures, micros, nbytes, ratio, tip
from app.run import Changes, Row, Run, State
from app.theme import Theme, icon
from core.search.words import Geometry

Index = QModelIndex | QPersistentModelIndex
LAST = float("inf")
RESORT_MS = 500
UNKNOWN = Geometry("", "", "", "")
MUTED = ("Family", "Spread, us", "Error", "Registers", "Spilled", "Shared")
SIGNS = {
    State.QUEUED: ("queued", "faint"), State.BUILDING: ("running", "warn"), State.BUILT: ("idle", "accent"),
    State.RUNNING: ("running", "accent"), State.MEASURED: ("done", "faint"), State.FINAL: ("done", "good"),
    State.DONE: ("done", "good"), State.FAILED: ("failed", "bad"),
}  # fmt: skip
STATE_ORDER = {
    s: i for i, s in enumerate((State.FINAL, State.MEASURED, State.BUILT, State.BUILDING, State.QUEUED, State.FAILED))
}


class Column:
    """A title, the text of a row, what it is sorted by, and whether it is a number."""

    def __init__(
        self, title: str, width: int, text: Callable[[Row], str], key: Callable[[Row], Any], number: bool = False
    ):
        self.title, self.width, self.text, self.key, self.number = title, width, text, key, number


def _by_size(tile: str) -> tuple[int, ...]:
    """Tiles in the order of their extents; what has none comes last."""
    return tuple(map(int, tile.split("x"))) if tile else (1 << 30,)


def _spread(row: Row) -> str:
    if row.measurement is None:
        return ""
    low, high = row.measurement.spread_us
    return f"{figures(low)} to {figures(high)}"


def _spread_width(row: Row) -> float:
    if row.measurement is None:
        return LAST
    low, high = row.measurement.spread_us
    return high - low


def _error(row: Row) -> float:
    return row.measurement.relative_l2 if row.measurement else LAST


def _spilled(row: Row) -> float:
    return row.spill_bytes if row.spill_bytes is not None else LAST


def _shared(row: Row) -> float:
    return row.smem_bytes if row.smem_bytes is not None else LAST


def _kernel(row: Row) -> str:
    """The name without the family, which has a column of its own."""
    if row.measurement is not None and row.measurement.source != "template":
        return row.measurement.detail or row.name
    return row.name.removeprefix(row.family + "_")


class CandidateModel(QAbstractTableModel):
    """Rows of the document's run. New rows are appended; order is mended at most twice a second."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.document: Document | None = None
        self.order: list[int] = []
        self.columns = self._columns()
        self._words: list[str] = []
        self._state: State | None = None
        self._workload = ""
        self._sort: tuple[int, Qt.SortOrder] = (-1, Qt.SortOrder.AscendingOrder)
        self._regions: dict[str, str] = {}
        self._vendors: dict[str, float] = {}  # us by workload: a sort by it must not look each row's run up
        self._geometries: dict[str, Geometry] = {}
        self._resort = QTimer(self)
        self._resort.setSingleShot(True)
        self._resort.setInterval(RESORT_MS)
        self._resort.timeout.connect(self._mend)
        self.set_theme(theme)

    def _columns(self) -> list[Column]:
        return [
            Column("Region", 92, self._region, self._region),
            Column("Family", 104, lambda r: r.family, lambda r: r.family),
            Column("Tile", 112, self._tile, lambda r: _by_size(self._tile(r))),
            Column("Cluster", 80, self._cluster, self._cluster),
            Column("Stages", 80, self._stages, lambda r: int(self._stages(r) or 99), True),
            Column("Schedule", 104, self._schedule, self._schedule),
            Column("State", 190, lambda r: r.state.value, lambda r: STATE_ORDER.get(r.state, 9)),
            Column("Time", 84, lambda r: micros(r.us) if r.us is not None else "", lambda r: r.us or LAST, True),
            Column("Spread, us", 124, _spread, _spread_width, True),
            Column("Vendor", 70, self._speedup_text, lambda r: -(self.speedup(r) or 0.0), True),
            Column("Error", 76, lambda r: f"{_error(r):.1e}" if r.measurement else "", _error, True),
            Column("Registers", 88, lambda r: str(r.registers or ""), lambda r: r.registers or LAST, True),
            Column("Spilled", 76, lambda r: nbytes(r.spill_bytes) if r.spill_bytes else "", _spilled, True),
            Column("Shared", 76, lambda r: nbytes(r.smem_bytes) if r.smem_bytes else "", _shared, True),
            Column("Reason", 260, lambda r: r.reason, lambda r: r.reason or "\uffff"),
            Column("Candidate", 420, _kernel, lambda r: r.name),
        ]

    def column(self, title: str) -> int:
        """The place of a column by its title."""
        return [c.title for c in self.columns].index(title)

    def _region(self, row: Row) -> str:
        return self._regions.get(row.workload, "")

    def _geometry(self, row: Row) -> Geometry:
        return self._geometries.get(row.name.partition("@")[0], UNKNOWN)

    def _tile(self, row: Row) -> str:
        return self._geometry(row).tile

    def _cluster(self, row: Row) -> str:
        return self._geometry(row).cluster

    def _stages(self, row: Row) -> str:
        return self._geometry(row).stages

    def _schedule(self, row: Row) -> str:
        return self._geometry(row).schedule

    def learn(self, found: dict[str, Geometry]) -> None:
        """What more is known of kernels, by their names."""
        if found and not found.items() <= self._geometries.items():
            self._geometries |= found
            if self.order:
                self.dataChanged.emit(self.index(0, 0), self.index(len(self.order) - 1, len(self.columns) - 1))

    @property
    def run(self) -> Run | None:
        return self.document.run if self.document else None

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self._icons: dict[State, QIcon] = {s: icon(name, theme, token) for s, (name, token) in SIGNS.items()}
        self._bad, self._muted = QBrush(theme["bad"]), QBrush(theme["muted"])
        self.good, self.slow = QBrush(theme["faster"]), QBrush(theme["slower"])

    def speedup(self, row: Row) -> float | None:
        """Vendor over this candidate; above 1 is faster than the vendor."""
        vendor, us = self._vendors.get(row.workload), row.us
        return vendor / us if vendor and us else None

    def _speedup_text(self, row: Row) -> str:
        value = self.speedup(row)
        return ratio(value) if value is not None else ""

    # What is shown -----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        self.beginResetModel()
        self._regions = {}
        self._vendors = {}
        if self.run is not None:
            self._learn_vendors(self.run.workloads)
        if self.document is not None:
            for key, regions in self.document.plan.workloads.items():
                more = f" +{len(regions) - 1}" if len(regions) > 1 else ""
                self._regions[key] = f"{regions[0].id}{more}"
        rows = self.run.rows if self.run else []
        self.order = [i for i, row in enumerate(rows) if self._passes(row)]
        self._sort_order()
        self.endResetModel()

    def _learn_vendors(self, keys: Collection[str]) -> None:
        runs = self.run.workloads if self.run else {}
        self._vendors |= {key: run.vendor.us for key in keys if (run := runs.get(key)) and run.vendor}

    def set_filter(self, words: str, state: State | None, workload: str) -> None:
        self._words, self._state, self._workload = words.lower().split(), state, workload
        self.reset()

    def _passes(self, row: Row) -> bool:
        if self._workload and row.workload != self._workload:
            return False
        if self._state is not None and row.state is not self._state:
            return False
        if not self._words:
            return True
        shape = self._geometry(row)
        text = f"{row.name} {row.family} {shape.tile} {shape.schedule} {row.state} {row.reason}".lower()
        text += f" {self._regions.get(row.workload, '')}"
        return all(w in text for w in self._words)

    def _sort_order(self) -> None:
        column, direction = self._sort
        run = self.run
        if column < 0 or run is None:
            self.order.sort()
            return
        key = self.columns[column].key
        self.order.sort(key=lambda i: key(run.rows[i]), reverse=direction == Qt.SortOrder.DescendingOrder)

    def take(self, changes: Changes) -> None:
        """Show what a batch of events changed."""
        run = self.run
        if run is None:
            return
        if changes.started:
            self.reset()
            return
        self._learn_vendors(changes.workloads)
        if changes.first_new_row is not None:
            fresh = [i for i in range(changes.first_new_row, len(run.rows)) if self._passes(run.rows[i])]
            if fresh:
                self.beginInsertRows(QModelIndex(), len(self.order), len(self.order) + len(fresh) - 1)
                self.order += fresh
                self.endInsertRows()
        if changes.rows and self.order:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.order) - 1, len(self.columns) - 1))
            if (self._sort[0] >= 0 or self._state is not None) and not self._resort.isActive():
                self._resort.start()

    def _mend(self) -> None:
        if self._state is not None:
            self.reset()
        else:
            self._reorder()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._sort = (column, order)
        self._reorder()

    def _reorder(self) -> None:
        self.layoutAboutToBeChanged.emit()
        kept = self.persistentIndexList()
        rows = [self.order[i.row()] for i in kept]
        self._sort_order()
        if kept:
            place = {row: at for at, row in enumerate(self.order)}
            self.changePersistentIndexList(
                kept, [self.index(place[row], i.column()) for row, i in zip(rows, kept, strict=True)]
            )
        self.layoutChanged.emit()

    # Qt's questions ------------------------------------------------------------------------------------------------

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's own signature
        return 0 if parent.isValid() else len(self.order)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return self.columns[section].title
            if role == Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(self.columns[section].number)
        return None

    def row(self, at: int) -> Row:
        assert self.run is not None
        return self.run.rows[self.order[at]]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if self.run is None:
            return None
        row, column = self.row(index.row()), self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            text = column.text(row)
            said = self.run.provenance
            return f"{text} ({said})" if column.title == "State" and row.us is not None and said != "measured" else text
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column.number)
        if role == Qt.ItemDataRole.DecorationRole and column.title == "State":
            return self._icons[row.state]
        if role == Qt.ItemDataRole.ForegroundRole:
            return self._ink(row, column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip(f"{row.name}\n{row.reason}\n{row.log[:2000]}".strip())
        return None

    def _ink(self, row: Row, column: Column) -> QBrush | None:
        if column.title == "Reason":
            return self._bad
        if column.title == "Vendor" and (speedup := self.speedup(row)):
            return self.good if speedup >= 1 else self.slow
        return self._muted if column.title in MUTED else None


def _alignment(number: bool) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if number else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
