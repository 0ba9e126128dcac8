"""The records' browser and the report of a project."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.charts.picture import Context
from app.window import MainWindow
from core.errors import RecordError
from core.gains import Gain, Gains, Way
from core.records.exchange import read_file
from core.records.store import Records
from core.tuner.replay import ReplayJob
from core.tuner.runfile import TimedEvent
from tests.app import models, simulated
from tests.app.conftest import WAIT_MS


@pytest.fixture
def browsed(window: MainWindow, qtbot: QtBot) -> MainWindow:
    window.bottom.setCurrentWidget(window.records)
    qtbot.waitUntil(lambda: bool(window.records.model.lines), timeout=WAIT_MS)
    return window


def test_shipped_records_are_listed_and_filtered(browsed: MainWindow) -> None:
    panel = browsed.records
    total = panel.proxy.rowCount()
    assert panel.count.text() == f"{total} workloads"
    panel.filter.setText("56x56x64 k64x3x3")
    assert 0 < panel.proxy.rowCount() < total
    texts = {panel.proxy.index(0, c).data() for c in range(panel.proxy.columnCount())}
    assert {"H200", "shipped"} <= texts


def test_records_go_out_and_come_in_once(
    browsed: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records()
    shipped = records.dump(shipped=True)
    new = records.load({**shipped, "measurements": shipped["measurements"][:5]})
    records.close()
    assert new > 5
    out = tmp_path / "mine.json.gz"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, **k: (str(out), ""))
    browsed.records.give.click()
    qtbot.waitUntil(lambda: "rows exported" in browsed.messages.text.text(), timeout=WAIT_MS)
    assert len(read_file(out)["measurements"]) == 5
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *a, **k: ([str(out)], ""))
    browsed.records.take.click()
    qtbot.waitUntil(lambda: "all here already" in browsed.messages.text.text(), timeout=WAIT_MS)


def test_a_file_of_no_records_is_told(
    browsed: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text("[]")
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *a, **k: ([str(odd)], ""))
    browsed.records.take.click()
    qtbot.waitUntil(lambda: browsed.messages.level == "error", timeout=WAIT_MS)
    assert "odd.json" in browsed.messages.text.text()


def test_the_report_is_whole_and_says_where_figures_come_from(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert window.document is not None
    job = simulated.Job(list(simulated.events(window.document.plan)))
    window.tuning.start(lambda: nullcontext(job), True)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, **k: (str(tmp_path / "r"), ""))
    window.commands["report"].trigger()
    qtbot.waitUntil((tmp_path / "r.html").is_file, timeout=WAIT_MS)
    text = (tmp_path / "r.html").read_text()
    assert "Figures are replayed" in text and text.count("<svg") >= 3
    assert "data:image/png;base64," in text
    assert "http" not in text.replace("http://www.w3.org", "")
    for region in window.document.plan.regions:
        assert f"<td>{region.id}</td>" in text


def test_the_report_draws_what_fusion_gains(window: MainWindow, qtbot: QtBot) -> None:
    from app.report import report_html

    assert window.document is not None
    gain = Gain("r0", Way.EPILOGUE, True, 12.0, (("bare", 11.5),), "relu", "replayed")
    text = report_html(window.document, Context("h200", gains=Gains((gain,), 0)))
    assert "<h2>Fusion gains</h2>" in text and "one kernel" in text


def test_records_that_can_not_be_read_do_not_cost_the_report(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RecordError("the record database is damaged", "delete it")

    qtbot.waitUntil(lambda: not window.background.busy, timeout=WAIT_MS)
    monkeypatch.setattr("core.records.store.Records", broken)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, **k: (str(tmp_path / "r"), ""))
    window.commands["report"].trigger()
    qtbot.waitUntil((tmp_path / "r.html").is_file, timeout=WAIT_MS)
    assert "without fusion gains: the record database is damaged" in window.messages.text.text()


def test_names_in_the_report_are_text(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    from app.report import report_html

    before = window.document
    window.open(str(models.write_small(tmp_path / "n.onnx", {"softmax1": "<script>alert(1)</script>"})))
    qtbot.waitUntil(lambda: window.document is not before, timeout=WAIT_MS)
    assert window.document is not None
    assert "<script>" not in report_html(window.document, Context("h200"))


def test_the_speed_of_a_replay_can_be_changed_while_it_plays(window: MainWindow, qtbot: QtBot) -> None:
    document = window.document
    assert document is not None
    timed = [TimedEvent(i * 100.0, e) for i, e in enumerate(simulated.events(document.plan, 2))]
    job = ReplayJob(timed, 1000.0)
    window.tuning.start(lambda: nullcontext(job), True)
    qtbot.waitUntil(lambda: document.run.running, timeout=WAIT_MS)
    qtbot.waitUntil(window.status.speed.isVisible, timeout=WAIT_MS)
    window.status.speed.setCurrentIndex(window.status.speed.findText("100x"))
    window.status.speed.activated.emit(window.status.speed.currentIndex())
    assert job.speed == 100.0
    assert window.settings.speed == 100.0
    window.commands["cancel"].trigger()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert not window.status.speed.isVisible()
