"""The tuning records: what is known of which workload on which GPU, where it comes from; import, export, merge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.background import Background, Job
from app.document import Document
from app.format import micros, ratio, tip
from app.theme import Theme, base_font
from core.errors import BoltError
from core.records.summary import Line

Index = QModelIndex | QPersistentModelIndex
FILES = "Records (*.json.gz *.json);;All files (*)"
SOURCES = "Records (*.json.gz *.json *.sqlite);;All files (*)"  # an export, or another user's database
LAST = float("inf")


def _us(value: float | None) -> str:
    return micros(value) if value is not None else ""


def _ratio(line: Line) -> float | None:
    return line.vendor_us / line.best_us if line.vendor_us and line.best_us else None


def _trust(line: Line) -> str:
    """Outdated before in conflict: what is not trusted decides nothing."""
    return "outdated" if line.stale else "sources disagree" if line.conflict else ""


# Title, width, text, sort key, whether it is a number.
COLUMNS: tuple[tuple[str, int, Callable[[Line], str], Callable[[Line], Any], bool], ...] = (
    ("Workload", 430, lambda x: x.workload, lambda x: x.workload, False),
    ("GPU", 150, lambda x: x.gpu.removeprefix("NVIDIA "), lambda x: x.gpu, False),
    ("Best", 84, lambda x: _us(x.best_us), lambda x: x.best_us or LAST, True),
    ("Vendor", 84, lambda x: _us(x.vendor_us), lambda x: x.vendor_us or LAST, True),
    ("Speed-up", 84, lambda x: ratio(r) if (r := _ratio(x)) else "", lambda x: _ratio(x) or 0.0, True),
    ("Screened", 92, lambda x: f"{x.screened:,}", lambda x: x.screened, True),
    ("Finals", 70, lambda x: f"{x.finals:,}", lambda x: x.finals, True),
    ("Failed", 70, lambda x: f"{x.failed:,}", lambda x: x.failed, True),
    ("From", 150, lambda x: x.origin, lambda x: x.origin, False),
    ("Trust", 110, _trust, lambda x: (bool(x.stale), bool(x.conflict)), False),
    ("Taken", 150, lambda x: x.taken[:16].replace("T", " "), lambda x: x.taken, False),
)


class RecordModel(QAbstractTableModel):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lines: list[Line] = []

    def show_lines(self, lines: list[Line]) -> None:
        self.beginResetModel()
        self.lines = lines
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's own signature
        return 0 if parent.isValid() else len(self.lines)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return COLUMNS[section][0]
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            return _alignment(COLUMNS[section][4])
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line, column = self.lines[index.row()], COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column[2](line)
        if role == Qt.ItemDataRole.UserRole:
            return column[3](line)
        if role == Qt.ItemDataRole.ToolTipRole:
            said = [line.workload, line.candidate, line.versions, *(f"not trusted: {reason}" for reason in line.stale)]
            return tip("\n".join([*said, *([f"sources disagree: {line.conflict}"] if line.conflict else [])]))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column[4])
        return None


def _alignment(number: bool) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if number else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


class RecordsPanel(QWidget):
    """Read in the background when first shown, and again after an import or a job."""

    failed = Signal(object)  # BoltError
    told = Signal(str)

    def __init__(self, theme: Theme, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.background = background
        self._stale = True
        self._reading: Job | None = None
        self.model = RecordModel(self)
        self.proxy = QSortFilterProxyModel(self)
        self.proxy.setSourceModel(self.model)
        self.proxy.setSortRole(Qt.ItemDataRole.UserRole)
        self.proxy.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.proxy.setFilterKeyColumn(-1)
        self.filter = QLineEdit(placeholderText="Filter by workload or GPU")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter records")
        self.filter.setMinimumWidth(320)
        self.count = QLabel()
        self.count.setObjectName("muted")
        self.take, self.give = QPushButton("Import"), QPushButton("Export")
        self.take.setToolTip("Add the records of one or more files; what is here already stays once")
        self.give.setToolTip("Write this user's records to a file that others can import")
        self.table = QTableView()
        self.table.setAccessibleName("Records")
        self.table.setModel(self.proxy)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        self.table.setAlternatingRowColors(True)
        self.table.setFont(base_font(12))
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(24)
        self.table.horizontalHeader().setStretchLastSection(True)
        for at, column in enumerate(COLUMNS):
            self.table.setColumnWidth(at, column[1])
        self.table.setWordWrap(False)
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 6, 12, 6)
        bar.setSpacing(8)
        bar.addWidget(self.filter)
        bar.addStretch(1)
        for widget in (self.count, self.take, self.give):
            bar.addWidget(widget)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.table)
        self.filter.textChanged.connect(self._refilter)
        self.take.clicked.connect(self.ask_import)
        self.give.clicked.connect(self.ask_export)

    def set_document(self, document: Document | None) -> None:
        """Records are of all models: nothing changes."""

    def set_theme(self, theme: Theme) -> None:
        self.table.viewport().update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._stale:
            self.read()

    def outdate(self) -> None:
        """There are new records."""
        self._stale = True
        if self.isVisible():
            self.read()

    def read(self) -> None:
        if self._reading is None:
            self._stale = False
            self.count.setText("reading")
            self._reading = self.background.start("reading records", _read, self._show, self._fail)

    def _show(self, lines: list[Line]) -> None:
        self._reading = None
        self.model.show_lines(lines)
        self._refilter(self.filter.text())

    def _refilter(self, text: str) -> None:
        self.proxy.setFilterFixedString(text.strip())
        shown, total = self.proxy.rowCount(), len(self.model.lines)
        self.count.setText(f"{total:,} workloads" if shown == total else f"{shown:,} of {total:,} workloads")

    def _fail(self, error: BoltError) -> None:
        self._reading = None
        self.count.setText("not readable")
        self.failed.emit(error)

    # In and out ---------------------------------------------------------------------------------------------------

    def ask_import(self) -> None:
        chosen, _ = QFileDialog.getOpenFileNames(self, "Import records", "", SOURCES)
        if chosen:
            paths = [Path(p) for p in chosen]
            self.background.start(
                "importing records", lambda job: _import(paths, job), self._imported, self.failed.emit
            )

    def _imported(self, new: int) -> None:
        self.told.emit(f"{new:,} new records imported." if new else "These records are all here already.")
        self.outdate()

    def ask_export(self) -> None:
        chosen, _ = QFileDialog.getSaveFileName(self, "Export records", "records.json.gz", FILES)
        if chosen:
            path = Path(chosen)
            self.background.start("exporting records", lambda job: _export(path), self._exported, self.failed.emit)

    def _exported(self, rows: int) -> None:
        self.told.emit(
            f"{rows:,} rows exported." if rows else "There are no records of this user yet: nothing to export."
        )


def _read(job: Job) -> list[Line]:
    from core.records.store import Records
    from core.records.summary import summary
    from core.records.trust import identity_here

    records = Records()
    try:
        return summary(records, identity_here())
    finally:
        records.close()


def _import(paths: list[Path], job: Job) -> int:
    from core.records.databases import read_any
    from core.records.store import Records

    records = Records()
    try:
        new = 0
        for path in paths:
            job.check()
            new += records.load(read_any(path), path.name)
        return new
    finally:
        records.close()


def _export(path: Path) -> int:
    from core.records.exchange import write_file
    from core.records.store import Records

    records = Records()
    try:
        return write_file(path, records.dump())
    finally:
        records.close()
