"""Hostile models, many of them: `python -m tests.fuzz.run --count 20000`.

Every input goes through the importer, the planner and the code generator (target.py). An input passes when it is
exported or refused with a documented one-line error within 10 s and 2 GB. Exit status 1 when one does not; it is tried
again with `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from tests.fuzz.hostile import attacks
from tests.fuzz.pool import TIME_LIMIT_S, try_all
from tests.fuzz.worker import MEMORY_LIMIT_MB, run_input

_SHOWN = 40


def failing(answer: dict[str, Any]) -> bool:
    """Whether an answer breaks what the program promises."""
    return answer["kind"] == "fault" or answer["seconds"] > TIME_LIMIT_S or answer["peak_mb"] > MEMORY_LIMIT_MB


def summary(answers: dict[int, dict[str, Any]], seconds: float) -> dict[str, Any]:
    kinds = Counter(a["kind"] for a in answers.values())
    slowest = max(answers.values(), key=lambda a: a["seconds"])
    largest = max(answers.values(), key=lambda a: a["peak_mb"])
    return {
        "inputs": len(answers),
        "exported": kinds["exported"],
        "refused": kinds["refused"],
        "failing": sum(map(failing, answers.values())),
        "slowest_s": round(slowest["seconds"], 2), "slowest": slowest["how"],
        "most_memory_mb": round(largest["peak_mb"]), "largest": largest["how"],
        "stages": dict(Counter(a["stage"] for a in answers.values())),
        "seconds": round(seconds, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="mutated models; the attacks by hand come on top")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first mutated model")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--only", type=int, help="one input alone, in this process; below 0 an attack by hand")
    parser.add_argument("--attacks", action="store_true", help="the attacks by hand alone")
    args = parser.parse_args()
    if args.only is not None:
        print(*run_input(args.only, args.seed), sep="\n")
        return 0
    numbers = [-1 - i for i in range(len(attacks()))]
    numbers = [] if args.start else numbers
    numbers += [] if args.attacks else range(args.start, args.start + args.count)
    answers: dict[int, dict[str, Any]] = {}
    shown: Counter[str] = Counter()
    began = time.monotonic()

    def heard(number: int, answer: dict[str, Any]) -> None:
        answers[number] = answer
        if failing(answer):
            shown[answer["said"][:60]] += 1
            if shown[answer["said"][:60]] <= 2 and len(shown) <= _SHOWN:
                print(f"{number} ({answer['how'][:80]}): {json.dumps(answer)}", file=sys.stderr, flush=True)
        if len(answers) % 2000 == 0:
            print(f"{len(answers)} of {len(numbers)}, {sum(shown.values())} failing", file=sys.stderr, flush=True)

    try_all(numbers, args.seed, args.jobs, heard)
    told = summary(answers, time.monotonic() - began)
    print(json.dumps(told, indent=1))
    return 1 if told["failing"] else 0


if __name__ == "__main__":
    sys.exit(main())
