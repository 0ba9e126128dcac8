"""A run in the window: table, charts, status, pause, cancel, replay, and what is said of every number."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app import tuning
from app.run import State
from app.window import MainWindow
from core.errors import DeviceError
from core.tuner.events import Event, WorkloadFinished
from core.tuner.runfile import RunWriter
from tests.app import simulated
from tests.app.conftest import WAIT_MS


def play(window: MainWindow, qtbot: QtBot, replayed: bool = False, hold_after: int | None = None) -> simulated.Job:
    assert window.document is not None
    job = simulated.Job(list(simulated.events(window.document.plan)), hold_after)
    window.tuning.start(lambda: nullcontext(job), replayed)
    if hold_after is None:
        qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    return job


def test_a_run_fills_table_list_status_and_log(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    assert window.document is not None
    model = window.candidates.model
    assert model.rowCount() == len(window.document.run.rows) > 20
    region = window.document.plan.regions[0]
    assert window.regions.model.state(region) == "done"
    assert window.regions.model.speedup(region) is not None
    assert window.status.job.text().startswith("finished: ")
    assert "1980 MHz" in window.status.gpu.text()
    assert "clocks were not steady" in window.log.text.toPlainText()
    assert window.messages.level == "done"
    assert "replayed" not in window.messages.text.text().lower()


def test_replayed_numbers_say_so_everywhere(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot, replayed=True)
    assert window.document is not None
    window.document.select_region(window.document.plan.regions[0])
    assert "replayed" in window.details.text.toPlainText()
    assert "(replayed)" in window.status.job.text()
    assert window.status.gpu.text().startswith("recorded:")
    assert "replayed" in window.candidates.count.text()
    column = window.candidates.model.column("State")
    states = {window.candidates.model.index(r, column).data() for r in range(window.candidates.model.rowCount())}
    assert states <= {"measured (replayed)", "final (replayed)", "failed"}
    index = window.regions.model.index(0)
    assert "replayed" in index.data(Qt.ItemDataRole.DisplayRole)


def test_sorting_by_time_puts_unmeasured_last(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    model = window.candidates.model
    window.candidates.table.sortByColumn(model.column("Time"), Qt.SortOrder.AscendingOrder)
    times = [model.row(i).us for i in range(model.rowCount())]
    known = [t for t in times if t is not None]
    assert known == sorted(known)
    assert times[: len(known)] == known


def test_filters_of_the_candidates(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    panel = window.candidates
    total = panel.model.rowCount()
    panel.states.setCurrentIndex(panel.states.findText("Failed"))
    assert 0 < panel.model.rowCount() < total
    assert all(panel.model.row(i).state is State.FAILED for i in range(panel.model.rowCount()))
    assert "240 KiB" in panel.model.index(0, panel.model.column("Reason")).data()
    panel.states.setCurrentIndex(0)
    panel.filter.setText("cudnn")
    assert {panel.model.row(i).family for i in range(panel.model.rowCount())} == {"cudnn 9.19.0"}
    panel.filter.clear()
    assert window.document is not None
    panel.only_selected.setChecked(True)
    window.document.select_region(window.document.plan.regions[0])
    keys = {panel.model.row(i).workload for i in range(panel.model.rowCount())}
    assert keys == {window.document.plan.regions[0].workload.key}  # type: ignore[union-attr]


def test_the_selected_row_stays_selected_when_sorted(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    table, model = window.candidates.table, window.candidates.model
    table.selectRow(3)
    name = model.row(3).name, model.row(3).workload
    table.sortByColumn(model.column("Time"), Qt.SortOrder.DescendingOrder)
    row = table.selectionModel().selectedRows()[0].row()
    assert (model.row(row).name, model.row(row).workload) == name


def test_cancel_keeps_what_was_measured(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot, hold_after=30)
    assert window.document is not None
    qtbot.waitUntil(lambda: window.document.run.measurements > 3, timeout=WAIT_MS)  # type: ignore[union-attr]
    assert window.commands["cancel"].isEnabled()
    assert not window.commands["tune"].isEnabled()
    assert not window.commands.gpu.isEnabled()
    window.commands["cancel"].trigger()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.status.job.text().startswith("stopped: ")
    assert window.document.run.measurements > 3
    assert window.commands["tune"].isEnabled()


def test_pause_and_resume_reach_the_job(window: MainWindow, qtbot: QtBot) -> None:
    job = play(window, qtbot, hold_after=10)
    qtbot.waitUntil(lambda: bool(window.document.run.rows), timeout=WAIT_MS)  # type: ignore[union-attr]
    window.commands["pause"].trigger()
    assert job.paused.is_set()
    assert window.commands["pause"].text() == "Resume"
    window.commands["pause"].trigger()
    assert not job.paused.is_set()
    job.released.set()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)


def test_what_is_tuned_stays_and_others_open_beside_it(window: MainWindow, qtbot: QtBot) -> None:
    job = play(window, qtbot, hold_after=10)
    kept = window.document
    assert kept is not None
    kept.select_region(kept.plan.regions[0])
    assert not window.commands["split"].isEnabled()
    assert "running" in window.commands["split"].toolTip()
    window.open("mlp")
    qtbot.waitUntil(lambda: window.document is not kept, timeout=WAIT_MS)
    assert window.document is not None
    window.document.select_region(window.document.plan.regions[0])
    assert "running" not in window.commands["split"].toolTip()
    assert not window.commands["tune"].isEnabled()
    window.documents.close_tab(0)
    assert "being tuned" in window.messages.text.text()
    job.released.set()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert all(w.best for w in kept.run.workloads.values())
    assert not window.document.run.workloads


def test_closing_stops_the_job_first(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot, hold_after=10)
    window.close()
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=WAIT_MS)
    assert not window.tuning.running


def test_a_job_that_can_not_start_is_told(window: MainWindow, qtbot: QtBot) -> None:
    @contextmanager
    def broken() -> Iterator[tuning.Job]:
        raise DeviceError("the GPU is gone", "look at nvidia-smi")
        yield

    window.tuning.start(broken, replayed=False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.messages.level == "error"
    assert "The GPU is gone" in window.messages.text.text()
    assert "nvidia-smi" in window.messages.text.text()
    assert window.status.job.text() == "the job did not start"
    assert window.commands["tune"].isEnabled()


def test_a_defect_in_the_job_reaches_the_user_as_one_line(window: MainWindow, qtbot: QtBot) -> None:
    class Broken(simulated.Job):
        def run(self, listener: Callable[[Event], None]) -> None:
            raise KeyError("oops")

    window.tuning.start(lambda: nullcontext(Broken([])), replayed=False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert "KeyError" in window.messages.text.text()
    assert "Traceback" not in window.messages.text.text()


def test_without_the_gpu_tune_offers_a_replay(
    window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window.tuning, "here", None)
    assert window.document is not None
    job = simulated.Job(list(simulated.events(window.document.plan)))
    monkeypatch.setattr(tuning, "can_replay", lambda plan, gpu: True)
    monkeypatch.setattr(tuning, "best_replay", lambda plan, gpu, speed: lambda: nullcontext(job))
    window.commands["tune"].trigger()
    assert not window.tuning.running
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "nothing can be measured here" in window.messages.text.text()
    window.messages.act.click()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.document.run.replayed
    assert "Replayed" in window.messages.text.text()


def test_records_that_are_not_there_are_told(window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small model has no shipped record, so its replay can only say so."""
    window.tuning.replay()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.messages.level == "error"
    assert "no record" in window.messages.text.text()


def test_an_edited_plan_keeps_the_figures_of_equal_workloads(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    document = window.document
    assert document is not None
    kept = document.plan.region_of("fc1")
    assert kept is not None
    speedup = window.regions.model.speedup(kept)
    document.select([document.model.index["conv1"]])
    window.commands["split"].trigger()
    again = document.plan.region_of("fc1")
    assert again is not None
    assert window.regions.model.speedup(again) == speedup
    bare = document.plan.region_of("conv1")
    assert bare is not None
    assert window.regions.model.speedup(bare) is None


def test_what_nobody_measured_is_said_to_be_estimated(window: MainWindow, qtbot: QtBot) -> None:
    document = window.document
    assert document is not None
    qtbot.waitUntil(lambda: set(document.estimates) == set(document.plan.workloads), timeout=WAIT_MS)
    document.select_region(document.plan.regions[0])
    text = window.details.text.toPlainText()
    assert "by the ranking rules" in text and "Not measured" in text
    play(window, qtbot)
    assert "by the ranking rules" not in window.details.text.toPlainText()


def test_another_gpu_has_other_estimates(window: MainWindow, qtbot: QtBot) -> None:
    document, box = window.document, window.commands.gpu
    assert document is not None
    qtbot.waitUntil(lambda: bool(document.estimates), timeout=WAIT_MS)
    first = dict(document.estimates)
    box.setCurrentIndex(box.findData("a100"))
    qtbot.waitUntil(lambda: bool(document.estimates) and document.estimates != first, timeout=WAIT_MS)
    key = next(iter(first))
    assert document.estimates[key].us > first[key].us


def test_the_summary_adds_up_the_regions(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot, replayed=True)
    document = window.document
    assert document is not None
    tuned = [run for r in document.plan.regions if (run := document.workload_run(r)) is not None]
    ours = sum(run.best.us for run in tuned if run.best)
    text = window.details.text.toPlainText()
    assert f"{ours:.3g}"[:3] in text
    assert "each timed alone" in text and "replayed" in text


@pytest.fixture
def run_file(window: MainWindow, tmp_path: Path) -> Path:
    """The simulated run as a run file."""
    assert window.document is not None
    path = tmp_path / "runs" / "small.jsonl.gz"
    with RunWriter(path, lambda: 0.0) as writer:
        for event in simulated.events(window.document.plan):
            writer(event)
    return path


def test_a_run_file_plays_with_the_same_figures(window: MainWindow, qtbot: QtBot, run_file: Path) -> None:
    window.tuning.replay_file(run_file)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.document is not None
    recorded = [e for e in simulated.events(window.document.plan) if isinstance(e, WorkloadFinished)]
    assert {e.workload: e.best for e in recorded} == {k: w.best for k, w in window.document.run.workloads.items()}
    assert window.document.run.provenance == "replayed"
    assert "recorded on NVIDIA H200" in window.messages.text.text()


def test_replay_prefers_a_shipped_run_of_the_same_workloads(
    window: MainWindow, qtbot: QtBot, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.tuner.runfile.RUNS", run_file.parent)
    (run_file.parent / "broken.jsonl.gz").write_bytes(b"no gzip")
    window.tuning.replay()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert window.document is not None
    assert all(w.best for w in window.document.run.workloads.values())


def test_a_run_of_another_model_says_that_it_does_not_fit(
    make_window: Callable[..., MainWindow], qtbot: QtBot, run_file: Path
) -> None:
    other = make_window("mlp")
    other.tuning.replay_file(run_file)
    qtbot.waitUntil(lambda: not other.tuning.running, timeout=WAIT_MS)
    assert other.messages.level == "warning"
    assert "none of its workloads" in other.messages.text.text()


def test_a_broken_run_file_is_told(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(b"\x1f\x8bcut")
    window.tuning.replay_file(path)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert "cut.jsonl.gz is not a whole run file" in window.messages.text.text()


def test_live_tuning_without_a_driver_is_one_line(
    window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str = "auto") -> None:
        raise DeviceError("no NVIDIA driver on this machine", "install NVIDIA's driver")

    monkeypatch.setattr("core.tuner.local.resolve_gpu", refuse)
    assert window.document is not None
    window.tuning.start(tuning.live(window.document.plan), replayed=False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert "No NVIDIA driver" in window.messages.text.text()


def test_a_run_of_one_region_keeps_the_figures_of_the_others(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    document = window.document
    assert document is not None
    first, *others = list(document.plan.workloads)
    before = {k: document.run.workloads[k].best for k in others}
    rows = len(document.run.rows)
    part = [e for e in simulated.events(document.plan, seed=9) if first in str(e)]
    window.tuning._start(lambda: nullcontext(simulated.Job(part)), False, only=[first])
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert {k: document.run.workloads[k].best for k in others} == before
    assert document.run.workloads[first].best is not None
    assert len(document.run.rows) == rows
    assert document.baseline is not None and document.baseline.workloads[first].best is not None


def test_what_nothing_is_recorded_of_is_not_offered_to_be_played(window: MainWindow, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not window.background.busy, timeout=WAIT_MS)
    window.commands["tune"].trigger()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "Nothing was recorded of this model" in window.messages.text.text()
    assert not window.messages.act.isVisible()


def test_a_sort_by_the_vendor_follows_what_is_measured(window: MainWindow, qtbot: QtBot) -> None:
    play(window, qtbot)
    model = window.candidates.model
    window.candidates.table.sortByColumn(model.column("Vendor"), Qt.SortOrder.AscendingOrder)
    rows = [model.row(i) for i in range(model.rowCount())]
    assert window.document is not None
    peers = {key: w.vendor.us for key, w in window.document.run.workloads.items() if w.vendor}
    known = [peers[r.workload] / r.us for r in rows if r.us]
    assert known == sorted(known, reverse=True) and [model.speedup(r) for r in rows if r.us] == known


def test_a_run_at_another_batch_is_offered_and_played(make_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = make_window("resnet18")
    window.settings.speed = 100.0
    window.commands["tune"].trigger()
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert window.messages.act.text() == "Open at batch 32 and replay"
    window.messages.act.click()
    qtbot.waitUntil(lambda: window.tuning.running, timeout=WAIT_MS)
    assert window.document is not None and window.document.session.batch == 32
    assert window.documents.tabs.count() == 1
    qtbot.waitUntil(lambda: bool(window.document.run.rows), timeout=WAIT_MS)  # type: ignore[union-attr]


def test_tile_cluster_stages_and_schedule_have_columns(make_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = make_window("resnet18")
    first = window.document
    window.commands.batch.setCurrentText("32")
    window.commands.batch.activated.emit(window.commands.batch.currentIndex())
    qtbot.waitUntil(lambda: window.document is not first, timeout=WAIT_MS)
    assert window.document is not None
    window.tuning.start(tuning.best_replay(window.document.plan, "h200", 0), True)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    model = window.candidates.model
    qtbot.waitUntil(lambda: any(model.index(r, model.column("Tile")).data() for r in range(9)), timeout=WAIT_MS)

    def cells(name: str) -> list[str]:
        row = next(r for r in range(model.rowCount()) if model.row(r).name.startswith(name))
        return [model.index(row, model.column(c)).data() for c in ("Tile", "Cluster", "Stages", "Schedule")]

    assert cells("sm90_conv_f16f32_128x64x64_2x1_pingpong") == ["128x64x64", "2x1", "", "pingpong"]
    assert cells("sm80_conv_f16f32_256x64x32_4x1_s3") == ["256x64x32", "", "3", "optimized"]
    window.candidates.filter.setText("pingpong 128x64x64")
    tiles = [model.index(r, model.column("Tile")).data() for r in range(model.rowCount())]
    assert tiles and set(tiles) == {"128x64x64"}
    window.candidates.filter.clear()
    window.candidates.table.sortByColumn(model.column("Tile"), Qt.SortOrder.AscendingOrder)
    sizes = [
        int(t.partition("x")[0]) for r in range(model.rowCount()) if (t := model.index(r, model.column("Tile")).data())
    ]
    assert sizes == sorted(sizes)
