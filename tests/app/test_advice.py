"""What the advice panel says without advice, and that it can be filled."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.panels.advice import NO_MODEL, NONE_YET, NOT_TUNED, AdvicePanel
from app.window import MainWindow
from tests.app import simulated
from tests.app.conftest import WAIT_MS


def test_without_advice_it_says_what_to_do_next(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot
) -> None:
    window = make_window()
    panel = window.findChild(AdvicePanel)
    assert panel is not None and panel.empty.text() == NO_MODEL
    window.open(str(small_model))
    qtbot.waitUntil(lambda: window.document is not None, timeout=WAIT_MS)
    assert panel.empty.text() == NOT_TUNED
    job = simulated.Job(list(simulated.events(window.document.plan)))  # type: ignore[union-attr]
    window.tuning.start(lambda: nullcontext(job), False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert panel.empty.text() == NONE_YET
    window.documents.close_current()
    assert panel.empty.text() == NO_MODEL


def test_a_view_of_advice_takes_the_place_of_the_words(window: MainWindow) -> None:
    panel = window.findChild(AdvicePanel)
    assert panel is not None
    view = QLabel("r5: ReLU in place of SiLU")
    panel.fill(view)
    assert panel.pages.currentWidget() is view
