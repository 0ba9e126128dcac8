"""Motion keeps the eye with it, ends where it should, can be interrupted, stays away where it is not wanted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.graph import motion
from app.graph.motion import held_inside, place_of
from app.settings_dialog import SettingsDialog
from app.window import MainWindow
from tests.app.conftest import WAIT_MS
from tests.app.test_window import at, click


@pytest.fixture
def moving(window: MainWindow) -> MainWindow:
    window.canvas.view.motion.wanted = True
    return window


def turn(window: MainWindow, place: QPointF, notches: int, pixels: int = 0) -> None:
    view = window.canvas.view
    event = QWheelEvent(
        place, view.mapToGlobal(place), QPoint(0, pixels), QPoint(0, 120 * notches), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(view.viewport(), event)


def test_notches_add_up_while_the_view_still_moves(moving: MainWindow, qtbot: QtBot) -> None:
    view, place = moving.canvas.view, QPointF(at(moving, "conv1"))
    zoom, under = view.zoom, view.mapToScene(place.toPoint())
    turn(moving, place, 1)
    assert view.motion.running and view.zoom < zoom * 1.1
    turn(moving, place, 1)
    assert view.motion.target_zoom == pytest.approx(zoom * 1.15**2, rel=0.02)
    qtbot.waitUntil(lambda: not view.motion.running)
    assert view.zoom == pytest.approx(zoom * 1.15**2, rel=0.02)
    after = view.mapToScene(place.toPoint())
    assert abs(after.x() - under.x()) < 4 and abs(after.y() - under.y()) < 4


def test_a_press_stops_it_where_it_is(moving: MainWindow, qtbot: QtBot) -> None:
    view, place = moving.canvas.view, QPointF(at(moving, "conv1"))
    turn(moving, place, 4)
    wanted = view.motion.target_zoom
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(5, 5))
    assert not view.motion.running and view.zoom < wanted
    qtbot.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(5, 5))


def test_fitting_travels_and_ends_fitted(moving: MainWindow, qtbot: QtBot) -> None:
    view = moving.canvas.view
    fitted = view.zoom
    view.zoom_at(QPointF(50, 50), 2.0)
    qtbot.keyClick(view, Qt.Key.Key_F)
    assert view.motion.running and view.place is None
    qtbot.waitUntil(lambda: not view.motion.running)
    assert view.zoom == pytest.approx(fitted)
    click(moving, qtbot, "fc1")


def test_a_touchpad_moves_by_itself(moving: MainWindow) -> None:
    view = moving.canvas.view
    zoom = view.zoom
    turn(moving, QPointF(100, 100), 1, pixels=15)
    assert not view.motion.running and view.zoom == pytest.approx(zoom * 1.15)


def test_no_motion_where_the_setting_or_the_system_says_so(moving: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    view = moving.canvas.view
    for asked in ("setting", "system"):
        zoom = view.zoom
        view.motion.wanted = asked != "setting"
        with monkeypatch.context() as patch:
            if asked == "system":
                patch.setattr(motion, "system_wants_motion", lambda: False)
            turn(moving, QPointF(100, 100), 1)
        assert not view.motion.running and view.zoom == pytest.approx(zoom * 1.15)


@pytest.mark.parametrize(
    "desktop, answer, moves",
    [("ubuntu:GNOME", "false", False), ("GNOME", "true", True), ("KDE", "false", True), ("GNOME", "", True)],
)
def test_gnome_is_asked_for_reduced_motion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, desktop: str, answer: str, moves: bool
) -> None:
    asked = tmp_path / "gsettings"
    asked.write_text(f"#!/bin/sh\necho {answer}\n")
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CURRENT_DESKTOP", desktop)
    assert motion.desktop_wants_motion() is moves
    asked.unlink()
    assert motion.desktop_wants_motion()


def test_a_desktop_without_motion_holds_whatever_the_setting(
    make_window: Callable[..., MainWindow], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.view_control.desktop_wants_motion", lambda: False)
    window = make_window()
    window.canvas.view.motion.wanted = True
    qtbot.waitUntil(lambda: not window.canvas.view.motion.wanted, timeout=WAIT_MS)
    window.views.open_settings()
    (dialog,) = window.findChildren(SettingsDialog)
    dialog.accept()
    assert window.settings.motion and not window.canvas.view.motion.wanted


def test_an_area_fills_the_view_and_the_view_stays_over_the_graph() -> None:
    zoom, centre = place_of(QRectF(0, 0, 1000, 100), QRect(0, 0, 524, 524))
    assert zoom == 0.5 and centre == QPointF(500, 50)
    assert place_of(QRectF(0, 0, 10, 10), QRect(0, 0, 500, 500))[0] == 1.0
    port, bounds = QRectF(0, 0, 100, 100), QRectF(0, 0, 1000, 80)
    assert held_inside(1.0, QPointF(0, 0), bounds, port) == QPointF(50, 40)
