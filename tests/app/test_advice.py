"""The advice panel: its empty states, the list, the way to the nodes, and a changed copy that opens as a document."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.panels.advice import NO_MODEL, NONE_YET, AdvicePanel
from app.panels.advice_view import AdviceView
from app.window import MainWindow
from core.advise.advice import Advice, Kind, Price, SetBatch, Term, Way
from tests.app.conftest import WAIT_MS
from tests.core.advise import models
from tests.core.tuning_stubs import gemm


@pytest.fixture(autouse=True)
def no_shipped_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLT_SHIPPED", "")


def shown(window: MainWindow, qtbot: QtBot) -> AdviceView:
    """The filled view of the window's panel."""
    window.bottom.setCurrentWidget(window.advice)
    view = window.advising.view
    qtbot.waitUntil(lambda: window.advice.pages.currentWidget() is view and bool(view.model.advice), timeout=WAIT_MS)
    return view


def choose(view: AdviceView, kind: Kind) -> Advice:
    row = next(i for i, a in enumerate(view.model.advice) if a.kind is kind)
    view.table.selectRow(view.proxy.mapFromSource(view.model.index(row, 0)).row())
    assert view.current is not None
    return view.current


def test_it_says_what_to_do_next(make_window: Callable[..., MainWindow], tmp_path: Path, qtbot: QtBot) -> None:
    window = make_window()
    panel = window.findChild(AdvicePanel)
    assert panel is not None and panel.empty.text() == NO_MODEL
    window.bottom.setCurrentWidget(panel)
    b = models.Builder("plain")
    b.node("Transpose", "y", b.input("x", 4, 4), perm=[0, 2, 1])
    window.open(str(models.saved(b.model({"y": [4, 4]}), tmp_path / "plain.onnx")))
    qtbot.waitUntil(lambda: panel.empty.text() == NONE_YET, timeout=WAIT_MS)
    window.documents.close_current()
    assert panel.empty.text() == NO_MODEL


def test_advice_without_records_names_no_price(window: MainWindow, qtbot: QtBot) -> None:
    view = shown(window, qtbot)
    texts = [view.proxy.index(r, 2).data() for r in range(view.proxy.rowCount())]
    assert set(texts) == {"not measured"} and "not measured" in view.note.text()
    view.copy.click()
    assert QGuiApplication.clipboard().text().endswith("--measure")


def test_one_kind_is_listed_alone(window: MainWindow, qtbot: QtBot) -> None:
    view = shown(window, qtbot)
    everything = view.proxy.rowCount()
    view.kinds.setCurrentIndex(view.kinds.findText("Activation"))
    kinds = {view.proxy.index(r, 1).data() for r in range(view.proxy.rowCount())}
    assert kinds == {"Activation"} and view.proxy.rowCount() < everything


def test_a_row_leads_to_its_nodes(window: MainWindow, qtbot: QtBot) -> None:
    view = shown(window, qtbot)
    advice = choose(view, Kind.ACTIVATION)
    assert window.document is not None and set(window.document.selected_nodes()) == set(advice.nodes)
    assert advice.why in view.text.toPlainText()
    window.document.select([])
    view.show_advice(view.model.advice, None, "again")
    assert view.current == advice and not window.document.selected_nodes()  # nobody chose it anew


def test_an_applied_copy_opens_as_a_new_document(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(window, qtbot)
    advice = choose(view, Kind.ACTIVATION)
    assert view.apply.isEnabled()
    window.advising.apply(advice, tmp_path / "copy.onnx")
    qtbot.waitUntil(lambda: len(window.documents.all) == 2, timeout=WAIT_MS)
    assert window.document is not None and window.document.title == "copy"
    ops = [n.op_type for n in onnx.load(tmp_path / "copy.onnx").graph.node]
    assert ops.count("Relu") == 0


def test_what_can_not_be_applied_says_why(window: MainWindow, qtbot: QtBot) -> None:
    view = shown(window, qtbot)
    advice = choose(view, Kind.ROOFLINE)
    assert not view.apply.isEnabled() and advice.unchanged in view.apply.toolTip()


def test_a_copy_that_can_not_be_written_is_told(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(window, qtbot)
    (tmp_path / "file").write_text("")
    window.advising.apply(choose(view, Kind.ACTIVATION), tmp_path / "file" / "copy.onnx")
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert len(window.documents.all) == 1


def test_figures_sort_by_gain_and_estimates_stand_apart(qtbot: QtBot) -> None:
    view = AdviceView()
    qtbot.addWidget(view)

    def advice(name: str, price: Price) -> Advice:
        way = Way("x", (Term(1, (gemm(),), (gemm(),)),), price)
        return Advice(name, Kind.BATCH, name, "because", (), (), (way,), SetBatch(4))

    found = [
        advice("guess", Price(None, None, ("k",), 0, 99.0)), advice("costs", Price(1.0, 3.0, (), 1)),
        advice("saves", Price(3.0, 1.0, (), 1)),
    ]  # fmt: skip
    view.show_advice(found, 20.0, "")
    view.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    rows = [[view.proxy.index(r, c).data() for c in range(5)] for r in range(3)]
    assert [r[0] for r in rows] == ["saves", "costs", "guess"]
    assert rows[0][2:] == ["saves 2 us", "", "10.0 %"] and rows[2][2:] == ["not measured", "saves 99 us", ""]


def test_rows_stand_in_the_order_given_until_a_header_is_clicked(window: MainWindow, qtbot: QtBot) -> None:
    view = shown(window, qtbot)
    rows = [view.proxy.index(r, 0).data() for r in range(view.proxy.rowCount())]
    assert rows == [a.what for a in view.model.advice]
