"""The client's side of a cluster: which workers there are, and calls that outlive a lost worker or scheduler."""

from __future__ import annotations

import contextlib
import threading
import time
from asyncio import CancelledError as AsyncCancelled
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from core.errors import BoltError, Cancelled, WorkerLost

try:
    from distributed import Client, Future, KilledWorker
    from distributed.comm import CommClosedError
except ModuleNotFoundError as missing:
    raise BoltError(
        f"tuning on a cluster needs the Python package {missing.name}", "run `uv sync --extra cluster`"
    ) from None

GPU = "GPU"  # the resource of which a worker with a GPU has one, and which every measurement takes
CONNECT_LIMIT_S = 10.0
PATIENCE_S = 600.0  # for a scheduler that has gone
_WATCH_S = 0.5
_TICK_S = 0.2
_GATHER_LIMIT_S = 60.0
_MEASURE_FIRST = 10  # Dask's priority of a measurement; compiling has 0
# What Dask raises when a connection, or what was asked over it, is lost. TimeoutError is an OSError.
_LOST = (OSError, CancelledError, AsyncCancelled, CommClosedError)


class ClusterError(BoltError):
    """The cluster can't be reached, or has not what is needed."""


class BatchKilled(BoltError):
    """Worker after worker died with the call."""


@dataclass(frozen=True)
class Worker:
    """`name` as its host gave it, `slots` the tasks it runs side by side."""

    address: str
    name: str
    slots: int
    gpu: bool


class Connection:
    """A scheduler's client, connected anew whenever that is needed. A context manager; safe from any thread.

    A task whose outcome does not arrive is asked for again, so it may run twice; its outcome is returned once.

    Args:
        address: as Dask takes it, "127.0.0.1:8786" or "tls://...".
        patience_s: how long a scheduler may be away before calls fail.

    Raises ClusterError when the scheduler does not answer at all.
    """

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        self.address, self.patience_s = address, patience_s
        self._changed = threading.Condition()
        self._client: Client | None = None
        self._workers: dict[str, Worker] = {}
        self._approved: set[str] = set()
        self._seen = time.monotonic()  # when the scheduler last answered
        self._generation = 0  # counts connections: what was asked over an earlier one is lost
        self._closed = threading.Event()
        self._connect()
        self._thread = threading.Thread(target=self._watch, name="cluster-watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Safe to call twice."""
        self._closed.set()
        self._thread.join()
        with self._changed:
            self._changed.notify_all()
        self._drop()

    # -- workers

    def workers(self) -> dict[str, Worker]:
        """By address; empty while the scheduler is away. At most a moment old."""
        with self._changed:
            return dict(self._workers)

    def approve(self, worker: str) -> None:
        """`call` may use this worker."""
        self._approved.add(worker)

    def _compilers(self) -> list[Worker]:
        """The approved workers without a GPU, or all approved ones where there is no other."""
        able = [w for w in self.workers().values() if w.address in self._approved]
        return [w for w in able if not w.gpu] or able

    @property
    def slots(self) -> int:
        """Compilers that run side by side."""
        return sum(w.slots for w in self._compilers())

    @property
    def away_s(self) -> float:
        """Seconds since the scheduler last answered."""
        return time.monotonic() - self._seen

    def wait_for(self, wanted: Callable[[dict[str, Worker]], bool], limit_s: float) -> bool:
        """Whether the workers became what is wanted in time."""
        with self._changed:
            return self._changed.wait_for(lambda: wanted(self._workers) or self._closed.is_set(), limit_s)

    # -- calls

    def call(self, work: Callable[..., Any], *arguments: Any, stop: threading.Event) -> Any:
        """Runs `work` on an approved worker, those without a GPU first; again when that or the scheduler goes away.

        Raises what `work` raises; Cancelled once `stop` is set; BatchKilled; ClusterError when patience is over.
        """
        while True:
            if stop.is_set() or self._closed.is_set():
                raise Cancelled("the work on the cluster was stopped")
            workers = [w.address for w in self._compilers()]
            if workers:
                with contextlib.suppress(*_LOST):
                    return self._run(work, arguments, workers, {}, stop)
            elif self.away_s > self.patience_s:
                raise self.gone()
            stop.wait(_TICK_S)

    def call_on(self, worker: str, work: Callable[..., Any], *arguments: Any, gpu: bool = True) -> Any:
        """Runs `work` on this worker, holding its GPU. Raises what `work` raises, and WorkerLost."""
        options: dict[str, Any] = {"priority": _MEASURE_FIRST}
        if gpu:
            options["resources"] = {GPU: 1}
        try:
            return self._run(work, arguments, [worker], options, self._closed)
        except (*_LOST, BatchKilled) as lost:
            raise WorkerLost(f"the worker at {worker} is gone ({type(lost).__name__})") from None

    def gone(self) -> ClusterError:
        """What to raise when patience is over."""
        return ClusterError(
            f"the scheduler {self.address} has not answered for {self.away_s:.0f} s",
            "start it again; the same command goes on from what was measured",
        )

    def _run(
        self, work: Callable[..., Any], arguments: tuple[Any, ...], workers: list[str], options: dict[str, Any],
        stop: threading.Event,
    ) -> Any:  # fmt: skip
        """Raises one of _LOST when the connection or the last of the workers goes away."""
        with self._changed:
            client, generation = self._client, self._generation
        if client is None or client.status != "running":
            raise CancelledError
        future = client.submit(work, *arguments, pure=False, workers=workers, allow_other_workers=False, **options)
        over = threading.Event()
        future.add_done_callback(lambda _: over.set())
        try:
            while not over.wait(_TICK_S):
                if stop.is_set() or self._closed.is_set():
                    raise Cancelled("the work on the cluster was stopped")
                if generation != self._generation or self.workers().keys().isdisjoint(workers):
                    raise CancelledError
            return _result(future)
        finally:
            with contextlib.suppress(*_LOST):
                future.release()

    # -- the connection

    def _connect(self) -> None:
        try:
            client = Client(self.address, timeout=CONNECT_LIMIT_S, set_as_default=False, heartbeat_interval="1s")
        except (*_LOST, ValueError) as error:
            raise ClusterError(
                f"no scheduler answers at {self.address} ({error or type(error).__name__})",
                "start one with `python -m core.cluster scheduler`, or a tunnel to it",
            ) from None
        with self._changed:
            self._client = client
            self._generation += 1
            self._changed.notify_all()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_S):
            found: dict[str, Worker] = {}
            client = self._client
            if client is None or client.status != "running":
                self._drop()
                with contextlib.suppress(ClusterError):
                    self._connect()
                continue
            with contextlib.suppress(*_LOST):
                info = client.scheduler_info()
                self._seen = time.monotonic()
                found = {address: _worker(address, w) for address, w in info["workers"].items()}
            self._set(found)

    def _drop(self) -> None:
        self._set({})
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*_LOST):
                client.close(timeout=1)

    def _set(self, workers: dict[str, Worker]) -> None:
        with self._changed:
            if workers != self._workers:
                self._workers = workers
                self._changed.notify_all()


def _worker(address: str, told: dict[str, Any]) -> Worker:
    return Worker(address, str(told["name"]), int(told["nthreads"]), told["resources"].get(GPU, 0) >= 1)


def _result(future: Future) -> Any:
    """The result of a future that is over. Raises what the task raised, or one of _LOST."""
    if future.status != "error":
        return future.result(timeout=_GATHER_LIMIT_S)
    error = future.exception(timeout=_GATHER_LIMIT_S)
    if isinstance(error, KilledWorker):
        raise BatchKilled(f"{error.allowed_failures + 1} workers died of the same task")
    if isinstance(error, BoltError):
        raise error
    raise RuntimeError(f"a worker failed with {type(error).__name__}: {error}") from error  # a bug, and no lost worker
