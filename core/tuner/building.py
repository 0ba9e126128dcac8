"""The thread that asks the builder for kernels while the job measures."""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.build.artifact import BuiltKernel
from core.errors import Cancelled
from core.measure.measurement import Failure
from core.tuner.events import BuildFinished
from core.tuner.ports import KernelBuilder
from templates.family import Kernel

_TICK_S = 0.1


@dataclass(frozen=True)
class Started:
    """Kernels went to a compiler together."""

    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Built:
    kernel: Kernel
    result: BuiltKernel | Failure


@dataclass(frozen=True)
class Ended:
    """No further kernel comes; `error` is why, when it is not that all are done or that it was stopped."""

    error: Exception | None


class BuildThread:
    """Consumes a builder into `messages`; not asking for more while paused. `stop` kills the compilers."""

    def __init__(self, builder: KernelBuilder, pause: threading.Event, messages: "queue.Queue[Any]") -> None:
        self._builder, self._pause = builder, pause
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._messages = messages

    def start(self, kernels: Sequence[Kernel]) -> None:
        self._thread = threading.Thread(target=self._work, args=(kernels,), name="tuner-build", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Safe from any thread, and to call twice."""
        self._stop.set()
        self._builder.close()

    def join(self) -> None:
        """Ends the thread, stopping the compilers if they still run."""
        if self._thread is not None:
            if self._thread.is_alive():
                self.stop()
            self._thread.join()

    def _work(self, kernels: Sequence[Kernel]) -> None:
        error: Exception | None = None
        try:
            for kernel, result in self._builder.build(kernels, lambda batch: self._messages.put(Started(batch))):
                self._messages.put(Built(kernel, result))
                while self._pause.is_set() and not self._stop.is_set():
                    self._stop.wait(_TICK_S)
                if self._stop.is_set():
                    break
        except Cancelled:
            error = None  # it was this job that stopped the compilers
        except Exception as failure:  # noqa: BLE001 - raised again on the job's own thread
            error = failure
        finally:
            self._messages.put(Ended(error))


def build_finished(built: BuiltKernel) -> BuildFinished:
    """What is told of a kernel that was compiled, or found in the cache."""
    return BuildFinished(
        built.kernel.name, built.seconds, built.cached, built.registers, built.spill_bytes, built.smem_bytes
    )
