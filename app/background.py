"""Work beside the window: a plain thread for each piece, its result back in the GUI thread, cancelled on close."""

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from core.errors import BoltError, Cancelled


class Job:
    """A piece of work in flight. The work calls `check` often, which raises once cancelled, or watches `stop`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None

    def cancel(self) -> None:
        self.stop.set()

    @property
    def cancelled(self) -> bool:
        return self.stop.is_set()

    def check(self) -> None:
        if self.stop.is_set():
            raise Cancelled(f"{self.name} was stopped")


class Background(QObject):
    """Starts work and hands results back through one queued signal. `close()` stops and joins everything."""

    _finished = Signal(object, object, object, object)  # job, callback, value, error

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._jobs: set[Job] = set()
        self._closing = False
        self._finished.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def start(
        self,
        name: str,
        work: Callable[[Job], Any],
        done: Callable[[Any], None],
        failed: Callable[[BoltError], None],
    ) -> Job:
        """Run `work(job)`. Then `done(value)` or `failed(error)` in this thread; neither once it was cancelled."""
        job = Job(name)

        def body() -> None:
            value, error = None, None
            try:
                value = work(job)
            except BoltError as caught:
                error = caught
            except OSError as caught:
                error = BoltError(f"{name} failed: {caught.strerror or caught}", "check the path and the free space")
            except MemoryError:
                error = BoltError(f"{name} ran out of memory", "close other programs or take a smaller batch")
            except Exception as caught:  # noqa: BLE001 the thread's last line: a defect must reach the user, not vanish
                error = BoltError(f"{name} failed: {type(caught).__name__}: {caught}", "please report this defect")
            self._finished.emit(job, (done, failed), value, error)

        self._jobs.add(job)
        job.thread = threading.Thread(target=body, name=f"bolt {name}", daemon=True)
        job.thread.start()
        return job

    @property
    def busy(self) -> tuple[str, ...]:
        return tuple(j.name for j in self._jobs)

    def close(self, timeout_s: float = 10.0) -> None:
        self._closing = True
        for job in self._jobs:
            job.cancel()
        for job in self._jobs:
            if job.thread is not None:
                job.thread.join(timeout_s)
        self._jobs.clear()

    @Slot(object, object, object, object)
    def _deliver(self, job: Job, callbacks: Any, value: Any, error: BoltError | None) -> None:
        self._jobs.discard(job)
        if self._closing or job.cancelled:
            return
        done, failed = callbacks
        if error is None:
            done(value)
        elif not isinstance(error, Cancelled):
            failed(error)
