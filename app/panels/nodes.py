"""All nodes as a table: the graph for the keyboard and the screen reader, in step with the canvas."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    QPersistentModelIndex,
    Qt,
    Signal,
)
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QLineEdit, QTableView, QVBoxLayout, QWidget

from app.document import Document
from app.follow import Follower
from app.format import one_line, tip
from app.panels.hint import Hint
from app.theme import Theme

Index = QModelIndex | QPersistentModelIndex
NO_MODEL = "Open a model, and its nodes are listed here in order."
NO_MATCH = "No node has all of these words in its name, operator or shape."
COLUMNS = ("Operator", "Name", "Region", "Shape")


class NodeModel(QAbstractTableModel):
    """Operators that pass the filter, in graph order."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.document: Document | None = None
        self.shown: list[int] = []
        self._filter = ""

    def set_document(self, document: Document | None) -> None:
        self.document = document
        self.set_filter(self._filter)

    def set_filter(self, text: str) -> None:
        self.beginResetModel()
        self._filter = text
        if self.document is None:
            self.shown = []
        else:
            model = self.document.full
            hits = model.search(text) if text.strip() else range(len(model.boxes))
            self.shown = [i for i in hits if model.boxes[i].node is not None]
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's own signature
        return 0 if parent.isValid() else len(self.shown)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return COLUMNS[section]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if self.document is None or role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return None
        at = self.shown[index.row()]
        box = self.document.full.boxes[at]
        region = self.document.plan.region_of(box.name)
        text = (box.title, one_line(box.name), region.id if region else "", box.detail)[index.column()]
        return tip(text) if role == Qt.ItemDataRole.ToolTipRole else text


class NodesPanel(QWidget):
    """Selecting rows selects on the canvas, and the other way round."""

    chosen = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.filter = QLineEdit(placeholderText="Filter nodes")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter nodes")
        self.model = NodeModel(self)
        self.table = QTableView()
        self.table.setAccessibleName("Nodes")
        self.table.setModel(self.model)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(24)
        header = self.table.horizontalHeader()
        header.setStretchLastSection(True)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column, width in enumerate((92, 96, 66)):
            header.resizeSection(column, width)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.setSpacing(8)
        head = QVBoxLayout()
        head.setContentsMargins(8, 0, 8, 0)
        head.addWidget(self.filter)
        layout.addLayout(head)
        layout.addWidget(self.table)
        self._syncing = False
        self.empty = Hint(self.table)
        self.model.modelReset.connect(self._say)
        self._say()
        self.filter.textChanged.connect(self._refilter)
        self.table.selectionModel().selectionChanged.connect(self._rows_changed)

    def _say(self) -> None:
        """An empty table tells what to do."""
        words = NO_MODEL if self.model.document is None else NO_MATCH
        self.empty.say("" if self.model.shown else words)

    def set_document(self, document: Document | None) -> None:
        self.model.set_document(document)
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.selection_changed, self._sync),
                (document.plan_changed, lambda: self._refilter(self.filter.text())),
            )

    def set_theme(self, theme: Theme) -> None:
        self.table.viewport().update()

    def _refilter(self, text: str) -> None:
        self._syncing = True
        self.model.set_filter(text)
        self._syncing = False
        self._sync()

    def _rows_changed(self) -> None:
        if self._syncing or self.model.document is None:
            return
        self._syncing = True
        boxes = self.model.document.full.boxes
        rows = self.table.selectionModel().selectedRows()
        self.model.document.select_names([boxes[self.model.shown[i.row()]].name for i in rows])
        self._syncing = False
        self.chosen.emit()

    def _sync(self) -> None:
        if self._syncing or self.model.document is None:
            return
        self._syncing = True
        document = self.model.document
        place = {document.full.boxes[box].name: row for row, box in enumerate(self.model.shown)}
        rows = sorted(place[name] for name in document.selected_nodes() if name in place)
        selection = QItemSelection()
        for first, last in _runs(rows):
            selection.append(QItemSelectionRange(self.model.index(first, 0), self.model.index(last, 0)))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows
        self.table.selectionModel().select(selection, flags)
        if rows:
            self.table.scrollTo(self.model.index(rows[0], 0))
        self._syncing = False


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbours: the view takes thousands of rows as few ranges at once."""
    starts = [i for i in range(len(rows)) if i == 0 or rows[i] != rows[i - 1] + 1]
    for start, after in pairwise([*starts, len(rows)]):
        yield rows[start], rows[after - 1]
