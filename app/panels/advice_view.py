"""The list of advice: what, by how much, and the details of the one that is chosen."""

from html import escape
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    Signal,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QSplitter,
    QTableView,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from app.format import figures, tip
from app.theme import base_font
from core.advise.advice import Advice, Kind
from core.advise.present import estimate_text, gain_text, way_text

Index = QModelIndex | QPersistentModelIndex
NAMES = {
    Kind.ACTIVATION: "Activation",
    Kind.DEEPEN: "1x1 convolution",
    Kind.SHAPE: "Shape",
    Kind.ROOFLINE: "Below the roofline",
    Kind.BATCH: "Batch size",
}
COLUMNS = (("What", 0), ("Kind", 145), ("Measured", 110), ("Estimated", 110), ("Of the model", 115))
_LAST = -1e30  # sorts what has no figure behind what has one


class AdviceModel(QAbstractTableModel):
    """`total_us`: the measured time of the whole model, None where a region has no record."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.advice: list[Advice] = []
        self.total_us: float | None = None

    def show_advice(self, advice: list[Advice], total_us: float | None) -> None:
        self.beginResetModel()
        self.advice, self.total_us = advice, total_us
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's own signature
        return 0 if parent.isValid() else len(self.advice)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return COLUMNS[section][0]
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            return _alignment(section)
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        advice, column = self.advice[index.row()], index.column()
        price = advice.price
        if role == Qt.ItemDataRole.DisplayRole:
            return (
                advice.what, NAMES[advice.kind], gain_text(price),
                estimate_text(price).removeprefix("estimated: "), self._share(advice),
            )[column]  # fmt: skip
        if role == Qt.ItemDataRole.UserRole:
            gain, guess = price.gain_us, price.estimate_us
            return (
                advice.what, NAMES[advice.kind], _LAST if gain is None else gain, _LAST if guess is None else guess,
                _LAST if gain is None else gain,
            )[column]  # fmt: skip
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip(f"{advice.what}\n{advice.why}")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return None

    def _share(self, advice: Advice) -> str:
        gain = advice.price.gain_us
        return f"{figures(100 * gain / self.total_us)} %" if gain and self.total_us else ""


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column >= 2 else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


class ByKind(QSortFilterProxyModel):
    """Rows of one kind; all of them for None."""

    kind: Kind | None = None

    def show_kind(self, kind: Kind | None) -> None:
        self.kind = kind
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        model = self.sourceModel()
        assert isinstance(model, AdviceModel)
        return self.kind in (None, model.advice[row].kind)


class AdviceView(QWidget):
    """`chosen` comes with the advice whose row was chosen, `apply_wanted` with the one to be followed in a copy."""

    chosen = Signal(object)
    apply_wanted = Signal(object)
    copy_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._filling = False  # rows change by themselves: nobody chose one
        self.kinds = QComboBox()
        self.kinds.setAccessibleName("Kind of advice")
        self.kinds.addItem("All kinds", None)
        for kind, name in NAMES.items():
            self.kinds.addItem(name, kind)
        self.note = QLabel()
        self.note.setObjectName("muted")
        self.copy, self.apply = QPushButton("Copy command"), QPushButton("Apply to a copy")
        self.copy.setToolTip("The command that measures every price, to be run on a machine with the GPU")
        self.model, self.proxy = AdviceModel(self), ByKind(self)
        self.proxy.setSourceModel(self.model)
        self.proxy.setSortRole(Qt.ItemDataRole.UserRole)
        self.table = _table(self.proxy)
        self.text = QTextBrowser()
        self.text.setAccessibleName("Details of the advice")
        self.text.setFrameShape(QTextBrowser.Shape.NoFrame)
        split = QSplitter(Qt.Orientation.Horizontal)
        split.addWidget(self.table)
        split.addWidget(self.text)
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 2)
        bar = QHBoxLayout()
        bar.setContentsMargins(8, 6, 12, 6)
        bar.setSpacing(8)
        bar.addWidget(self.kinds)
        bar.addWidget(self.note, 1)
        bar.addWidget(self.copy)
        bar.addWidget(self.apply)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(split)
        self.kinds.currentIndexChanged.connect(lambda: self.proxy.show_kind(self.kinds.currentData()))
        self.table.selectionModel().currentRowChanged.connect(self._row_changed)
        self.table.activated.connect(lambda index: self.chosen.emit(self.current))
        self.copy.clicked.connect(self.copy_wanted)
        self.apply.clicked.connect(lambda: self.apply_wanted.emit(self.current))
        self._row_changed()

    @property
    def current(self) -> Advice | None:
        index = self.table.currentIndex()
        return self.model.advice[self.proxy.mapToSource(index).row()] if index.isValid() else None

    def show_advice(self, advice: list[Advice], total_us: float | None, note: str) -> None:
        """Rows in the order given, until a header is clicked; the chosen one stays if it is still there."""
        kept, self._filling = self.current.id if self.current else "", True
        self.model.show_advice(advice, total_us)
        self.note.setText(note)
        for row in range(self.proxy.rowCount()):
            if self.model.advice[self.proxy.mapToSource(self.proxy.index(row, 0)).row()].id == kept:
                self.table.selectRow(row)
        self._row_changed()
        self._filling = False

    def _row_changed(self, *_: object) -> None:
        advice = self.current
        change = advice.change if advice else None
        self.apply.setEnabled(change is not None)
        if advice is None:
            self.apply.setToolTip("Choose a piece of advice first.")
            self.text.setHtml("<p>Choose a row: why, at what price, and where. Enter shows its nodes in the graph.</p>")
            return
        said = "Write a copy of the model with this followed, and open it"
        if change is None:
            self.apply.setToolTip(tip(f"Not possible: {advice.unchanged}"))
        else:
            self.apply.setToolTip(said if change.keeps else f"{said}. It computes another function: train it again.")
        self.text.setHtml(_details(advice))
        if not self._filling:
            self.chosen.emit(advice)


def _table(model: ByKind) -> QTableView:
    table = QTableView()
    table.setAccessibleName("Advice")
    table.setModel(model)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setShowGrid(False)
    table.setAlternatingRowColors(True)
    table.setFont(base_font(12))
    table.setWordWrap(False)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(24)
    table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)  # the figures are never cut
    for at, (_, width) in enumerate(COLUMNS[1:], 1):
        table.setColumnWidth(at, width)
    table.setSortingEnabled(True)
    table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)  # as it was given, until a header is clicked
    return table


def _details(advice: Advice) -> str:
    ways = "".join(f"<li>{escape(w.label)}: {escape(way_text(w))}</li>" for w in advice.ways)
    facts = "".join(f"<li>{escape(n)}: {escape(v)}</li>" for n, v in advice.facts)
    change = advice.change
    end = f"Nothing to apply: {advice.unchanged}." if change is None else ""
    if change is not None:
        end = "The copy computes what the model does." if change.keeps else "The copy computes another function."
    return (
        f"<p><b>{escape(advice.what)}</b></p><p>{escape(advice.why)}.</p><ul>{ways}</ul>"
        f"{f'<ul>{facts}</ul>' if facts else ''}<p>{escape(end)}</p>"
    )
