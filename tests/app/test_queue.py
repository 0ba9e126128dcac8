"""Regions that wait: added while a job runs, moved, taken out, and run one after another."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pytestqt.qtbot import QtBot

from app import tuning
from app.panels.queue import QueuePanel
from app.window import MainWindow
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


def test_without_the_gpu_nothing_waits(window: MainWindow, qtbot: QtBot) -> None:
    select(window, 0)
    window.tuning.here = None
    window.commands["tune_selected"].trigger()
    assert not window.queue.wishes
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert "nothing can be measured here" in window.messages.text.text()
