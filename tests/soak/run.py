"""A long life in a short time: `python -m tests.soak.run --count 1000000`.

Tunes one model after another with a simulated GPU through the real job, the real records and the model behind the
window, until so many candidates were measured. Memory must stay flat, and looking up a winner must stay quick. Exit
status 1 when one of the two does not hold.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.run import Run
from core.measure.measurement import Outcome
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.events import Event
from core.tuner.job import TuningJob
from core.tuner.options import Options
from templates.family import Candidate
from templates.workload import GemmWorkload, Workload
from tests.core.tuning_stubs import SimulatedBuilder, SimulatedMeasurer, StubFamily, gemm, gpu_identity

_WORKLOADS, _KERNELS = 10, 40  # of one model; each kernel is a candidate, the best have two more
_BATCH = 50  # events that the window takes at once
_SETTLED = 0.2  # of the way: everything that is loaded once is loaded
_MOST_GROWTH_MB = 32.0
_SLOWEST_LOOKUP_S = 0.05
FAMILY = StubFamily(tiles=tuple(range(16, 16 + 16 * _KERNELS, 16)))
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")


class Measurer(SimulatedMeasurer):
    """Keeps no list of what it was asked."""

    def screen(self, workload: Workload, candidates: object) -> Iterator[Outcome]:
        for outcome in super().screen(workload, candidates):  # type: ignore[arg-type]
            self.screened.clear()
            yield outcome


@dataclass
class Told:
    """What a soak was like. Memory is this process's resident memory, in MB."""

    candidates: int = 0
    models: int = 0
    window_updates: int = 0
    settled_mb: float = 0.0
    ended_mb: float = 0.0
    largest_mb: float = 0.0
    first_lookup_s: float = 0.0
    last_lookup_s: float = 0.0
    database_mb: float = 0.0
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return self.largest_mb - self.settled_mb < _MOST_GROWTH_MB and self.last_lookup_s < _SLOWEST_LOOKUP_S


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def model(number: int) -> list[GemmWorkload]:
    """Workloads that no other model has."""
    return [gemm(m=64 + number, n=8 * (i + 1)) for i in range(_WORKLOADS)]


def soak(count: int, folder: Path) -> Told:
    """Measures at least `count` candidates."""
    told, began = Told(), time.monotonic()
    records = Records(folder / "records.sqlite", shipped=[], families={FAMILY.name: FAMILY})
    window = Run()
    while told.candidates < count:
        window = _one(told, records, window)
        told.models += 1
        if told.models % 10 == 1:
            gc.collect()
            _note(told, count, records)
    told.last_lookup_s = _lookup_s(records, 0)
    records.close()
    told.database_mb = (folder / "records.sqlite").stat().st_size / 2**20
    told.ended_mb, told.seconds = memory_mb(), time.monotonic() - began
    return told


def _one(told: Told, records: Records, before: Run) -> Run:
    """Tunes one model as the window does: its run carries the figures of the run before."""
    window, waiting = Run(), list[Event]()
    work = model(told.models)
    window.carry(before, {w.key for w in work} | set(before.workloads))

    def post(event: Event) -> None:
        waiting.append(event)
        if len(waiting) >= _BATCH:
            window.apply(waiting)
            waiting.clear()
            told.window_updates += 1

    job = TuningJob(
        work, IDENTITY, SimulatedBuilder(), [Measurer()], records, Options(limit=_KERNELS), {FAMILY.name: FAMILY}
    )
    job.run(post)
    window.apply(waiting)
    told.candidates += window.measurements - before.measurements
    return window


def _note(told: Told, count: int, records: Records) -> None:
    now = memory_mb()
    if told.candidates < _SETTLED * count or not told.settled_mb:
        told.settled_mb = now
        told.first_lookup_s = told.first_lookup_s or _lookup_s(records, 0)
    told.largest_mb = max(now, told.settled_mb) if told.candidates < _SETTLED * count else max(told.largest_mb, now)


def _lookup_s(records: Records, number: int) -> float:
    """Seconds to find the winner of each workload of a model, per workload."""
    began = time.perf_counter()
    winners: list[Candidate | None] = []
    for workload in model(number):
        best = records.best(workload.key, IDENTITY)
        winners.append(best.candidate if best else None)
    assert all(winners), "a winner is lost"
    return (time.perf_counter() - began) / len(winners)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="candidates to measure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bolt-soak-") as folder:
        told = soak(args.count, Path(folder))
    print(json.dumps({k: round(v, 4) for k, v in vars(told).items()} | {"sound": told.sound}, indent=1))
    return 0 if told.sound else 1


if __name__ == "__main__":
    sys.exit(main())
