"""Editing regions and keeping plans as a user does: keys, menus, the palette, the project, and the comparison."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QInputDialog, QMenu
from pytestqt.qtbot import QtBot

from app.panels.regions import Role
from app.plan_compare import PlanCompare
from app.plan_figures import AS_IT_STANDS, AUTOMATIC
from app.shortcuts import sheet_html
from app.window import MainWindow
from core.project import load_project
from templates.types import Residence
from tests.app import models, simulated
from tests.app.conftest import WAIT_MS
from tests.app.test_window import SHIFT, click, selected

CTRL, KEY = Qt.KeyboardModifier.ControlModifier, Qt.Key
PLAN_EDITS = ("fuse", "split", "pin", "forbid", "allow", "rf", "smem", "anywhere", "reset")


@pytest.fixture
def pair(make_window: Callable[..., MainWindow], tmp_path: Path) -> MainWindow:
    """fc1 - relu1 - fc2, aimed at an A100."""
    window = make_window(models.write_pair(tmp_path / "pair.onnx"))
    window.tuning.choose_gpu("a100")
    return window


def press(window: MainWindow, qtbot: QtBot, key: Qt.Key, modifier: Qt.KeyboardModifier = CTRL) -> None:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    qtbot.keyClick(window.canvas.view, key, modifier)


def region(window: MainWindow, node: str):  # type: ignore[no-untyped-def]
    assert window.document is not None
    return window.document.plan.region_of(node)


def named(monkeypatch: pytest.MonkeyPatch, name: str, accepted: bool = True) -> None:
    monkeypatch.setattr(QInputDialog, "getText", lambda *a, **k: (name, accepted))


def menu_of(window: MainWindow) -> QMenu:
    window._context_menu(QPoint(40, 40))
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    return menu


def test_every_edit_by_its_keys_and_undone(pair: MainWindow, qtbot: QtBot) -> None:
    document = pair.document
    assert document is not None
    click(pair, qtbot, "fc1")
    for node in ("relu1", "fc2"):
        click(pair, qtbot, node, SHIFT)
    press(pair, qtbot, KEY.Key_G)
    assert region(pair, "fc1").nodes == ("fc1", "relu1", "fc2")
    press(pair, qtbot, KEY.Key_2)
    assert region(pair, "fc1").residence is Residence.SMEM and pair.commands["smem"].isChecked()
    press(pair, qtbot, KEY.Key_1)
    assert region(pair, "fc1").residence is Residence.RF and not pair.commands["smem"].isChecked()
    press(pair, qtbot, KEY.Key_3)
    assert region(pair, "fc1").residence is None
    press(pair, qtbot, KEY.Key_P)
    assert region(pair, "fc1").pinned and pair.commands["pin"].text() == "Unpin region"
    assert not pair.commands["split"].isEnabled() and "unpin" in pair.commands["split"].toolTip()
    press(pair, qtbot, KEY.Key_A, CTRL | SHIFT)
    assert region(pair, "fc1").pinned, "reset keeps what is pinned"
    press(pair, qtbot, KEY.Key_P)
    press(pair, qtbot, KEY.Key_F, CTRL | SHIFT)
    assert region(pair, "fc1").nodes == ("fc1", "relu1")
    assert "forbids fusing" in pair.commands["fuse"].toolTip()
    press(pair, qtbot, KEY.Key_L, CTRL | SHIFT)
    assert document.plan == document.automatic
    assert document.undo.count() == 8
    for _ in range(8):
        press(pair, qtbot, KEY.Key_Z)
    assert document.plan == document.automatic and not document.edited


def test_the_same_residence_again_stays_ticked(pair: MainWindow, qtbot: QtBot) -> None:
    document = pair.document
    assert document is not None
    document.select_names(["fc1", "relu1", "fc2"])
    pair.commands["fuse"].trigger()
    steps = document.undo.count()
    pair.commands["anywhere"].trigger()
    assert pair.commands["anywhere"].isChecked() and document.undo.count() == steps


def test_edits_are_in_menus_palette_and_help(pair: MainWindow, qtbot: QtBot) -> None:
    a = pair.commands
    texts = {a[name].text() for name in PLAN_EDITS}
    bar = next(m for m in pair.menuBar().actions() if m.text() == "&Plan").menu()
    assert isinstance(bar, QMenu) and texts <= {x.text() for x in bar.actions()}
    assert texts <= {e.text for e in pair.views.entries()}
    keys = [a[name].shortcut().toString() for name in PLAN_EDITS]
    assert all(keys)
    sheet = sheet_html([*a.by_name.values()])
    assert all(f"<b>{k}</b>" in sheet for k in keys) and "lasso" in sheet
    given = [x.shortcut().toString() for x in (*a.by_name.values(), pair.undo_action, pair.redo_action)]
    assert len({k for k in given if k}) == len([k for k in given if k]), "no two actions share keys"
    click(pair, qtbot, "fc1")
    menu = menu_of(pair)
    assert a["pin"] in menu.actions() and a["rf"] not in menu.actions(), "no residence without a pair"
    menu.close()
    pair.document.select_names(["fc1", "relu1", "fc2"])  # type: ignore[union-attr]
    a["fuse"].trigger()
    menu = menu_of(pair)
    assert {a["rf"], a["smem"], a["anywhere"]} <= set(menu.actions())
    menu.close()


def test_the_list_of_regions_shows_and_finds_what_was_decided(window: MainWindow, qtbot: QtBot) -> None:
    panel = window.regions
    index = panel.model.index(0)
    panel.list.setCurrentIndex(index)
    qtbot.mouseClick(panel.list.viewport(), Qt.MouseButton.LeftButton, pos=panel.list.visualRect(index).center())
    panel.list.customContextMenuRequested.emit(panel.list.visualRect(index).center())
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    menu.close()
    window.commands["pin"].trigger()
    assert panel.model.marks(panel.model.shown[0]) == ["pin"]
    assert str(panel.model.index(0).data()).endswith(", pinned")
    assert "Pinned" in panel.model.index(0).data(Qt.ItemDataRole.ToolTipRole)
    window.document.select_names(["conv2", "add1"])  # type: ignore[union-attr]
    window.commands["forbid"].trigger()
    panel.filter.setText("forbidden")
    assert {n for r in panel.model.shown for n in r.nodes} >= {"conv2", "add1"}
    assert "Forbidden: conv2 + add1" in panel.model.index(0).data(Qt.ItemDataRole.ToolTipRole)
    panel.filter.setText("pinned")
    assert [panel.model.index(i).data(Role.REGION).id for i in range(panel.model.rowCount())] == ["r0"]
    panel.grab()


def test_plans_by_name_through_the_menu_and_the_project(
    window: MainWindow, make_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    document, a = window.document, window.commands
    assert document is not None
    click(window, qtbot, "conv1")
    a["split"].trigger()
    named(monkeypatch, "  conv   apart ")
    a["keep_plan"].trigger()
    assert a.plan.text() == "Plan: conv apart"
    a.plan_menu.aboutToShow.emit()
    listed = {x.text(): x for x in a.plan_menu.actions()[:2]}
    assert list(listed) == ["Automatic plan", "conv apart"] and listed["conv apart"].isChecked()
    listed["Automatic plan"].trigger()
    assert document.plan == document.automatic
    assert "Switch to plan conv apart" in {e.text for e in window.views.entries()}
    window.plans.kept.switch("conv apart")
    named(monkeypatch, "automatic")
    a["rename_plan"].trigger()
    assert window.messages.isVisible() and "Choose another" in window.messages.text.text()
    named(monkeypatch, "mine")
    a["rename_plan"].trigger()
    assert a.plan.text() == "Plan: mine"
    path = tmp_path / "p.bolt"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *x, **k: (str(path), ""))
    a["save_project"].trigger()
    assert not document.edited
    assert list(load_project(path).kept) == ["mine"] and load_project(path).plan_name == "mine"
    window.close()
    again = make_window(path)
    assert again.document is not None
    assert again.document.plan == document.plan and again.document.plan_title == "mine"
    again.commands["delete_plan"].trigger()
    assert again.document.plan_title == "edited" and again.document.plan == document.plan
    again.undo_action.trigger()
    assert again.document.plan_title == "mine"


def test_another_batch_keeps_plans_and_that_they_are_unsaved(window: MainWindow, qtbot: QtBot) -> None:
    first = window.document
    assert first is not None
    click(window, qtbot, "conv1")
    window.commands["pin"].trigger()
    window.documents.reopen(4, first.session.dtype)
    qtbot.waitUntil(lambda: window.document is not first, timeout=WAIT_MS)
    assert window.document is not None and window.document.session.batch == 4
    assert window.document.plan.region_of("conv1").pinned and window.document.edited  # type: ignore[union-attr]


def compared(window: MainWindow) -> PlanCompare:
    window.commands["compare_plans"].trigger()
    dialog = window.plans.kept.comparison
    assert dialog is not None and dialog.isVisible()
    return dialog


def test_two_plans_compared_on_measured_time(pair: MainWindow, qtbot: QtBot) -> None:
    document = pair.document
    assert document is not None
    assert not pair.commands["compare_plans"].isEnabled()
    assert "one plan only" in pair.commands["compare_plans"].toolTip()
    document.start_run(replayed=True)
    document.apply(list(simulated.events(document.plan)))
    document.select_names(["fc1", "relu1", "fc2"])
    pair.commands["fuse"].trigger()
    dialog = compared(pair)
    assert (dialog.a.currentText(), dialog.b.currentText()) == (AUTOMATIC, AS_IT_STANDS)
    assert dialog.table.rowCount() == 1
    qtbot.waitUntil(lambda: "estimated" in dialog.table.item(0, 3).text(), timeout=WAIT_MS)
    assert dialog.table.item(0, 4).text() == "not measured" and "No total" in dialog.verdict.text()
    said = dialog.sums.accessibleName()
    assert " us replayed" in said and "estimated" in said and "us measured" not in said
    document.start_run(replayed=True)
    document.apply(list(simulated.events(document.plan, seed=3)))
    assert dialog.table.item(0, 4).text().endswith(" us")
    assert "Plan B" in dialog.verdict.text() and "replayed in an earlier run" in dialog.verdict.text()
    dialog.table.selectRow(0)
    assert selected(pair) == {"fc1", "relu1", "fc2"}
    dialog.copy.click()
    assert QGuiApplication.clipboard().text().startswith("Regions in A\tTime in A\tRegions in B\t")
    pair.undo_action.trigger()
    assert dialog.table.rowCount() == 0 and dialog.verdict.text() == "Both plans run the same regions."
    dialog.grab()
    pair.documents.close_current()
    assert not dialog.isVisible()
