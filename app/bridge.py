"""The core's events become Qt signals: posted from any thread, delivered in batches ten times a second."""

from collections import deque

from PySide6.QtCore import QObject, QTimer, Signal

from core.tuner.events import Event, JobFinished

INTERVAL_MS = 100
MOST_PER_TICK = 2000  # some 15 ms of work in the panels, so that the window answers in between


class EventBridge(QObject):
    """`post` is the listener that the tuner gets. `batch` carries a list of events in their order."""

    batch = Signal(object)
    drained = Signal()  # the event that ends the job has been delivered

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting: deque[Event] = deque()  # append and popleft are atomic
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._deliver)

    def start(self) -> None:
        """Forget what still waits and begin delivering."""
        self._waiting.clear()
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        self._waiting.clear()

    def post(self, event: Event) -> None:
        self._waiting.append(event)

    def _deliver(self) -> None:
        events = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_PER_TICK))]
        if not events:
            return
        self.batch.emit(events)
        if isinstance(events[-1], JobFinished) and not self._waiting:
            self._timer.stop()
            self.drained.emit()
