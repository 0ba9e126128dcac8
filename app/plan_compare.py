"""Plan A against plan B: both sums as bars, and every difference with what it costs or saves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QSizePolicy,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.document import Document
from app.follow import Follower
from app.format import figures as digits
from app.format import micros, tip
from app.graph.model import box_line, region_title
from app.plan_figures import AS_IT_STANDS, AUTOMATIC, known_figures, named_plans, side_line, sources, verdict
from app.run import Changes
from app.theme import Theme, base_font
from core.fusion.compare import Comparison, Difference, Figure, Side, compare

if TYPE_CHECKING:
    from app.window import MainWindow

COLUMNS = ("Regions in A", "Time in A", "Regions in B", "Time in B", "B saves")
HATCH = Qt.BrushStyle.BDiagPattern


class Sums(QWidget):
    """Two bars on one scale: what was measured solid, what is estimated hatched on top, and the words beside them."""

    ROW = 34
    NAMES = 18

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.theme = theme
        self.sides: tuple[Side, ...] = ()
        self.lines: tuple[str, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_sides(self, known: Mapping[str, Figure], *sides: Side) -> None:
        self.sides, self.lines = sides, tuple(side_line(side, known) for side in sides)
        self.setAccessibleName("; ".join(f"{n}: {line}" for n, line in zip("AB", self.lines, strict=False)))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(480, 2 * self.ROW)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), self.theme
        most = max((s.measured_us + s.estimated_us for s in self.sides), default=0.0)
        room = self.width() - self.NAMES
        for row, (name, side, line) in enumerate(zip("AB", self.sides, self.lines, strict=False)):
            top = row * self.ROW
            painter.setPen(t["muted"])
            painter.setFont(base_font(12, bold=True))
            painter.drawText(QRectF(0, top, self.NAMES, 12), Qt.AlignmentFlag.AlignVCenter, name)
            painter.fillRect(QRectF(self.NAMES, top + 2, room, 8), t["grid"])
            if most:
                solid, guess = (room * us / most for us in (side.measured_us, side.estimated_us))
                painter.fillRect(QRectF(self.NAMES, top + 2, solid, 8), t["ours" if row else "vendor"])
                painter.fillRect(QRectF(self.NAMES + solid, top + 2, guess, 8), QBrush(t["muted"], HATCH))
            painter.setFont(base_font(11))
            where = QRectF(self.NAMES, top + 13, room, 16)
            text = painter.fontMetrics().elidedText(line, Qt.TextElideMode.ElideRight, int(where.width()))
            painter.drawText(where, Qt.AlignmentFlag.AlignVCenter, text)


class PlanCompare(QDialog):
    """Stays open beside the window and follows its document; a chosen row selects its nodes there."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window_, self.document = window, window.document
        self.setWindowTitle("Compare plans")
        self.resize(880, 420)
        self._links = Follower()
        self._shown: tuple[Difference, ...] = ()
        self.a, self.b = QComboBox(), QComboBox()
        self.sums = Sums(window.theme)
        self.verdict = QLabel(wordWrap=True)
        self.verdict.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.table = _table()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 16, 16, 12)
        layout.setSpacing(12)
        layout.addLayout(self._choices())
        layout.addWidget(self.sums)
        layout.addWidget(self.verdict)
        layout.addWidget(self.table, 1)
        self.copy, close = QPushButton("Copy table"), QPushButton("Close")
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.as_text()))
        close.clicked.connect(self.close)
        for button in (self.copy, close):
            button.setAutoDefault(False)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.copy)
        buttons.addWidget(close)
        layout.addLayout(buttons)
        self.table.itemSelectionChanged.connect(self._row_chosen)
        window.documents.switched.connect(self._switched)

    def _choices(self) -> QHBoxLayout:
        row = QHBoxLayout()
        for name, box in (("A", self.a), ("B", self.b)):
            label = QLabel(name)
            label.setBuddy(box)
            box.setAccessibleName(f"Plan {name}")
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.activated.connect(self.refresh)
            row.addWidget(label)
            row.addWidget(box, 1)
        return row

    def open_for(self, document: Document) -> None:
        self.document = document
        self._links.follow(
            (document.plan_changed, self._plans_changed),
            (document.estimates_changed, self.refresh),
            (document.run_changed, self._run_changed),
        )
        self.a.clear()
        self.b.clear()
        self._plans_changed()
        self.show()
        self.raise_()
        self.activateWindow()

    def _switched(self) -> None:
        """The window shows another model, or none: the plans of the one before can't be compared any more."""
        if self.window_.document is not self.document:
            self.close()

    def _run_changed(self, changes: Changes) -> None:
        if changes.workloads or changes.started:
            self.refresh()

    def _plans_changed(self) -> None:
        if self.document is not None:
            offer_plans(self.document, self.a, self.b)
        self.refresh()

    def refresh(self) -> None:
        if self.document is None:
            return
        plans = named_plans(self.document)
        known = known_figures(self.document)
        found = compare(plans[self.a.currentText()], plans[self.b.currentText()], known)
        self.sums.theme = self.window_.theme
        self.sums.show_sides(known, found.a, found.b)
        self.verdict.setText(verdict(found, sources((s for d in found.differences for s in (d.a, d.b)), known)))
        self._fill(found, known)

    def _fill(self, found: Comparison, known: dict[str, Figure]) -> None:
        blocked = self.table.blockSignals(True)
        self._shown = found.differences
        self.table.setRowCount(len(found.differences))
        for row, difference in enumerate(found.differences):
            gain = difference.gain_us
            saved = "not measured" if gain is None else f"{'-' * (gain < 0)}{digits(abs(gain))} us"
            sides = (difference.a, difference.b)
            cells = tuple(text for side in sides for text in (self._names(side), _time(side, known)))
            for column, text in enumerate((*cells, saved)):
                item = QTableWidgetItem(text)
                if column in (1, 3, 4):
                    item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                whole = column in (0, 2) or (gain is not None if column == 4 else sides[column // 2].whole)
                token = "text" if whole else "muted"
                if column == 4 and gain is not None:
                    token = "good" if gain > 0 else "bad" if gain < 0 else "text"
                item.setForeground(self.window_.theme[token])
                item.setToolTip(tip(self._told(difference, known)))
                self.table.setItem(row, column, item)
        self.table.blockSignals(blocked)

    def _names(self, side: Side) -> str:
        assert self.document is not None
        graph = self.document.graph
        return box_line([f"{r.id} {region_title(r, graph)}" for r in side.regions], 3)

    def _told(self, difference: Difference, known: dict[str, Figure]) -> str:
        """Every region of both sides with its figure and where that comes from."""
        lines = []
        for name, side in (("A", difference.a), ("B", difference.b)):
            for r in side.regions:
                figure = known.get(r.workload.key) if r.workload else None
                what = f"{micros(figure.us)}, {figure.source}" if figure else "not measured"
                lines.append(f"{name} {r.id}: {box_line(r.nodes)}: {what}")
        return "\n".join(lines)

    def as_text(self) -> str:
        """The table with tabs, as spreadsheets take it."""
        rows = [[self.table.item(r, c) for c in range(len(COLUMNS))] for r in range(self.table.rowCount())]
        lines = ["\t".join(COLUMNS), *("\t".join(i.text() if i else "" for i in row) for row in rows)]
        return "\n".join([*lines, self.verdict.text()])

    def _row_chosen(self) -> None:
        rows = self.table.selectionModel().selectedRows()
        if rows and self.document is not None:
            chosen = self._shown[rows[0].row()]
            self.document.select_names([n for r in chosen.a.regions for n in r.nodes])
            self.window_.zoom_to_selection()


def offer_plans(document: Document, a: QComboBox, b: QComboBox) -> None:
    """Fill two lists with the document's plans; what was chosen stays chosen while it is there. Tells nobody."""
    names = list(named_plans(document))
    for box, first in ((a, AUTOMATIC), (b, AS_IT_STANDS)):
        chosen = box.currentText() if box.currentText() in names else first
        blocked = box.blockSignals(True)
        box.clear()
        box.addItems(names)
        box.setCurrentIndex(names.index(chosen))
        box.blockSignals(blocked)


def _time(side: Side, known: Mapping[str, Figure]) -> str:
    if side.whole:
        return micros(side.measured_us)
    parts = [f"{micros(side.measured_us)} {sources([side], known)}"] if side.measured_us else []
    parts += [f"{micros(side.estimated_us)} estimated"] if side.estimated else []
    parts += [f"{len(side.unknown)} not measured"] if side.unknown and parts else []
    return " + ".join(parts) or "not measured"


def _table() -> QTableWidget:
    table = QTableWidget(0, len(COLUMNS))
    table.setHorizontalHeaderLabels(list(COLUMNS))
    table.setAccessibleName("Differences between the plans")
    table.verticalHeader().hide()
    table.setShowGrid(False)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    header = table.horizontalHeader()
    header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
    for column in range(len(COLUMNS)):
        stretch = QHeaderView.ResizeMode.Stretch if column in (0, 2) else QHeaderView.ResizeMode.ResizeToContents
        header.setSectionResizeMode(column, stretch)
    return table
