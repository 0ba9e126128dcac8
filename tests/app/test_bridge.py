"""Events from any thread arrive in order, in batches, in the GUI thread."""

import threading

from pytestqt.qtbot import QtBot

from app.bridge import MOST_PER_TICK, EventBridge
from core.tuner.events import Event, JobFinished, Note


def test_events_of_a_thread_arrive_in_order_and_batched(qtbot: QtBot) -> None:
    bridge = EventBridge()
    batches: list[list[Event]] = []
    threads = set()

    def take(events: list[Event]) -> None:
        batches.append(events)
        threads.add(threading.current_thread())

    bridge.batch.connect(take)
    bridge.start()
    sent: list[Event] = [Note("info", str(i)) for i in range(MOST_PER_TICK + 500)]
    sent.append(JobFinished(1.0))
    worker = threading.Thread(target=lambda: [bridge.post(e) for e in sent])
    with qtbot.waitSignal(bridge.drained, timeout=10_000):
        worker.start()
    worker.join()
    assert [e for batch in batches for e in batch] == sent
    assert 2 <= len(batches) < 20
    assert threads == {threading.main_thread()}


def test_starting_again_forgets_what_waited(qtbot: QtBot) -> None:
    bridge = EventBridge()
    bridge.post(Note("info", "old"))
    bridge.start()
    got: list[Event] = []
    bridge.batch.connect(got.extend)
    with qtbot.waitSignal(bridge.drained, timeout=10_000):
        bridge.post(JobFinished(0.0))
    assert got == [JobFinished(0.0)]
