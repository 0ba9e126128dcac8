"""The view with what floats over it: the colour mode and its legend, and the finder."""

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QToolButton, QVBoxLayout, QWidget

from app.document import Document
from app.format import micros
from app.graph.item import STATE_TOKENS, Mode, longest_us
from app.graph.keys import Keys
from app.graph.minimap import Minimap
from app.graph.model import FAMILIES
from app.graph.view import GraphView
from app.theme import Theme, icon

BESIDE = 90  # pixels of the bar that are neither key nor mode nor tools


class Legend(QWidget):
    """A bar over the graph: which meaning colour has now, and its key, of what the document holds."""

    mode_changed = Signal(object)  # Mode

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("legend")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.theme = theme
        self.document: Document | None = None
        self.mode = QComboBox()
        self.mode.setAccessibleName("Colour by")
        self.mode.setToolTip("What colour means in the graph")
        for mode in Mode:
            self.mode.addItem(mode.value, mode)
        self.keys = Keys(theme)
        self.bar = QHBoxLayout()
        self.bar.setSpacing(8)
        self.bar.addWidget(QLabel("Colour"))
        self.bar.addWidget(self.mode)
        self.bar.addSpacing(6)
        self.bar.addWidget(self.keys, 1)
        self.tools = QHBoxLayout()
        self.tools.setSpacing(2)
        self.bar.addStretch(0)
        self.bar.addLayout(self.tools)
        self.rows = QVBoxLayout(self)
        self.rows.setContentsMargins(10, 5, 10, 5)
        self.rows.addLayout(self.bar)
        self.mode.currentIndexChanged.connect(self._changed)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        self.rebuild()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self.rebuild()

    @property
    def current(self) -> Mode:
        return Mode(self.mode.currentData())  # Qt hands a StrEnum back as plain text

    def _changed(self) -> None:
        self.rebuild()
        self.mode_changed.emit(self.current)

    def rebuild(self) -> None:
        self.keys.show_entries(self._entries(), self.theme)
        if self.isVisible():  # before that its width means nothing
            self._give_room()
        self.setVisible(self.document is not None)

    def _give_room(self) -> None:
        """The key beside its mode where one line holds it, else under it, over the whole width."""
        others = self.mode.sizeHint().width() + self.tools.sizeHint().width() + BESIDE
        beside = self.keys.one_line() <= self.width() - others
        if beside and self.rows.indexOf(self.keys) >= 0:
            self.rows.removeWidget(self.keys)
            self.bar.insertWidget(self.bar.count() - 2, self.keys, 1)
        elif not beside and self.rows.indexOf(self.keys) < 0:
            self.bar.removeWidget(self.keys)
            self.rows.addWidget(self.keys)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._give_room()

    def _entries(self) -> list[tuple[str, str]]:
        document, t = self.document, self.theme
        if document is None:
            return []
        mode = self.current
        if mode is Mode.REGION:
            kinds = dict.fromkeys(r.kind for r in document.plan.regions)
            return [(t.hex(f"kind.{k}"), k.replace("_", " ")) for k in kinds]
        if mode is Mode.OPERATOR:
            present = {b.family for b in document.model.boxes}
            return [(t.hex(f"op.{f}"), f) for f in FAMILIES if f in present]
        if mode is Mode.STATE:
            return [(t.hex(token), state.value) for state, token in STATE_TOKENS.items()]
        if mode is Mode.TIME:
            longest = longest_us(document)
            if not longest:
                return [(t.hex("border"), "nothing measured yet: press Tune")]
            shares = (0.02, 0.25, 1.0)
            said = document.run.provenance
            return [(t.heat(s).name(), micros(longest * s)) for s in shares] + [
                (t.hex("border"), f"not measured ({said})")
            ]
        steps = [(1.6, "≥1.6x"), (1.2, "1.2x"), (1.0, "1x"), (0.8, "0.8x"), (0.6, "≤0.6x")]
        return [(t.speedup(s).name(), text) for s, text in steps] + [(t.hex("border"), "none")]


class Finder(QWidget):
    """Search by name, operator, shape or tensor; Enter goes to the next hit."""

    found = Signal(object)  # list of boxes
    at = Signal(int)  # the box gone to
    closed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("finder")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.document: Document | None = None
        self.hits: list[int] = []
        self.place = -1
        self.text = QLineEdit(placeholderText="Find node, operator, shape or tensor")
        self.text.setAccessibleName("Find in graph")
        self.text.setMinimumWidth(250)
        self.count = QLabel()
        self.count.setMinimumWidth(76)
        self.previous, self.next, self.shut = QToolButton(), QToolButton(), QToolButton()
        for button, tip in (
            (self.previous, "Previous (Shift+Enter)"),
            (self.next, "Next (Enter)"),
            (self.shut, "Close (Esc)"),
        ):
            button.setToolTip(tip)
            button.setAccessibleName(tip)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(6, 6, 6, 6)
        layout.setSpacing(4)
        for widget in (self.text, self.count, self.previous, self.next, self.shut):
            layout.addWidget(widget)
        self.text.textChanged.connect(self._search)
        self.text.installEventFilter(self)
        self.next.clicked.connect(lambda: self.step(1))
        self.previous.clicked.connect(lambda: self.step(-1))
        self.shut.clicked.connect(self.close_finder)
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        for button, name in ((self.previous, "previous"), (self.next, "next"), (self.shut, "close")):
            button.setIcon(icon(name, theme))

    def set_document(self, document: Document | None) -> None:
        self.document = document
        self.hits, self.place = [], -1
        if self.isVisible():
            self._search(self.text.text())

    def open_finder(self) -> None:
        self.show()
        self.raise_()
        self.text.setFocus()
        self.text.selectAll()
        self._search(self.text.text())

    def close_finder(self) -> None:
        self.hide()
        self.found.emit([])
        self.closed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.step(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.close_finder()
                return True
        return super().eventFilter(watched, event)

    def _search(self, text: str) -> None:
        self.hits = self.document.model.search(text) if self.document else []
        self.place = -1
        self._say(text)
        self.found.emit(self.hits)

    def step(self, by: int) -> None:
        if self.hits:
            self.place = (
                (self.place + by) % len(self.hits) if self.place >= 0 else (0 if by > 0 else len(self.hits) - 1)
            )
            self._say(self.text.text())
            self.at.emit(self.hits[self.place])

    def _say(self, text: str) -> None:
        if not text.strip():
            self.count.setText("")
        elif self.place >= 0:
            self.count.setText(f"{self.place + 1} of {len(self.hits)}")
        else:
            self.count.setText(f"{len(self.hits)} found")


class Canvas(QWidget):
    """The centre of the window."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.view = GraphView(theme, self)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        self.legend = Legend(theme, self)
        layout.addWidget(self.legend)
        layout.addWidget(self.view, 1)
        self.minimap = Minimap(theme, self)
        self.finder = Finder(theme, self)
        self.note = QLabel("", self)
        self.note.setObjectName("note")
        self.note.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.note.setWordWrap(True)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.legend.mode_changed.connect(self._mode_changed)
        self.view.moved.connect(self.minimap.set_frame)
        self.minimap.wanted.connect(self.view.centre_on)
        self.finder.found.connect(self.view.show_hits)
        self.finder.at.connect(self._go_to)
        self.finder.closed.connect(self.view.setFocus)
        self.setFocusProxy(self.view)
        self.legend.hide()
        self.say("")

    def show_document(self, document: Document) -> None:
        self.say("")
        self.view.show_document(document)
        self.legend.set_document(document)
        self.view.set_mode(self.legend.current)
        self.minimap.show_item(self.view.item)
        self.minimap.set_frame(self.view.seen)
        self.finder.set_document(document)
        self._arrange()

    def clear(self) -> None:
        self.view.clear()
        self.legend.set_document(None)
        self.minimap.show_item(None)
        self.minimap.hide()
        self.finder.set_document(None)
        self.finder.hide()

    def say(self, text: str) -> None:
        """A line in the middle of an empty canvas; "" takes it away."""
        self.note.setText(text)
        self.note.setVisible(bool(text))
        self._arrange()

    def set_theme(self, theme: Theme) -> None:
        self.view.set_theme(theme)
        self.legend.set_theme(theme)
        self.finder.set_theme(theme)
        self.minimap.set_theme(theme)
        self._arrange()

    def refresh(self) -> None:
        """The plan or the run changed."""
        if self.view.item is not None:
            self.view.item.refresh()
            self.minimap.redraw()
            if self.legend.current is Mode.TIME:
                self.legend.rebuild()

    def _mode_changed(self, mode: Mode) -> None:
        self.view.set_mode(mode)
        self.minimap.redraw()

    def _go_to(self, box: int) -> None:
        if self.view.document is not None:
            self.view.document.select([box])
            self.view.reveal([box])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        self.finder.adjustSize()
        self.finder.move(self.width() - self.finder.width() - 12, 46)
        self.minimap.fit_into(self.size())
        self.note.setGeometry(0, self.height() // 2 - 40, self.width(), 80)
