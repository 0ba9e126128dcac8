"""What the details and the source say of a region: kernel, runners-up, statistics, command line."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app import tuning
from app.panels.region_html import _ordinal, reproduce
from app.window import MainWindow
from tests.app import simulated
from tests.app.conftest import WAIT_MS


@pytest.fixture
def replayed(window: MainWindow, qtbot: QtBot) -> MainWindow:
    """ResNet-18 at batch 32 with the shipped H200 run."""
    window.open("resnet18")
    qtbot.waitUntil(lambda: window.document is not None and window.document.title == "resnet18", timeout=WAIT_MS)
    first = window.document
    window.commands.batch.setCurrentText("32")
    window.commands.batch.activated.emit(window.commands.batch.currentIndex())
    qtbot.waitUntil(lambda: window.document is not first, timeout=WAIT_MS)
    assert window.document is not None
    window.tuning.start(tuning.best_replay(window.document.plan, "h200", 0), True)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    return window


def test_the_winner_is_explained_against_its_runners_up(replayed: MainWindow, qtbot: QtBot) -> None:
    document = replayed.document
    assert document is not None
    region = next(r for r in document.plan.regions if (w := document.workload_run(r)) and len(w.samples) > 4)
    document.select_region(region)
    qtbot.waitUntil(lambda: "WHY THIS ONE" in replayed.details.text.toPlainText(), timeout=WAIT_MS)
    text = replayed.details.text.toPlainText()
    assert "that a thread block computes" in text or "patch" in text
    assert "The rules ranked it" in text and "replayed" in text
    assert "python3 main.py replay resnet18-b32-h200" in text


def test_the_source_of_the_chosen_region_and_row_is_shown(replayed: MainWindow, qtbot: QtBot) -> None:
    replayed.bottom.setCurrentWidget(replayed.source)
    document, source = replayed.document, replayed.source
    assert document is not None and source.text.toPlainText() == ""
    region = next(r for r in document.plan.regions if (w := document.workload_run(r)) and len(w.samples) > 4)
    document.select_region(region)
    qtbot.waitUntil(lambda: "bolt_run_" in source.text.toPlainText(), timeout=WAIT_MS)
    best = document.workload_run(region).best  # type: ignore[union-attr]
    assert best is not None and source.name.text() == best.candidate
    rows = [r for r in document.run.rows if r.workload == best.workload and r.name.startswith("sm")]
    row = next(r for r in rows if r.name != best.candidate)
    source.choose(row.workload, row.name)
    qtbot.waitUntil(lambda: "bolt_run_" in source.text.toPlainText(), timeout=WAIT_MS)
    assert source.name.text() == row.name
    source.copy.click()
    assert QGuiApplication.clipboard().text() == source.text.toPlainText()
    source.choose(row.workload, "cudnn 9.19.0")
    qtbot.waitUntil(lambda: "the vendor's" in source.empty.text(), timeout=WAIT_MS)
    assert source.text.toPlainText() == "" and not source.copy.isEnabled()


def test_weights_have_statistics(window: MainWindow) -> None:
    assert window.document is not None
    window.document.select_names(["conv1"])
    text = window.details.text.toPlainText()
    assert "zeros" in text and "deviation" in text


def test_registers_are_told_where_the_compiler_said_them(window: MainWindow, qtbot: QtBot) -> None:
    document = window.document
    assert document is not None
    job = simulated.Job(list(simulated.events(document.plan)))
    window.tuning.start(lambda: nullcontext(job), False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    document.select_region(document.plan.regions[0])
    qtbot.waitUntil(lambda: "KERNEL" in window.details.text.toPlainText(), timeout=WAIT_MS)


def test_the_command_line_follows_what_is_open(window: MainWindow) -> None:
    document = window.document
    assert document is not None
    assert reproduce(document, "a100") == f"python3 main.py tune {document.session.source} --gpu a100"
    document.select_region(document.plan.regions[0])
    window.commands["split"].trigger()
    assert reproduce(document, "a100").endswith("--plan small.plan.json")
    document.select_region(next(r for r in document.plan.regions if r.workload))
    assert "once the plan is saved there" in window.details.text.toPlainText()
    document.run.file = Path("/elsewhere/my run.jsonl.gz")
    assert reproduce(document, "a100") == "python3 main.py replay '/elsewhere/my run.jsonl.gz'"


@pytest.mark.parametrize(("n", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")])
def test_ordinals(n: int, text: str) -> None:
    assert _ordinal(n) == text
