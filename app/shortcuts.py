"""The sheet of all keys."""

from html import escape

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QTextBrowser, QVBoxLayout, QWidget

GRAPH_KEYS = (
    ("Wheel, + and -", "zoom at the cursor"),
    ("Space or middle button, drag", "pan"),
    ("Click, Shift+click", "select, add to the selection"),
    ("Drag", "select what the frame touches"),
    ("Alt+drag, or L and drag", "draw a lasso: select what it encloses"),
    ("Double click, Enter", "select the whole region, go to its details"),
    ("Up, Down", "along an edge to the maker or the reader"),
    ("F", "fit the whole graph"),
    ("Esc", "clear the selection and the search"),
)


def sheet_html(actions: "list[QAction]") -> str:
    """Two columns: the commands' keys run over into the second one, the graph's follow there."""
    lines = [(a.shortcut().toString(), str(a.data() or a.text()).replace("…", "")) for a in actions]
    keyed = [(k, t.partition("\t")[0]) for k, t in lines if k]
    half = (len(keyed) + len(GRAPH_KEYS) + 2) // 2
    first, rest = keyed[:half], keyed[half:]
    right = f"<h3>&nbsp;</h3>{_table(rest)}<h3>In the graph</h3>{_table(GRAPH_KEYS)}"
    left = f"<h3>Everywhere</h3>{_table(first)}"
    return f"<table width='100%'><tr><td width='50%'>{left}</td><td width='50%'>{right}</td></tr></table>"


def _table(rows: "tuple[tuple[str, str], ...] | list[tuple[str, str]]") -> str:
    cells = "".join(
        f"<tr><td style='padding:2px 16px 2px 0; white-space:nowrap'><b>{escape(k)}</b></td><td>{escape(t)}</td></tr>"
        for k, t in rows
    )
    return f"<table>{cells}</table>"


class ShortcutSheet(QDialog):
    def __init__(self, actions: "list[QAction]", parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Shortcuts")
        self.resize(860, 640)
        self.text = QTextBrowser()
        self.text.setHtml(sheet_html(actions))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 16, 16, 12)
        layout.addWidget(self.text)
        layout.addWidget(buttons)
