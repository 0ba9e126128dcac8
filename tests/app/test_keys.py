"""The key of the colours in wide and narrow windows."""

from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from app.graph.item import Mode
from app.graph.keys import LINE, SWATCH
from app.window import MainWindow
from tests.app.conftest import WAIT_MS


@pytest.mark.parametrize("width", [760, 1000, 1900])
def test_no_word_of_the_key_is_cut_off(make_window: Callable[..., MainWindow], qtbot: QtBot, width: int) -> None:
    window = make_window("mlp")
    window.resize(width, 700)
    legend = window.canvas.legend
    keys = legend.keys
    for mode in range(legend.mode.count()):
        legend.mode.setCurrentIndex(mode)
        qtbot.waitUntil(lambda: keys.height() >= keys.heightForWidth(keys.width()), timeout=WAIT_MS)
        places = keys.places(keys.width())
        assert len(places) == len(keys.entries)
        metrics = keys.fontMetrics()
        for (_, text), at in zip(keys.entries, places, strict=True):
            assert at.x() + SWATCH + metrics.horizontalAdvance(text) <= keys.width() or at.x() == 0
            assert at.y() + LINE <= keys.height()
    assert keys.minimumSizeHint().width() == 0  # it never widens the window


def test_the_key_is_beside_its_mode_where_there_is_room_and_under_it_else(window: MainWindow, qtbot: QtBot) -> None:
    legend = window.canvas.legend
    legend.mode.setCurrentIndex(legend.mode.findData(Mode.STATE))
    window.resize(1900, 800)
    qtbot.waitUntil(lambda: legend.keys.y() < legend.mode.geometry().bottom(), timeout=WAIT_MS)
    window.resize(900, 800)
    qtbot.waitUntil(lambda: legend.keys.y() > legend.mode.geometry().bottom(), timeout=WAIT_MS)
    window.resize(1900, 800)
    qtbot.waitUntil(lambda: legend.keys.y() < legend.mode.geometry().bottom(), timeout=WAIT_MS)
    assert "queued" in legend.keys.accessibleName()
