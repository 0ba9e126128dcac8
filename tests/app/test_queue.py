"""Regions that wait: added while a job runs, moved, taken out, and run one after another."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app import tuning
from app.panels.queue import QueuePanel
from app.run import State
from app.window import MainWindow
from core.measure.measurement import Phase
from core.tuner.events import CandidateMeasured, Event, JobFinished, JobStarted, WorkloadFinished
from templates.workload import Workload
from tests.app import simulated
from tests.app.conftest import WAIT_MS


class Bench:
    """Stands for the GPU: jobs that are held until let go; remembers what each was asked to tune."""

    def __init__(self, window: MainWindow) -> None:
        self.window = window
        self.asked: list[list[str]] = []
        self.jobs: list[simulated.Job] = []

    def live(self, work, budget=None, anew=False) -> tuning.Source:  # type: ignore[no-untyped-def]
        keys = [w.key for w in work] if isinstance(work, list) else list(work.workloads)
        assert self.window.document is not None
        events = [e for e in simulated.events(self.window.document.plan)]
        job = simulated.Job(events, hold_after=3)

        @contextmanager
        def opened() -> Iterator[tuning.Job]:
            yield job

        self.asked.append(keys)
        self.jobs.append(job)
        return opened


@pytest.fixture
def bench(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(window)
    monkeypatch.setattr(tuning, "live", made.live)
    window.tuning.here = window.tuning.gpu
    return made


def select(window: MainWindow, at: int) -> str:
    assert window.document is not None
    region = [r for r in window.document.plan.regions if r.workload][at]
    window.document.select_region(region)
    assert region.workload is not None
    return region.workload.key


def test_regions_wait_and_run_in_the_order_they_were_put(window: MainWindow, bench: Bench, qtbot: QtBot) -> None:
    panel = window.findChild(QueuePanel)
    assert panel is not None
    keys = [select(window, 0)]
    window.commands["tune_selected"].trigger()
    assert window.tuning.running and not window.queue.wishes
    for at in (1, 2):
        keys.append(select(window, at))
        window.commands["tune_selected"].trigger()
    assert panel.list.count() == 2
    panel.list.setCurrentRow(1)
    panel.buttons["up"].click()
    assert panel.list.currentRow() == 0
    for n in (1, 2, 3):
        qtbot.waitUntil(lambda n=n: len(bench.jobs) == n, timeout=WAIT_MS)
        bench.jobs[-1].released.set()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert bench.asked == [[keys[0]], [keys[2]], [keys[1]]]
    assert panel.list.count() == 0 and not panel.list.isVisible()


def test_cancel_stops_what_waits_too(window: MainWindow, bench: Bench, qtbot: QtBot) -> None:
    select(window, 0)
    window.commands["tune_selected"].trigger()
    window.commands["retune"].trigger()
    assert [w.anew for w in window.queue.wishes] == [True]
    window.commands["cancel"].trigger()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert len(bench.jobs) == 1 and not window.queue.wishes


def test_what_waits_can_be_taken_out(window: MainWindow, bench: Bench, qtbot: QtBot) -> None:
    panel = window.findChild(QueuePanel)
    assert panel is not None
    select(window, 0)
    window.commands["tune_selected"].trigger()
    select(window, 1)
    window.commands["tune_selected"].trigger()
    panel.list.setCurrentRow(0)
    panel.buttons["out"].click()
    bench.jobs[0].released.set()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert len(bench.jobs) == 1


def test_without_the_gpu_nothing_can_wait_and_the_tip_says_why(window: MainWindow) -> None:
    window.tuning.here = None
    select(window, 0)
    for name in ("tune_selected", "retune"):
        action = window.commands[name]
        assert not action.isEnabled() and "There is no NVIDIA H200 in this machine" in action.toolTip()
        action.trigger()
    assert not window.queue.wishes
    window.tuning.here = window.tuning.gpu
    window.tuning.enable()
    assert window.commands["retune"].isEnabled() and "records hold" in window.commands["retune"].toolTip()


def entry(menu: QMenu, word: str) -> QAction:
    return next(a for a in menu.actions() if word in a.text())


def test_one_candidate_is_measured_again_and_the_others_keep_their_figures(
    window: MainWindow, bench: Bench, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = window.document
    assert document is not None
    window.tuning.start(lambda: nullcontext(simulated.Job(list(simulated.events(document.plan)))), False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    before = {key: list(run.rows) for key, run in document.run.workloads.items()}
    row = next(r for r in document.run.rows if r.state is State.MEASURED)
    old_best = document.run.workloads[row.workload].best
    assert old_best is not None and row.us is not None
    new = simulated.measurement(row.workload, row.name, row.us / 2, Phase.FINAL)
    asked: list[tuple[str, str]] = []

    def again(workload: Workload, candidate: str) -> tuning.Source:
        asked.append((workload.key, candidate))
        region = (("w0", workload.key),)
        played: list[Event] = [
            JobStarted("small", "NVIDIA H200", (workload.key,), region, True), CandidateMeasured(new),
            WorkloadFinished(workload.key, new, None, 11, 1, False), JobFinished(1.0),
        ]  # fmt: skip
        return lambda: nullcontext(simulated.Job(played))

    monkeypatch.setattr(tuning, "again", again)
    window.tuning.enable()
    entry(window.candidates.row_menu(row), "again").trigger()
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    assert asked == [(row.workload, row.name)]
    assert {key: run.rows for key, run in document.run.workloads.items()} == before
    mine = next(r for r in document.run.rows if r.name == row.name and r.workload == row.workload)
    assert mine.state is State.FINAL and mine.measurement is new and row.measurement is not new
    assert document.run.workloads[row.workload].best is new
    assert document.baseline is not None and document.baseline.workloads[row.workload].best is old_best


def test_why_a_row_can_not_be_measured_again_is_its_tip(window: MainWindow, qtbot: QtBot) -> None:
    document = window.document
    assert document is not None
    window.tuning.start(lambda: nullcontext(simulated.Job(list(simulated.events(document.plan)))), False)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    window.tuning.here = None
    window.tuning.enable()
    menu = window.candidates.row_menu(document.run.rows[0])
    for word in ("again", "anew"):
        assert not entry(menu, word).isEnabled() and "no NVIDIA H200" in entry(menu, word).toolTip()
    window.tuning.here = window.tuning.gpu
    window.tuning.enable()
    vendor = next(r for r in document.run.rows if r.family.startswith("cudnn"))
    menu = window.candidates.row_menu(vendor)
    assert not entry(menu, "again").isEnabled() and "vendor's kernel" in entry(menu, "again").toolTip()
    assert entry(menu, "anew").isEnabled()


def test_with_a_scheduler_its_workers_measure_for_the_gpu_that_is_meant(
    window: MainWindow, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def on_cluster(work, scheduler, gpu, budget, anew):  # type: ignore[no-untyped-def]
        asked.append((scheduler, gpu, anew))
        return bench.live(work)

    monkeypatch.setattr(tuning, "on_cluster", on_cluster)
    window.tuning.here = None
    key = select(window, 0)
    window.tuning.enable()
    assert not window.commands["retune"].isEnabled()
    window.settings.scheduler = "127.0.0.1:8786"
    window.tuning.enable()
    window.commands["retune"].trigger()
    assert window.tuning.running and bench.asked == [[key]]
    assert asked == [("127.0.0.1:8786", window.tuning.gpu, True)]
    bench.jobs[0].released.set()
