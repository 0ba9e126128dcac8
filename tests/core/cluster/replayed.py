"""A host without a GPU whose workers replay what an H200 measured: the parts of a worker, and the host's program.

Everything that workers of one test share lies in the folder BOLT_TEST: the stand-in for nvcc, and orders to die
("kill-measure", "kill-compile": the first worker that finds one takes it away and ends itself with SIGKILL).
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from zlib import crc32

from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.cluster.tasks import Parts
from core.device import GpuIdentity
from core.measure.measurement import Failure, Measurement, Outcome, Phase, Stage
from core.paths import RESOURCES
from core.records.store import Records
from core.tuner.ports import Measurer
from templates.family import Candidate
from templates.gpu import GpuSpec
from templates.workload import Workload, parse_workload
from tests.core.tuning_stubs import fake_toolchain

H200 = "NVIDIA H200"
WORKLOADS = [
    parse_workload(key)
    for key in (
        "gemm 1280x2304x768 f16.f32 row.col bias+relu",
        "gemm 6272x1024x256 f16.f32 row.col bias+add+relu",
        "gemm 25088x128x512 f16.f32 row.col bias+relu",
    )
]


def folder() -> Path:
    return Path(os.environ["BOLT_TEST"])


def obey(order: str) -> None:
    """Ends this process if that was ordered and nobody else has obeyed."""
    try:
        (folder() / order).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@cache
def recorded() -> tuple[GpuIdentity, dict[tuple[str, str], dict[Phase, Measurement]]]:
    """The shipped H200's identity, and its measurements by workload and candidate."""
    records = Records(folder() / f"none-{os.getpid()}.sqlite", [RESOURCES / "records" / "h200.json.gz"])
    found: dict[tuple[str, str], dict[Phase, Measurement]] = {}
    for record in records.all(gpu=H200):
        if isinstance(record.outcome, Measurement):
            known = found.setdefault((record.outcome.workload, record.outcome.candidate), {})
            known[record.outcome.phase] = record.outcome
    ((identity, _),) = [(i, s) for i, s in records.identities() if i.gpu.name == H200]
    records.close()
    return identity.gpu, found


def _played(workload: Workload, candidate: Candidate) -> Measurement:
    """The candidate's own record, or under its name another one of the workload: the ranking changes, records stay.

    Those that borrow a record each get a time of their own: a tie would be won by whichever is measured first.
    """
    _, found = recorded()
    known, late = found.get((workload.key, candidate.name)), 1.0
    if known is None:
        others = sorted(name for key, name in found if key == workload.key)
        number = crc32(candidate.name.encode())
        known, late = found[workload.key, others[number % len(others)]], 1.0 + number / 2**36
    (_, taken) = min(known.items())
    return replace(taken, candidate=candidate.name, samples_us=tuple(us * late for us in taken.samples_us))


class Replayed:
    """A ports.Measurer that answers from the records."""

    name = "GPU 0"

    def __init__(self) -> None:
        self.notes: list[str] = []

    def identity(self) -> GpuIdentity:
        return recorded()[0]

    def get_ready(self, workload: Workload, vendor: bool) -> bool:
        return False

    def _outcome(self, workload: Workload, candidate: Candidate, built: BuiltKernel, phase: Phase) -> Outcome:
        obey("kill-measure")
        if not built.library.is_file():
            return Failure(workload.key, candidate.name, Stage.LOAD, f"{built.library} is not here")
        return replace(_played(workload, candidate), phase=phase)

    def screen(self, workload: Workload, candidates: Sequence[tuple[Candidate, BuiltKernel]]) -> Iterator[Outcome]:
        for candidate, built in candidates:
            yield self._outcome(workload, candidate, built, Phase.SCREEN)

    def final(
        self, workload: Workload, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool
    ) -> list[Outcome]:
        return [self._outcome(workload, c, b, Phase.FINAL) for c, b in finalists]

    def close(self) -> None:
        return


class DyingBuilder(Builder):
    def compile_batch(self, batch, stop):  # type: ignore[no-untyped-def]
        obey("kill-compile")
        return super().compile_batch(batch, stop)


@dataclass(frozen=True)
class ReplayedParts(Parts):
    """A builder over the stand-in for nvcc, a measurer that replays."""

    def toolchain(self):  # type: ignore[no-untyped-def]
        return fake_toolchain(folder(), version="13.0.88")

    def builder(self, gpu: GpuSpec) -> Builder:
        return DyingBuilder(self.toolchain(), gpu)

    def measurer(self) -> Measurer:
        return Replayed()


def main(scheduler: str) -> None:
    """Workers of a host with two GPUs, and one with two compilers."""
    from core.cluster import serve

    workers = [serve.WorkerPlan(f"host GPU {i}", 1, True, str(i)) for i in range(2)]
    serve.run(scheduler, 0, serve.LOOPBACK, [*workers, serve.WorkerPlan("host compilers", 2, False)], False)


if __name__ == "__main__":
    main(sys.argv[1])
