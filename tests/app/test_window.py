"""The window as a user drives it: open, look, select, edit."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QDropEvent, QGuiApplication, QHelpEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QToolTip
from pytestqt.qtbot import QtBot

from app import theme
from app.graph.describe import tooltip
from app.graph.item import Mode
from app.window import MainWindow
from core.importer.samples import sample_names
from tests.app import models
from tests.app.conftest import WAIT_MS

LEFT = Qt.MouseButton.LeftButton
SHIFT = Qt.KeyboardModifier.ShiftModifier


def at(window: MainWindow, node: str) -> QPoint:
    """The middle of a node, in the viewport."""
    view = window.canvas.view
    assert view.item is not None and window.document is not None
    return view.mapFromScene(view.item.rect_of(window.document.model.index[node]).center())


def click(
    window: MainWindow, qtbot: QtBot, node: str, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    qtbot.mouseClick(window.canvas.view.viewport(), LEFT, modifier, at(window, node))


def selected(window: MainWindow) -> set[str]:
    assert window.document is not None
    return set(window.document.selected_nodes())


def test_an_empty_window_says_what_to_do(make_window: Callable[..., MainWindow]) -> None:
    window = make_window()
    assert window.pages.currentWidget() is window.welcome
    assert window.welcome.samples.count() == len(sample_names())
    assert not window.commands["tune"].isEnabled()
    assert not window.commands["export"].isEnabled()
    assert "Open a model first" in window.commands["fuse"].toolTip()


def test_opening_fills_every_panel(window: MainWindow) -> None:
    assert window.document is not None
    assert window.windowTitle() == "small - Bolt Workbench"
    assert window.regions.model.rowCount() == len(window.document.plan.regions)
    assert window.nodes.model.rowCount() == len(window.document.graph.nodes)
    assert not window.canvas.note.isVisible()
    assert window.commands["tune"].isEnabled()


def test_a_built_in_sample_opens_by_name_and_reopens_at_another_batch(
    make_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = make_window("mlp")
    first = window.document
    box = window.commands.batch
    box.setCurrentText("8")
    box.activated.emit(box.currentIndex())
    qtbot.waitUntil(lambda: window.document is not first, timeout=WAIT_MS)
    assert window.document is not None
    assert window.document.session.batch == 8
    assert box.currentText() == "8"


def test_click_shift_click_and_escape(window: MainWindow, qtbot: QtBot) -> None:
    click(window, qtbot, "conv1")
    assert selected(window) == {"conv1"}
    click(window, qtbot, "conv2", SHIFT)
    assert selected(window) == {"conv1", "conv2"}
    click(window, qtbot, "conv1", SHIFT)
    assert selected(window) == {"conv2"}
    qtbot.keyClick(window.canvas.view, Qt.Key.Key_Escape)
    assert selected(window) == set()


def test_a_frame_selects_what_it_touches(window: MainWindow, qtbot: QtBot) -> None:
    port = window.canvas.view.viewport()
    first, second = at(window, "conv1"), at(window, "relu1")
    corner = QPoint(min(first.x(), second.x()) - 60, first.y() - 4)
    qtbot.mousePress(port, LEFT, pos=corner)
    qtbot.mouseMove(port, QPoint(first.x(), first.y() + 3))
    qtbot.mouseMove(port, QPoint(max(first.x(), second.x()) + 4, second.y() + 2))
    qtbot.mouseRelease(port, LEFT, pos=QPoint(max(first.x(), second.x()) + 4, second.y() + 2))
    assert selected(window) == {"conv1", "relu1"}


def test_hovering_tells_region_and_reason(window: MainWindow, qtbot: QtBot) -> None:
    view = window.canvas.view
    place = at(window, "conv2")
    qtbot.mouseMove(view.viewport(), place)
    assert view.item is not None and window.document is not None
    assert view.item.hovered == window.document.model.index["conv2"]
    QApplication.sendEvent(view.viewport(), QHelpEvent(QEvent.Type.ToolTip, place, view.viewport().mapToGlobal(place)))
    assert "conv + bias + add + relu" in QToolTip.text()
    assert "conv with epilogue" in QToolTip.text()
    QToolTip.hideText()
    qtbot.waitUntil(lambda: not QToolTip.isVisible())


def test_the_wheel_zooms_at_the_cursor(window: MainWindow) -> None:
    view = window.canvas.view
    place = QPointF(at(window, "conv1"))
    before = view.mapToScene(place.toPoint())
    zoom = view.zoom
    turn = QWheelEvent(
        place, view.mapToGlobal(place), QPoint(), QPoint(0, 240), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(view.viewport(), turn)
    after = view.mapToScene(place.toPoint())
    assert view.zoom > zoom * 1.2
    assert abs(before.x() - after.x()) < 3 and abs(before.y() - after.y()) < 3
    view.fit()
    assert view.zoom == pytest.approx(zoom)


def test_middle_drag_and_space_drag_pan(window: MainWindow, qtbot: QtBot) -> None:
    view = window.canvas.view
    port = view.viewport()
    for button, space in ((Qt.MouseButton.MiddleButton, False), (LEFT, True)):
        before = view.mapToScene(QPoint(0, 0))
        if space:
            qtbot.keyPress(view, Qt.Key.Key_Space)
        qtbot.mousePress(port, button, pos=QPoint(300, 200))
        qtbot.mouseMove(port, QPoint(340, 230))
        qtbot.mouseRelease(port, button, pos=QPoint(340, 230))
        if space:
            qtbot.keyRelease(view, Qt.Key.Key_Space)
        after = view.mapToScene(QPoint(0, 0))
        assert after.x() < before.x() and after.y() < before.y()
    assert selected(window) == set()


def test_list_table_and_canvas_select_together(window: MainWindow, qtbot: QtBot) -> None:
    assert window.document is not None
    window.regions.list.setCurrentIndex(window.regions.model.index(0))
    assert selected(window) == set(window.document.plan.regions[0].nodes)
    rows = {i.row() for i in window.nodes.table.selectionModel().selectedRows()}
    assert {window.document.model.boxes[window.nodes.model.shown[r]].name for r in rows} == selected(window)
    click(window, qtbot, "fc1")
    region = window.document.selected_region()
    assert region is not None
    assert window.regions.list.currentIndex().row() == window.document.plan.regions.index(region)
    window.nodes.table.selectRow(0)
    assert selected(window) == {window.document.model.boxes[window.nodes.model.shown[0]].name}


def test_filters_narrow_the_lists(window: MainWindow) -> None:
    window.regions.filter.setText("conv relu")
    assert 0 < window.regions.model.rowCount() < len(window.document.plan.regions)  # type: ignore[union-attr]
    window.nodes.filter.setText("relu")
    assert window.nodes.model.rowCount() == 2


def test_the_arrow_keys_follow_the_edges(window: MainWindow, qtbot: QtBot) -> None:
    click(window, qtbot, "conv1")
    qtbot.keyClick(window.canvas.view, Qt.Key.Key_Down)
    assert selected(window) == {"relu1"}
    qtbot.keyClick(window.canvas.view, Qt.Key.Key_Up)
    assert selected(window) == {"conv1"}


def test_find_goes_from_hit_to_hit(window: MainWindow, qtbot: QtBot) -> None:
    window.commands["find"].trigger()
    finder = window.canvas.finder
    qtbot.keyClicks(finder.text, "conv")
    assert finder.count.text() == "2 found"
    assert window.canvas.view.item is not None
    assert len(window.canvas.view.item.marked) == 2
    qtbot.keyClick(finder.text, Qt.Key.Key_Return)
    first = selected(window)
    qtbot.keyClick(finder.text, Qt.Key.Key_Return)
    assert first | selected(window) == {"conv1", "conv2"}
    assert finder.count.text() == "2 of 2"
    qtbot.keyClick(finder.text, Qt.Key.Key_Escape)
    assert not finder.isVisible()
    assert window.canvas.view.item.marked == set()


def test_details_follow_the_selection(window: MainWindow, qtbot: QtBot) -> None:
    assert "9, 5 of them in fused regions" in window.details.text.toPlainText()
    click(window, qtbot, "conv2")
    text = window.details.text.toPlainText()
    assert "conv + bias + add + relu" in text
    assert "f16 2 x 16 x 14 x 14" in text or "f32 2 x 16 x 14 x 14" in text
    assert "Not measured. Press Tune." in text


def test_split_fuse_and_undo_by_the_actions(window: MainWindow, qtbot: QtBot) -> None:
    assert window.document is not None
    original = window.document.plan
    click(window, qtbot, "conv1")
    window.commands["split"].trigger()
    assert window.document.plan.region_of("conv1").nodes == ("conv1",)  # type: ignore[union-attr]
    assert window.commands.plan.text() == "Plan: edited"
    assert window.undo_action.text().startswith("Undo split")
    click(window, qtbot, "conv1")
    click(window, qtbot, "relu1", SHIFT)
    assert window.commands["fuse"].isEnabled()
    window.commands["fuse"].trigger()
    assert window.document.plan.region_of("conv1").nodes == ("conv1", "relu1")  # type: ignore[union-attr]
    window.undo_action.trigger()
    window.undo_action.trigger()
    assert window.document.plan == original
    assert window.commands.plan.text() == "Plan: automatic"


def test_a_refused_fusion_is_grey_with_its_reason_and_the_node_marked(window: MainWindow, qtbot: QtBot) -> None:
    click(window, qtbot, "conv1")
    click(window, qtbot, "pool1", SHIFT)
    action = window.commands["fuse"]
    assert not action.isEnabled()
    assert len(action.toolTip()) > 10
    assert "can't be one region" in window.details.text.toPlainText()
    window._context_menu(QPoint(50, 50))
    assert window.canvas.view.item is not None
    assert window.canvas.view.item.offending >= 0
    menu = QApplication.activePopupWidget()
    assert menu is not None
    menu.close()


def test_copying_names(window: MainWindow, qtbot: QtBot) -> None:
    click(window, qtbot, "conv1")
    window.commands["copy"].trigger()
    assert QGuiApplication.clipboard().text() == "conv1"


def test_a_dropped_file_is_opened(make_window: Callable[..., MainWindow], qtbot: QtBot, small_model: Path) -> None:
    window = make_window()
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(small_model))])
    drop = QDropEvent(
        QPointF(10, 10), Qt.DropAction.CopyAction, data, LEFT, Qt.KeyboardModifier.NoModifier, QEvent.Type.Drop
    )
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: window.document is not None, timeout=WAIT_MS)


@pytest.mark.parametrize("content", [b"", b"this is no model", b"\x08\x08\x12"])
def test_a_bad_file_is_told_with_its_name_and_can_be_copied(
    make_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path, content: bytes
) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(content)
    window = make_window()
    window.open(str(bad))
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert window.messages.level == "error"
    assert "bad.onnx" in window.messages.text.text()
    assert "Traceback" not in window.messages.text.text()
    window.messages.copy.click()
    assert QGuiApplication.clipboard().text() == window.messages.text.text()
    window.messages.close_button.click()
    assert not window.messages.isVisible()


def test_a_missing_file_keeps_what_is_open(window: MainWindow, qtbot: QtBot) -> None:
    kept = window.document
    window.open("/nowhere/missing.onnx")
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "missing.onnx" in window.messages.text.text()
    assert window.document is kept


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["light", "dark"])
def test_every_colour_mode_paints_in_both_themes(window: MainWindow, mode: Mode, name: str) -> None:
    window.set_theme(theme.theme(name))
    legend = window.canvas.legend
    legend.mode.setCurrentIndex(legend.mode.findText(mode.value))
    assert window.canvas.view.item is not None
    assert window.canvas.view.item.mode is mode
    image = window.canvas.view.grab().toImage()
    colors = {image.pixelColor(x, y).name() for x in range(0, image.width(), 7) for y in range(0, image.height(), 7)}
    assert theme.theme(name).hex("canvas") in colors
    assert len(colors) > 3


def test_zoom_levels_all_paint(window: MainWindow) -> None:
    """Far, middle and near draw different things, and each draws something at the selection."""
    view = window.canvas.view
    assert window.document is not None
    window.document.select_region(window.document.plan.regions[0])
    pictures = []
    for scale in (0.1, 0.3, 1.0):
        view.zoom_at(QPointF(view.viewport().rect().center()), scale / view.zoom)
        view.centerOn(view.mapToScene(at(window, "conv1")))
        image = view.grab().toImage()
        middle = image.copy(image.rect().center().x() - 100, image.rect().center().y() - 20, 200, 40)
        colors = {middle.pixelColor(x, y).name() for x in range(200) for y in range(40)}
        assert theme.theme("light").hex("kind.conv") in colors
        pictures.append(middle)
    assert pictures[0] != pictures[1] and pictures[1] != pictures[2]


def test_a_plan_is_saved_and_loaded_as_one_undo_step(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, file = window.document, str(tmp_path / "plan.json")
    assert document is not None
    original = document.plan
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, **k: (file, ""))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *a, **k: (file, ""))
    click(window, qtbot, "conv1")
    window.commands["split"].trigger()
    split = document.plan
    window.commands["save_plan"].trigger()
    assert not document.edited
    window.undo_action.trigger()
    assert document.plan == original
    window.commands["load_plan"].trigger()
    qtbot.waitUntil(lambda: document.plan == split, timeout=WAIT_MS)
    window.undo_action.trigger()
    assert document.plan == original


def test_a_plan_that_is_none_is_refused_with_its_file(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "odd.json"
    file.write_text("[]")
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *a, **k: (str(file), ""))
    window.commands["load_plan"].trigger()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "odd.json" in window.messages.text.text()


def test_netron_gets_the_open_file(
    window: MainWindow, qtbot: QtBot, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: urls.append(url.toString()) or True)
    window.commands["netron"].trigger()
    qtbot.waitUntil(lambda: bool(urls), timeout=WAIT_MS)
    assert window.netron.server is not None
    assert urls == [window.netron.server.url]
    assert window.netron.server.answer("model/small.onnx") == (small_model.read_bytes(), "application/octet-stream")


def test_names_made_of_markup_and_line_breaks_stay_text(
    make_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path
) -> None:
    nasty = '<img src=x>\n"; rm -rf'
    window = make_window(models.write_small(tmp_path / "n.onnx", {"conv1": nasty}))
    document = window.document
    assert document is not None
    box = next(i for i, b in enumerate(document.model.boxes) if "img" in b.name)
    document.select([box])
    assert "<img src=x>" in window.details.text.toPlainText()
    assert "&lt;img" in tooltip(document, box)
    assert "<img" not in tooltip(document, box)
    assert "\n" not in window.nodes.model.index(0, 1).data()
    assert "<img" not in str(window.nodes.model.index(0, 1).data(Qt.ItemDataRole.ToolTipRole))
    window.grab()
