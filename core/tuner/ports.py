"""What the tuning job needs from the outside: something that builds and something that measures.

The real ones are core.build.builder.Builder and core.measure.process.ProcessMeasurer; tests and replays bring others.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from core.build.artifact import BuiltKernel
from core.device import GpuIdentity
from core.measure.measurement import Failure, Outcome
from templates.family import Candidate, Kernel
from templates.workload import Workload


class KernelBuilder(Protocol):
    """Compiles kernels side by side."""

    def build(
        self, kernels: Sequence[Kernel], started: Callable[[tuple[Kernel, ...]], None] | None = None
    ) -> Iterator[tuple[Kernel, BuiltKernel | Failure]]:
        """Yields each kernel once, as it is finished; cached ones first. Closing the iterator stops the compilers.

        `started` is told of kernels that go to a compiler together, on the thread that consumes the iterator. A
        Failure's `workload` is empty: a kernel that does not compile fails for every workload.
        """
        ...

    def seconds(self, kernels: Sequence[Kernel]) -> float:
        """Estimated wall time of building those of the kernels that are not built yet."""
        ...

    def __contains__(self, kernel: object) -> bool:
        """Whether the kernel is built already."""
        ...

    def close(self) -> None:
        """Stops what still runs. Safe to call twice."""
        ...


class Measurer(Protocol):
    """Runs candidates on one GPU. A crash or a hang of a candidate becomes its Failure, never an exception.

    `name` tells it from the other GPUs of a job ("GPU 0"). `notes` gathers lines for the user (a vendor library that is
    absent); the job takes them out and tells them.
    """

    name: str
    notes: list[str]

    def identity(self) -> GpuIdentity:
        """Raises DeviceError when there is no usable GPU."""
        ...

    def get_ready(self, workload: Workload, vendor: bool) -> bool:
        """One step of what measuring the workload needs beside kernels, for a GPU that waits for the compilers.

        False when nothing is left. A step takes seconds: what the compilers finish meanwhile waits for it.
        """
        ...

    def screen(self, workload: Workload, candidates: Sequence[tuple[Candidate, BuiltKernel]]) -> Iterator[Outcome]:
        """Verify each candidate and time it briefly; one outcome each, in order."""
        ...

    def final(
        self, workload: Workload, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool
    ) -> list[Outcome]:
        """Time the finalists and (if wanted and present) the vendor's kernels interleaved, A B C A B C.

        Vendor outcomes carry `source` other than "template". A vendor library that is absent yields nothing.
        """
        ...

    def close(self) -> None:
        """Ends the child process. Safe to call twice."""
        ...
