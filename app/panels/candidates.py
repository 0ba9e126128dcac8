"""The live table of candidates, with filters over it and a menu for each row."""

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QMenu,
    QStyledItemDelegate,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.document import Document
from app.explaining import Explaining
from app.follow import Follower
from app.panels.candidate_model import CandidateModel
from app.run import Changes, Row, State
from app.theme import Theme, base_font

VENDORS = "It is the vendor's kernel, which is measured with every candidate."
NO_MODEL = "Open a model, then press Tune. Its candidates appear here as they are compiled and measured."
NOTHING = "Press Tune. Candidates appear here as they are compiled and measured."


def _allow(action: QAction, unless: str) -> None:
    action.setEnabled(not unless)
    action.setToolTip(unless)


class CandidatesPanel(QWidget):
    """Filters over the table."""

    row_chosen = Signal(str, str)  # workload key, candidate
    retune_wanted = Signal(str)  # workload key
    again_wanted = Signal(str, str)  # workload key, candidate

    def __init__(self, theme: Theme, explaining: Explaining, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._links = Follower()
        self.explaining = explaining
        self.not_here = ""  # why nothing can be measured; "" where it can
        self.model = CandidateModel(theme, self)
        self.filter = QLineEdit(placeholderText="Filter by name, family, reason or region")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter candidates")
        self.filter.setMinimumWidth(320)
        self.states = QComboBox()
        self.states.setAccessibleName("State")
        self.states.addItem("All states", None)
        for state in (State.FINAL, State.MEASURED, State.BUILT, State.BUILDING, State.QUEUED, State.FAILED):
            self.states.addItem(state.value.capitalize(), state)
        self.only_selected = QCheckBox("Selected region only")
        self.count = QLabel()
        self.count.setObjectName("muted")
        self.table = self._table()
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 6, 12, 6)
        bar.setSpacing(8)
        for widget in (self.filter, self.states, self.only_selected):
            bar.addWidget(widget)
        bar.addStretch(1)
        bar.addWidget(self.count)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(self.table)
        self.empty = QLabel(NOTHING, self.table)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setObjectName("muted")
        explaining.ready.connect(self._learn)
        self.filter.textChanged.connect(self._refilter)
        self.states.currentIndexChanged.connect(self._refilter)
        self.only_selected.toggled.connect(self._refilter)
        self.table.selectionModel().currentRowChanged.connect(self._row_changed)
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.table.customContextMenuRequested.connect(self._menu)

    def _table(self) -> QTableView:
        table = QTableView()
        table.setAccessibleName("Candidates")
        table.setModel(self.model)
        table.setItemDelegate(QStyledItemDelegate(table))
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setShowGrid(False)
        table.setAlternatingRowColors(True)
        table.setWordWrap(False)
        table.setFont(base_font(12))
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(24)
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        header = table.horizontalHeader()
        header.setStretchLastSection(True)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        header.setSortIndicatorClearable(True)
        for at, column in enumerate(self.model.columns):
            header.resizeSection(at, column.width)
        table.setSortingEnabled(True)
        return table

    def set_document(self, document: Document | None) -> None:
        self.model.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.run_changed, self._take),
                (document.plan_changed, self._refilter),
                (document.selection_changed, self._selection_changed),
            )
        self._refilter()
        self._learn()

    def set_theme(self, theme: Theme) -> None:
        self.model.set_theme(theme)
        self.table.viewport().update()

    def _take(self, changes: Changes) -> None:
        self.model.take(changes)
        self._say()
        if changes.first_new_row is not None:
            self._learn()

    def _learn(self) -> None:
        """Tile, cluster, stages and schedule of what the run has touched; worked out in the background."""
        document = self.model.document
        if document is None or not document.run.rows:
            return
        touched = {key for key, run in document.run.workloads.items() if run.rows}
        work = [w for key in touched if (rs := document.plan.workloads.get(key)) and (w := rs[0].workload) is not None]
        self.model.learn(self.explaining.geometries(work, document.run.gpu))

    def _selection_changed(self) -> None:
        if self.only_selected.isChecked():
            self._refilter()

    def _refilter(self) -> None:
        document = self.model.document
        region = document.selected_region() if document and self.only_selected.isChecked() else None
        workload = region.workload.key if region and region.workload else ""
        chosen = self.states.currentData()
        self.model.set_filter(self.filter.text(), State(chosen) if chosen else None, workload)
        self._say()

    def _say(self) -> None:
        run = self.model.run
        total = len(run.rows) if run else 0
        self.empty.setVisible(not total)
        self.empty.setText(NOTHING if self.model.document is not None else NO_MODEL)
        if not total:
            self.count.setText("")
            return
        shown = len(self.model.order)
        said = "" if run is None or run.provenance == "measured" else f", {run.provenance}"
        self.count.setText(
            f"{shown:,} candidates{said}" if shown == total else f"{shown:,} of {total:,} candidates{said}"
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.empty.setGeometry(0, 30, self.table.width(), max(0, self.table.height() - 30))

    def _menu(self, place: QPoint) -> None:
        """What can be done with the row under the pointer."""
        index = self.table.indexAt(place)
        if not index.isValid():
            return
        row = self.model.row(index.row())
        menu = self.row_menu(row)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.table.viewport().mapToGlobal(place))

    def row_menu(self, row: Row) -> QMenu:
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        clipboard = QGuiApplication.clipboard()
        menu.addAction("Copy name", lambda: clipboard.setText(row.name))
        copy = menu.addAction("Copy reason and compiler log", lambda: clipboard.setText(f"{row.reason}\n{row.log}"))
        copy.setEnabled(bool(row.reason or row.log))
        menu.addAction("Select its region", lambda: self.row_chosen.emit(row.workload, row.name))
        menu.addSeparator()
        again = menu.addAction(
            "Measure it again, beside the winner and the vendor",
            lambda: self.again_wanted.emit(row.workload, row.name),
        )
        vendor = row.measurement is not None and row.measurement.source != "template"
        _allow(again, self.not_here or (VENDORS if vendor else ""))
        anew = menu.addAction("Measure its region anew", lambda: self.retune_wanted.emit(row.workload))
        _allow(anew, self.not_here)
        return menu

    def _row_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        if current.isValid() and self.table.hasFocus():
            row = self.model.row(current.row())
            self.row_chosen.emit(row.workload, row.name)
