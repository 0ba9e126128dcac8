"""What goes wrong outside the program: each is a message of what happened, to what, and what to do; nothing is lost."""

import gzip
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app import tuning
from app.run import State
from app.window import MainWindow
from core.errors import DeviceError, RecordError
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.job import Options, TuningJob
from core.tuner.runfile import RunWriter
from tests.app import simulated
from tests.app.conftest import WAIT_MS
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gpu_identity

LITTLE = 16  # bytes that the disk still takes


@contextmanager
def full_disk() -> Iterator[None]:
    """No file grows beyond a few bytes: a write fails as on a full disk, by the system's own error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LITTLE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def told(window: MainWindow, *words: str) -> None:
    """An error is shown: a sentence that names the thing, and under it what to do."""
    assert window.messages.isVisible() and window.messages.level == "error"
    what, _, remedy = window.messages.text.text().partition("\n")
    assert what.endswith(".") and remedy.endswith("."), window.messages.text.text()
    assert "Traceback" not in what and "Error" not in what
    for word in words:
        assert word in f"{what}\n{remedy}"


# Wrong files --------------------------------------------------------------------------------------------------------


def wrong_models(folder: Path, whole: Path) -> dict[str, Path]:
    contents = {
        "text.onnx": b"this is a letter, not a model\n",
        "empty.onnx": b"",
        "cut.onnx": whole.read_bytes()[:900],
        "picture.onnx": b"\x89PNG\r\n\x1a\n" + bytes(64),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in [*contents, "gone.onnx"]}


@pytest.mark.parametrize("name", ["text.onnx", "empty.onnx", "cut.onnx", "picture.onnx", "gone.onnx"])
def test_a_wrong_model_file_leaves_what_is_open(
    window: MainWindow, small_model: Path, tmp_path: Path, qtbot: QtBot, name: str
) -> None:
    kept = window.document
    path = wrong_models(tmp_path, small_model)[name]
    window.open(str(path))
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    told(window, name)
    assert window.document is kept and window.documents.tabs.count() == 1
    assert name in window.log.text.toPlainText()


def test_a_project_of_a_newer_version_is_left_as_it_is(window: MainWindow, tmp_path: Path) -> None:
    kept, path = window.document, tmp_path / "late.boltproj"
    path = path.with_suffix(_suffix())
    content = json.dumps({"format": "bolt-project", "version": 99, "model": "mlp"})
    path.write_text(content)
    window.open(str(path))
    told(window, path.name, "version 99", "pdate this program")
    assert window.document is kept and path.read_text() == content


@pytest.mark.parametrize("content", ["{", '{"format": "other"}', '{"format": "bolt-project", "version": 1}', "\0\0"])
def test_a_damaged_project_is_told(window: MainWindow, tmp_path: Path, content: str) -> None:
    kept, path = window.document, (tmp_path / "bad").with_suffix(_suffix())
    path.write_text(content)
    window.open(str(path))
    told(window, path.name)
    assert window.document is kept


def test_a_wrong_plan_file_changes_nothing(
    window: MainWindow, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert window.document is not None
    before, path = window.document.plan, tmp_path / "bad.plan.json"
    path.write_text('{"format": "bolt-plan", "version": 1}')
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *a: (str(path), ""))
    window.commands["load_plan"].trigger()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert window.messages.level == "error" and "bad.plan.json" in window.messages.text.text()
    assert window.document.plan is before and not window.document.edited


def test_a_wrong_records_file_adds_none(
    window: MainWindow, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.json.gz"
    path.write_bytes(gzip.compress(b'{"format": "bolt-records", "version": 99}'))
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *a: ([str(path)], ""))
    window.records.ask_import()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    told(window, "bad.json.gz")


def run_file(window: MainWindow, path: Path) -> Path:
    assert window.document is not None
    with RunWriter(path, lambda: 0.0) as writer:
        for event in simulated.events(window.document.plan):
            writer(event)
    return path


@pytest.mark.parametrize("fault", ["cut off", "newer", "another file"])
def test_a_run_file_that_does_not_play_leaves_the_figures_that_are_shown(
    window: MainWindow, tmp_path: Path, qtbot: QtBot, fault: str
) -> None:
    assert window.document is not None
    play(window, qtbot)
    shown = window.document.run
    path = run_file(window, tmp_path / "bad.jsonl.gz")
    contents = {
        "cut off": path.read_bytes()[: path.stat().st_size // 2],
        "newer": gzip.compress(b'{"format": "bolt-run", "version": 99}\n'),
        "another file": b"a letter",
    }
    path.write_bytes(contents[fault])
    window.tuning.replay_file(path)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    told(window, "bad.jsonl.gz", "ecord the run again")
    assert window.document.run is shown and all(w.best for w in shown.workloads.values())
    assert window.candidates.model.rowCount() == len(shown.rows)


def play(window: MainWindow, qtbot: QtBot) -> None:
    assert window.document is not None
    window.tuning.start(lambda: nullcontext(simulated.Job(list(simulated.events(window.document.plan)))), False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)


# A full disk --------------------------------------------------------------------------------------------------------


def _suffix() -> str:
    from core.project import SUFFIX

    return SUFFIX


def test_a_project_that_finds_no_room_stays_edited_and_the_old_file_whole(
    window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, path = window.document, (tmp_path / "mine").with_suffix(_suffix())
    assert document is not None
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(path), ""))
    assert window.projects.save(document)
    before = path.read_bytes()
    document.select_region(document.plan.regions[0])
    window.commands["split"].trigger()
    edited = document.plan
    with full_disk():
        window.commands["save_project"].trigger()
    told(window, path.name, "make room on the disk")
    assert path.read_bytes() == before and [p.name for p in tmp_path.glob("*mine*")] == [path.name]
    assert document.edited and document.plan is edited
    window.commands["save_project"].trigger()
    assert path.read_bytes() != before and not document.edited


@pytest.mark.parametrize("kind", ["plan", "report", "svg", "png", "csv"])
def test_what_finds_no_room_leaves_the_older_file(
    window: MainWindow, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    play(window, qtbot)
    window.bottom.setCurrentWidget(window.charts)
    pane = window.charts.panes[0]
    qtbot.waitUntil(lambda: bool(pane.view.picture.marks) and pane.view.plot is not None, timeout=WAIT_MS)
    name = {"plan": "old.json", "report": "old.html"}.get(kind, f"old.{kind}")
    path = tmp_path / name
    path.write_text("older")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(path), ""))
    save = {"plan": window.commands["save_plan"].trigger, "report": window.reports.ask}.get(kind, pane.ask)
    with full_disk():
        save()
        qtbot.waitUntil(lambda: window.messages.level == "error", timeout=WAIT_MS)
    told(window, name, "make room on the disk")
    assert path.read_text() == "older" and [p.name for p in tmp_path.iterdir() if p.is_file()] == [name]
    save()
    qtbot.waitUntil(lambda: path.read_bytes() != b"older", timeout=WAIT_MS)


def test_records_that_find_no_room_are_told(
    window: MainWindow, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.json.gz"
    path.write_text("older")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(path), ""))
    qtbot.waitUntil(lambda: not window.background.busy, timeout=WAIT_MS)
    with full_disk():
        window.records.ask_export()
        qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    told(window, "records.sqlite", "ake it writable")
    assert path.read_text() == "older"
    window.messages.hide()
    below = path / "new.json.gz"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(below), ""))
    window.records.ask_export()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    told(window, "new.json.gz")


# Tuning -------------------------------------------------------------------------------------------------------------

FAMILY = StubFamily(tiles=tuple(range(16, 272, 16)))


class Bench:
    """Real jobs over a simulated compiler and GPU, and a real store of records."""

    def __init__(self, window: MainWindow, folder: Path) -> None:
        assert window.document is not None
        self.window, self.plan = window, window.document.plan
        self.measurer = SimulatedMeasurer()
        self.records = Records(folder / "records.sqlite", shipped=[], families={FAMILY.name: FAMILY})

    def source(self) -> tuning.Source:
        @contextmanager
        def opened() -> Iterator[tuning.Job]:
            identity = Identity(gpu_identity(), "13.0.88", "4.2.0")
            yield TuningJob(
                self.plan, identity, SimulatedBuilder(), [self.measurer], self.records, Options(),
                {FAMILY.name: FAMILY},
            )  # fmt: skip

        return opened

    def run(self, qtbot: QtBot) -> None:
        self.window.tuning.start(self.source(), replayed=False)
        qtbot.waitUntil(lambda: not self.window.tuning.running, timeout=WAIT_MS)


@pytest.fixture
def bench(make_window: Callable[..., MainWindow], tmp_path: Path) -> Iterator[Bench]:
    made = Bench(make_window("mlp"), tmp_path)
    yield made
    made.records.close()


def test_a_gpu_that_is_lost_ends_the_job_and_the_next_one_goes_on_from_there(bench: Bench, qtbot: QtBot) -> None:
    window, asked = bench.window, []

    def lose() -> None:
        asked.append(1)
        if len(asked) == 6:
            raise DeviceError("the GPU can't be measured on: the process died of SIGKILL", "run `main.py doctor`")

    bench.measurer.on_screen = lose
    bench.run(qtbot)
    told(window, "the process died of SIGKILL", "main.py doctor")
    assert window.document is not None
    measured = [r for r in window.document.run.rows if r.us is not None]
    assert len(measured) >= 5 and bench.records.count() == len(measured)
    assert not {r.state for r in window.document.run.rows} & {State.BUILDING, State.RUNNING}
    assert window.status.job.text().startswith("failed: ")
    assert window.commands["tune"].isEnabled() and not window.commands["cancel"].isEnabled()
    kept = {(r.workload, r.name) for r in measured}
    bench.measurer = SimulatedMeasurer()
    bench.run(qtbot)
    assert window.messages.level == "done" and all(w.best for w in window.document.run.workloads.values())
    assert not kept & set(bench.measurer.screened)


def test_a_cancelled_job_keeps_what_it_measured(bench: Bench, qtbot: QtBot) -> None:
    window, asked = bench.window, []

    def stop() -> None:
        asked.append(1)
        if len(asked) == 4:
            window.tuning.job.cancel()

    bench.measurer.on_screen = stop
    bench.run(qtbot)
    assert window.messages.level == "done" and window.messages.text.text().startswith("Stopped")
    assert window.document is not None
    measured = {(r.workload, r.name) for r in window.document.run.rows if r.us is not None}
    assert measured and bench.records.count() == len(measured)
    bench.measurer = SimulatedMeasurer()
    bench.run(qtbot)
    assert not measured & set(bench.measurer.screened)


def test_records_that_can_not_be_written_end_the_job_and_say_why(
    bench: Bench, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **more: object) -> None:
        raise RecordError("the records records.sqlite can't be written (disk full)", "make room on the disk")

    monkeypatch.setattr(bench.records, "add_all", full)
    bench.run(qtbot)
    told(bench.window, "records.sqlite", "ake room on the disk")
    assert bench.window.commands["tune"].isEnabled()


def test_a_job_that_does_not_start_leaves_the_figures_that_are_shown(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    assert window.document is not None
    shown, key = window.document.run, next(iter(window.document.plan.workloads))

    @contextmanager
    def broken() -> Iterator[tuning.Job]:
        raise DeviceError("the GPU is gone", "look at nvidia-smi")
        yield

    for only in (None, [key]):
        window.tuning._start(broken, replayed=False, only=only)
        qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
        told(window, "The GPU is gone")
        assert window.document.run is shown and shown.workloads[key].best is not None
        assert window.document.baseline is None
        assert window.regions.model.speedup(window.document.plan.workloads[key][0]) is not None
