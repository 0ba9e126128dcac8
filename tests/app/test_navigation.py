"""Finding one's way in a graph: folded repeats, back and forward, makers and readers, the overview."""

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot

from app.document import Document
from app.graph.item import Mode
from app.graph.model import graph_model
from app.window import MainWindow
from core.graph.repeats import find_repeats
from core.importer.load import load_graph
from tests.app.conftest import WAIT_MS


@pytest.fixture
def bert(make_window: Callable[..., MainWindow], qtbot: QtBot) -> MainWindow:
    window = make_window("bert-base")
    window.commands["fold"].trigger()
    qtbot.waitUntil(lambda: window.document.model.folds > 0, timeout=WAIT_MS)  # type: ignore[union-attr]
    return window


def test_folded_repeats_keep_every_edge_to_the_rest() -> None:
    graph = load_graph("resnet50")
    whole, folded = graph_model(graph), graph_model(graph, find_repeats(graph))
    hidden = sum(len(r.others()) for r in find_repeats(graph))
    assert len(whole.boxes) - len(folded.boxes) == hidden - folded.folds
    assert set(folded.index) == set(whole.index)
    reached = {b for _, b in folded.edges} | {a for a, _ in folded.edges}
    assert reached == set(range(len(folded.boxes)))


def test_folding_leaves_one_layer_and_a_count(bert: MainWindow, qtbot: QtBot) -> None:
    document = bert.document
    assert document is not None
    assert len(document.model.boxes) < len(document.full.boxes) / 5
    fold = next(i for i, b in enumerate(document.model.boxes) if b.members)
    assert document.model.boxes[fold].title == "+11 more"
    document.select([fold])
    assert "+11 more" in bert.details.text.toPlainText()
    assert len(document.selected_nodes()) == len(document.model.boxes[fold].members)
    assert bert.nodes.model.rowCount() == len(document.graph.nodes)
    bert.commands["fold"].trigger()
    qtbot.waitUntil(lambda: not document.model.folds, timeout=WAIT_MS)
    assert bert.canvas.view.item is not None
    assert bert.canvas.view.item.placement.nodes == len(document.full.boxes)


def test_a_region_that_is_folded_away_can_be_chosen(bert: MainWindow) -> None:
    document = bert.document
    assert document is not None
    hidden = next(r for r in document.plan.regions if r.workload and document.model.index[r.nodes[0]] in
                  {i for i, b in enumerate(document.model.boxes) if b.members})  # fmt: skip
    document.select_region(hidden)
    assert document.selected_region() == hidden
    assert hidden.id in bert.details.text.toPlainText()
    assert set(document.selected_nodes()) == set(hidden.nodes)
    for mode in Mode:
        bert.canvas.legend.mode.setCurrentIndex(list(Mode).index(mode))
        bert.canvas.view.grab()


def test_nothing_to_fold_is_said(window: MainWindow) -> None:
    assert not window.commands["fold"].isEnabled()
    assert "No block repeats" in window.commands["fold"].toolTip()


def test_back_and_forward_through_selections(document: Document) -> None:
    for name in ("conv1", "relu1", "conv2"):
        document.select_names([name])
    assert document.can_go_back and not document.can_go_forward
    document.back()
    document.back()
    assert document.selected_nodes() == ["conv1"]
    document.forward()
    assert document.selected_nodes() == ["relu1"]
    document.select_names(["fc1"])
    assert not document.can_go_forward
    document.back()
    assert document.selected_nodes() == ["relu1"]


def test_makers_and_readers(window: MainWindow) -> None:
    document = window.document
    assert document is not None
    document.select_names(["relu1"])
    window.commands["consumers"].trigger()
    assert set(document.selected_nodes()) == {"conv2", "add1"}
    window.commands["producers"].trigger()
    assert document.selected_nodes() == ["relu1"]


def test_the_overview_comes_when_one_is_near_and_goes_where_it_is_clicked(window: MainWindow, qtbot: QtBot) -> None:
    view, overview = window.canvas.view, window.canvas.minimap
    assert not overview.isVisible()
    view.zoom_at(QPointF(view.viewport().rect().center()), 3.0)
    assert overview.isVisible()
    qtbot.mouseClick(overview, Qt.MouseButton.LeftButton, pos=QPoint(overview.width() // 2, overview.height() - 8))
    low = view.seen.center().y()
    qtbot.mouseClick(overview, Qt.MouseButton.LeftButton, pos=QPoint(overview.width() // 2, 8))
    assert view.seen.center().y() < low
    image = overview.grab().toImage()
    assert len({image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(image.height())}) > 3
    window.commands["fit"].trigger()
    assert not overview.isVisible()


def test_going_to_a_corner_shows_no_emptiness_beside_the_graph(make_window: Callable[..., MainWindow]) -> None:
    window = make_window("resnet50")
    document, view = window.document, window.canvas.view
    assert document is not None and view.item is not None
    document.select_region(document.plan.regions[0])
    window.zoom_to_selection()
    bounds, seen = view.item.boundingRect(), view.seen
    assert seen.left() >= bounds.left() - 2 and seen.top() >= bounds.top() - 2
    for name in document.plan.regions[0].nodes:
        assert seen.contains(view.item.rect_of(document.model.index[name]))


def test_the_node_table_follows_scattered_selections_and_plan_changes(window: MainWindow) -> None:
    document, table = window.document, window.nodes.table
    assert document is not None

    def rows() -> list[int]:
        return sorted(i.row() for i in table.selectionModel().selectedRows())

    names = [n.name for n in document.graph.nodes]
    document.select_names([names[i] for i in (0, 1, 3, 6, 7)])
    assert rows() == [0, 1, 3, 6, 7]
    document.select_region(document.plan.regions[0])
    window.commands["pin"].trigger()
    assert rows() == [0, 1], "a changed plan keeps the rows selected"
