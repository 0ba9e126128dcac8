"""The measurer of one worker's GPU."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from core.build.artifact import BuiltKernel
from core.cluster.connection import Connection
from core.cluster.tasks import Answer, Item, Parts, final, get_ready, leave_gpu, screen
from core.device import GpuIdentity
from core.errors import DeviceError, ToolchainError, WorkerLost
from core.measure.measurement import Outcome
from templates.family import Candidate
from templates.workload import Workload


class ClusterMeasurer:
    """A ports.Measurer. Each candidate is a call of its own, so that its outcome is kept as soon as it is there.

    Raises WorkerLost, a DeviceError, from any method when the worker is gone. `lost` says so afterwards.
    """

    def __init__(self, connection: Connection, worker: str, name: str, gpu: GpuIdentity, parts: Parts) -> None:
        self.name, self.worker = name, worker
        self.notes: list[str] = []
        self.lost = False
        self._connection, self._gpu, self._parts = connection, gpu, parts

    def identity(self) -> GpuIdentity:
        return self._gpu

    def get_ready(self, workload: Workload, vendor: bool) -> bool:
        return self._ask(get_ready, workload, vendor).more

    def screen(self, workload: Workload, candidates: Sequence[tuple[Candidate, BuiltKernel]]) -> Iterator[Outcome]:
        for pair in candidates:
            yield from self._measure([pair], lambda items: self._ask(screen, workload, items[0]))

    def final(
        self, workload: Workload, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool
    ) -> list[Outcome]:
        return list(self._measure(finalists, lambda items: self._ask(final, workload, items, vendor)))

    def close(self) -> None:
        """Frees the GPU. Safe to call twice."""
        if not self.lost:
            self.lost = True
            try:
                self._connection.call_on(self.worker, leave_gpu, self._parts)
            except WorkerLost:  # then there is nothing to free
                return

    def _measure(
        self, pairs: Sequence[tuple[Candidate, BuiltKernel]], ask: Callable[[list[Item]], Answer]
    ) -> tuple[Outcome, ...]:
        """Asks with the libraries' names first, and with the bytes of those that the worker lacks."""
        answer = ask([Item(c, built.library.name) for c, built in pairs])
        if answer.missing:
            answer = ask([_with_bytes(c, built.library, answer.missing) for c, built in pairs])
        if answer.missing:
            raise DeviceError(f"{self.name} does not keep kernels", "free some space in the kernel cache of its host")
        return answer.outcomes

    def _ask(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        try:
            answer: Answer = self._connection.call_on(self.worker, work, self._parts, *arguments)
        except WorkerLost:
            self.lost = True
            raise
        except ToolchainError as error:  # of that host alone: another one may do without
            raise DeviceError(error.what, error.remedy) from None
        self.notes += answer.notes
        return answer


def _with_bytes(candidate: Candidate, library: Path, missing: Sequence[str]) -> Item:
    return Item(candidate, library.name, library.read_bytes() if library.name in missing else None)
