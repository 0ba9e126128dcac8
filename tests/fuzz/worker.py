"""A child process that tries inputs one after another: `python -m tests.fuzz.worker SEED`, numbers in, answers out.

One line in is the number of an input, one line out its answer. The process may not take more than 2 GB beyond what its
libraries map; the parent ends it when an input takes too long.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.fuzz.hostile import attacks
from tests.fuzz.mutate import mutant
from tests.fuzz.target import Answer, attempt

MEMORY_LIMIT_MB = 2048
_HOSTILE_SEED = 0


def run_input(number: int, seed: int) -> tuple[str, Answer]:
    """(how the input was made, what came of it). Numbers below 0 are the attacks made by hand."""
    rng = random.Random(f"{seed}:{number}")
    if number >= 0:
        data, how = mutant(rng)
        return how, _measured(data, rng)
    name, make = attacks()[-1 - number]
    with tempfile.TemporaryDirectory(prefix="bolt-fuzz-") as folder:
        return name, _measured(make(Path(folder)), random.Random(_HOSTILE_SEED))


def _measured(model: bytes | Path, rng: random.Random) -> Answer:
    """The answer with the resident memory that the input took beyond what was there, in MB."""
    before = _memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Linux: begins VmHWM anew
    answer = attempt(model, rng)
    return replace(answer, peak_mb=max(0.0, _memory_mb("VmHWM") - before))


def _memory_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def main(argv: list[str]) -> int:
    seed = int(argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    run_input(0, seed)  # everything is loaded once
    limit = int((_memory_mb("VmSize") + MEMORY_LIMIT_MB) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        how, answer = run_input(int(line), seed)
        print(json.dumps({"how": how, **answer.to_dict()}), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
