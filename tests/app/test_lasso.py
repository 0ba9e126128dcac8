"""The lasso: what a line encloses, and drawing it with the mouse."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QPolygonF
from pytestqt.qtbot import QtBot

from app.graph.lasso import enclosed
from app.window import MainWindow
from tests.app.test_window import LEFT, SHIFT, at, click, selected

ALT = Qt.KeyboardModifier.AltModifier
coordinate = st.integers(-20, 20)
# Corners on whole numbers and points between them: no point lies on the line, where either answer would do.
corners = st.lists(st.tuples(coordinate, coordinate).map(lambda p: QPointF(*p)), min_size=3, max_size=12)


@given(corners, st.lists(st.tuples(coordinate, coordinate), max_size=40))
def test_enclosed_is_what_qt_says(line: list[QPointF], places: list[tuple[int, int]]) -> None:
    x = np.asarray([a + 0.31 for a, _ in places], dtype=float)
    y = np.asarray([b + 0.47 for _, b in places], dtype=float)
    polygon = QPolygonF(line)
    wanted = [i for i in range(len(places)) if polygon.containsPoint(QPointF(x[i], y[i]), Qt.FillRule.OddEvenFill)]
    assert enclosed(x, y, line).tolist() == wanted


def draw(window: MainWindow, qtbot: QtBot, places: list[QPoint], modifier: Qt.KeyboardModifier) -> None:
    port = window.canvas.view.viewport()
    qtbot.mousePress(port, LEFT, modifier, places[0])
    for place in places[1:]:
        qtbot.mouseMove(port, place)
    qtbot.mouseRelease(port, LEFT, modifier, places[-1])


def round_(window: MainWindow, *nodes: str, by: int = 18) -> list[QPoint]:
    """The corners of a line round nodes, every one of them far enough from the last to count."""
    middles = [at(window, n) for n in nodes]
    left, right = min(m.x() for m in middles) - by, max(m.x() for m in middles) + by
    top, bottom = min(m.y() for m in middles) - 6, max(m.y() for m in middles) + 6
    return [QPoint(left, top), QPoint(right, top), QPoint(right, bottom), QPoint(left, bottom)]


def test_alt_and_drag_selects_what_the_line_encloses(window: MainWindow, qtbot: QtBot) -> None:
    draw(window, qtbot, round_(window, "conv1", "relu1"), ALT)
    assert selected(window) == {"conv1", "relu1"}
    assert not window.canvas.view.lasso.isVisible()
    draw(window, qtbot, round_(window, "fc1"), ALT | SHIFT)
    assert selected(window) == {"conv1", "relu1", "fc1"}
    draw(window, qtbot, round_(window, "conv2"), ALT)
    assert selected(window) == {"conv2"}


def test_the_tool_makes_every_drag_a_lasso_until_it_is_put_away(window: MainWindow, qtbot: QtBot) -> None:
    view, tool = window.canvas.view, window.commands["lasso"]
    qtbot.keyClick(view, Qt.Key.Key_L)
    assert tool.isChecked() and view.viewport().cursor().shape() is Qt.CursorShape.CrossCursor
    draw(window, qtbot, round_(window, "conv1"), Qt.KeyboardModifier.NoModifier)
    assert selected(window) == {"conv1"}
    click(window, qtbot, "relu1")
    assert selected(window) == {"relu1"}, "a click is a click, also with the lasso in hand"
    qtbot.keyClick(view, Qt.Key.Key_Escape)
    assert not tool.isChecked() and selected(window) == set()


def test_escape_drops_the_line_that_is_drawn(window: MainWindow, qtbot: QtBot) -> None:
    click(window, qtbot, "fc1")
    view, places = window.canvas.view, round_(window, "conv1", "relu1")
    qtbot.mousePress(view.viewport(), LEFT, ALT, places[0])
    for place in places[1:]:
        qtbot.mouseMove(view.viewport(), place)
    assert view.lasso.isVisible() and len(view.lasso.points) == 4
    view.grab()
    qtbot.keyClick(view, Qt.Key.Key_Escape)
    qtbot.mouseRelease(view.viewport(), LEFT, ALT, places[-1])
    assert not view.lasso.isVisible() and selected(window) == {"fc1"}
