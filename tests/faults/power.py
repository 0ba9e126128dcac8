"""Power cuts: `python -m tests.faults.power --count 200` kills a tuning run at random moments, and looks what is left.

After each kill -9: everything that the run had been told is kept is there, the database is whole, no entry of the cache
and no export is half written, and the next run works in the same folder. Exit status 1 when one of these does not hold.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from core.build.cache import KernelCache
from core.errors import ExportError
from core.export.verify import checked_manifest
from core.files import digest
from core.paths import ROOT
from core.project import load_project
from tests.faults.work import IDENTITY, LIBRARY_BYTES, records

_LONGEST_S = 1.5  # of work, after which a run is through
_LINE_LIMIT_S = 120.0


def cut(folder: Path, number: int, rng: random.Random) -> list[str]:
    """Starts a run and kills it after a random while; returns the lines it had printed by then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.work", str(folder), str(number)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True)
    reader.start()
    told = [lines.get(timeout=_LINE_LIMIT_S)]
    # Some by the clock, some right behind a line: the moments around a write are those that matter.
    if rng.random() < 0.5:
        threading.Event().wait(rng.uniform(0, _LONGEST_S))
    else:
        wanted = rng.randrange(20)
        while len(told) <= wanted and process.poll() is None:
            try:
                told.append(lines.get(timeout=_LONGEST_S))
            except queue.Empty:
                break
    process.kill()
    errors = process.communicate()[1]
    reader.join()
    while not lines.empty():
        told.append(lines.get())
    if "Traceback" in errors:
        raise AssertionError(f"run {number} ended with {errors[-1500:]}")
    return [line.rstrip("\n") for line in told]


def look(folder: Path, told: list[str]) -> Counter[str]:
    """What was told to be kept; raises AssertionError for what is not there or half there."""
    counts: Counter[str] = Counter()
    store = records(folder)
    known: dict[str, set[str]] = {}
    for line in told:
        kind, *values = line.split("\t")
        counts[kind] += 1
        if kind == "measured":
            key, candidate = values
            found = known.setdefault(key, set(store.known(key, IDENTITY)))
            assert candidate in found, f"lost: {line}"
        elif kind == "finished":
            best = store.best(values[0], IDENTITY)
            assert store.finished(values[0], IDENTITY) and best and best.outcome.candidate == values[1], f"lost: {line}"
        elif kind == "exported":
            assert checked_manifest(folder / "out")["name"] == values[0], f"lost: {line}"
        elif kind == "project":
            assert load_project(folder / "a.bolt").model == values[0], f"lost: {line}"
        else:
            assert kind in ("ready", "done"), line
    store.close()
    whole(folder)
    return counts


def whole(folder: Path) -> None:
    """The database, the cache and the export are whole. Raises AssertionError."""
    if (folder / "records.sqlite").exists():
        connection = sqlite3.connect(folder / "records.sqlite")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        finals = connection.execute(
            "SELECT run, workload, count(*) FROM measurements WHERE phase = 'final' GROUP BY run, workload"
        ).fetchall()
        assert all(count > 1 for *_, count in finals), "half of the finals"
        connection.close()
    libraries = folder / "cache" / "kernels" / "lib"
    for library in libraries.glob("*.so"):
        assert digest(library) == library.stem, f"half written: {library.name}"
    for entry in (folder / "cache" / "kernels" / "index").glob("*/*.json"):
        held = json.loads(entry.read_text())
        assert not held["library"] or (libraries / held["library"]).is_file(), entry.name
    if (folder / "out").exists():
        manifest = checked_manifest(folder / "out")
        assert (folder / "out" / f"lib{manifest['name']}.so").stat().st_size == LIBRARY_BYTES


def run(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Cuts the power `count` times, always in the same folder."""
    rng = random.Random(seed)
    kept: Counter[str] = Counter()
    for number in range(count):
        try:
            kept += look(folder, cut(folder, number, rng))
        except (AssertionError, ExportError) as error:
            raise AssertionError(f"cut {number} of seed {seed}: {error}") from error
    cache = KernelCache(folder / "cache")
    return {
        "power_cuts": count, "measurements_kept": kept["measured"], "workloads_kept": kept["finished"],
        "exports_kept": kept["exported"], "ran_to_the_end": kept["done"], "lost": 0, "half_written": 0,
        "libraries_in_cache": len(list((cache.folder / "lib").glob("*.so"))),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bolt-power-") as folder:
        try:
            told = run(args.count, args.seed, Path(folder))
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
    print(json.dumps({**told, "seconds": round(time.monotonic() - began, 1)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
