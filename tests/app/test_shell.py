"""Tabs, projects, autosave, palette, welcome, layout and settings, as a user drives them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QFileDialog, QToolButton
from pytestqt.qtbot import QtBot

from app import project_control
from app.doctor import Doctor
from app.graph.item import Mode
from app.palette import Entry, Palette, matching
from app.settings import Settings
from app.settings_dialog import SettingsDialog
from app.shortcuts import ShortcutSheet
from app.window import MainWindow
from core.project import load_project
from tests.app.conftest import WAIT_MS


def split_first(window: MainWindow) -> None:
    assert window.document is not None
    window.document.select_region(window.document.plan.regions[0])
    window.commands["split"].trigger()


def open_beside(window: MainWindow, qtbot: QtBot, source: str) -> None:
    before = window.document
    window.open(source)
    qtbot.waitUntil(lambda: window.document is not before, timeout=WAIT_MS)


def test_each_model_has_its_tab_and_its_own_undo(window: MainWindow, qtbot: QtBot) -> None:
    first = window.document
    split_first(window)
    open_beside(window, qtbot, "mlp")
    second = window.document
    assert first is not None and second is not None
    assert window.documents.tabs.count() == 2
    assert window.documents.tabs.tabText(0) == "small *"
    assert window.regions.model.document is second
    assert not window.undo_action.isEnabled()
    window.documents.tabs.setCurrentIndex(0)
    assert window.document is first and window.regions.model.document is first
    window.undo_action.trigger()
    assert not first.edited and window.documents.tabs.tabText(0) == "small"
    second.select_region(second.plan.regions[0])
    assert window.details.document is first and "small" in window.details.text.toPlainText()


def test_an_open_model_is_shown_not_opened_twice(window: MainWindow, qtbot: QtBot, small_model: Path) -> None:
    first = window.document
    open_beside(window, qtbot, "mlp")
    window.open(str(small_model))
    assert window.document is first and window.documents.tabs.count() == 2


def test_closing_the_last_tab_shows_the_welcome_page(window: MainWindow, small_model: Path) -> None:
    window.commands["close_tab"].trigger()
    assert window.document is None
    assert window.pages.currentWidget() is window.welcome
    assert window.regions.model.rowCount() == 0
    assert not window.commands["export"].isEnabled()
    names = [b.text().split("    ")[0] for b in window.welcome.findChildren(QToolButton) if b.objectName() == "link"]
    assert names == [small_model.name]


def test_the_zoom_of_a_tab_is_there_when_one_comes_back(window: MainWindow, qtbot: QtBot) -> None:
    view = window.canvas.view
    view.zoom_at(QPointF(view.viewport().rect().center()), 1.7)
    zoom = view.zoom
    open_beside(window, qtbot, "mlp")
    assert view.zoom != pytest.approx(zoom)
    window.documents.tabs.setCurrentIndex(0)
    assert view.zoom == pytest.approx(zoom)


def test_a_project_keeps_plan_batch_and_view(
    make_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = make_window("mlp")
    split_first(window)
    document = window.document
    assert document is not None
    window.canvas.legend.mode.setCurrentIndex(list(Mode).index(Mode.TIME))
    path = tmp_path / "work"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, **k: (str(path), ""))
    window.commands["save_project"].trigger()
    assert not document.edited
    saved = path.with_suffix(".bolt")
    again = make_window(saved)
    assert again.document is not None
    assert again.document.plan == document.plan and not again.document.edited
    assert again.commands.plan.text() == "Plan: edited"
    assert again.canvas.legend.current is Mode.TIME
    assert set(again.document.selected_nodes()) == set(document.selected_nodes())
    assert load_project(saved).gpu == "h200"


def test_a_project_of_a_newer_version_is_refused_and_nothing_is_lost(window: MainWindow, tmp_path: Path) -> None:
    kept = window.document
    path = tmp_path / "new.bolt"
    path.write_text('{"format": "bolt-project", "version": 99}')
    window.open(str(path))
    assert "Update this program" in window.messages.text.text()
    assert window.document is kept


def test_edits_are_kept_and_restored_after_a_crash(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = make_window(small_model)
    split_first(crashed)
    plan = crashed.document.plan  # type: ignore[union-attr]
    crashed.projects.autosave()
    assert len(list(project_control.autosave_dir().iterdir())) == 1
    monkeypatch.setattr(project_control, "_alive", lambda pid: False)
    window = make_window()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "ended unexpectedly" in window.messages.text.text()
    window.messages.act.click()
    qtbot.waitUntil(lambda: window.document is not None, timeout=WAIT_MS)
    assert window.document is not None
    assert window.document.plan == plan and window.document.edited
    assert project_control.leftovers() == []


def test_a_window_that_closes_leaves_nothing_to_restore(window: MainWindow) -> None:
    split_first(window)
    window.projects.autosave()
    window.close()
    assert list(project_control.autosave_dir().iterdir()) == []


def test_the_palette_does_what_is_chosen(window: MainWindow, qtbot: QtBot) -> None:
    window.commands["palette"].trigger()
    palette = window.findChild(Palette)
    assert palette is not None
    qtbot.keyClicks(palette.text, "region r0")
    assert palette.shown[0].text == "Go to region r0"
    qtbot.keyClick(palette.text, Qt.Key.Key_Return)
    assert window.document is not None
    assert window.document.selected_nodes() == list(window.document.plan.regions[0].nodes)


def test_the_palette_puts_what_is_possible_first() -> None:
    entries = [Entry("Split region", list, reason="no"), Entry("Go to region", list), Entry("Region list", list)]
    assert [e.text for e in matching(entries, "region")] == ["Region list", "Go to region", "Split region"]
    assert matching(entries, "nothing of the kind") == []


def test_the_sheet_names_the_keys(window: MainWindow) -> None:
    window.commands["shortcuts"].trigger()
    sheet = window.findChild(ShortcutSheet)
    assert sheet is not None
    text = sheet.text.toPlainText()
    assert "Ctrl+K" in text and "fit the whole graph" in text
    sheet.reject()


def test_the_doctor_lists_what_is_here(window: MainWindow, qtbot: QtBot) -> None:
    window.commands["doctor"].trigger()
    doctor = window.findChild(Doctor)
    assert doctor is not None
    qtbot.waitUntil(lambda: doctor.verdict.text() != "Looking", timeout=WAIT_MS)
    assert {"nvcc", "CUTLASS", "disk"} <= {c.name for c in doctor.checks}
    assert "nvcc" in doctor.text.toPlainText()
    doctor.reject()


def test_settings_stay(window: MainWindow) -> None:
    window.commands["settings"].trigger()
    dialog = window.findChild(SettingsDialog)
    assert dialog is not None
    dialog.speed.setCurrentIndex(dialog.speed.findText("32x"))
    dialog.theme.setCurrentIndex(2)
    dialog.autosave.setChecked(False)
    dialog.scheduler.setText(" 127.0.0.1:8786 ")
    dialog.accept()
    assert window.theme.name == "dark"
    kept = Settings()
    assert (kept.speed, kept.theme, kept.autosave, kept.budget_minutes) == (32.0, "dark", False, None)
    assert kept.scheduler == "127.0.0.1:8786"


def test_nonsense_in_the_settings_is_the_default() -> None:
    store = Settings().store
    store.setValue("theme", "pink")
    store.setValue("replay/speed", "fast")
    assert (Settings().theme, Settings().speed) == ("system", 8.0)


def test_a_hidden_panel_comes_back_with_the_layout(make_window: Callable[..., MainWindow]) -> None:
    window = make_window()
    run = window.docks[2]
    run.hide()
    window.close()
    again = make_window()
    assert not again.docks[2].isVisible()
    again.commands["reset_layout"].trigger()
    assert again.docks[2].isVisible()


def test_several_dropped_files_open_one_after_another(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, tmp_path: Path
) -> None:
    window = make_window()
    other = tmp_path / "other.onnx"
    other.write_bytes(small_model.read_bytes())
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(p)) for p in (small_model, other)])
    drop = QDropEvent(
        QPointF(200, 200), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier, QEvent.Type.Drop,
    )  # fmt: skip
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: window.documents.tabs.count() == 2, timeout=WAIT_MS)
    assert [Path(d.session.source).name for d in window.documents.all] == ["small.onnx", "other.onnx"]


def test_lists_that_have_nothing_to_show_say_what_to_do(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot
) -> None:
    window = make_window()
    for panel in (window.regions, window.nodes):
        assert "Open a model" in panel.empty.text() and not panel.empty.isHidden()
    open_beside(window, qtbot, str(small_model))
    for panel in (window.regions, window.nodes):
        assert panel.empty.isHidden()
        panel.filter.setText("nothing is called so")
        assert "all of these words" in panel.empty.text() and not panel.empty.isHidden()
        panel.filter.clear()
        assert panel.empty.isHidden()
