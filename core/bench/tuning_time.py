"""The suite `tuning-time`: how long tuning takes from nothing, again, and for another model with warm kernels."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.bench.table import Row, result
from core.errors import BoltError
from core.paths import ROOT


def measure(
    models: Sequence[str],
    batch: int,
    log: Callable[[str], None],
    extra: Sequence[str] = (),
    keep: Path | None = None,
) -> dict[str, Any]:
    """Tune models[0] with an empty cache, the same again, then each further model on the kernels built by then.

    The user's own cache is left alone. Times are wall-clock of the whole command, written in microseconds as every
    suite's are. `extra`: more arguments of `tune`. `keep`: an empty folder that becomes the cache and stays.

    Raises BoltError when `keep` holds something already: nothing would be cold.
    """
    if keep and keep.exists() and any(keep.iterdir()):
        raise BoltError(f"{keep} is not empty, so nothing tuned there is cold", "name a new folder")
    plan = [(models[0], "cold"), (models[0], "again"), *((m, "warm kernels") for m in models[1:])]
    rows, gpu = [], ""
    with contextlib.ExitStack() as stack:
        cache = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="bolt-tuning-time-"))
        for model, state in plan:
            seconds, data = _tune(model, batch, Path(cache), extra)
            gpu = str(data["gpu"])
            tried = sum(r["candidates"] for r in {r["workload"]: r for r in data["regions"]}.values())
            detail = f"{len(data['regions'])} regions, {tried} candidates"
            rows.append(Row(f"{model} b{batch} {state}", seconds * 1e6, "not compared", None, None, detail))
            log(f"{rows[-1].name}: {seconds:.1f} s ({detail})")
    return result("tuning-time", gpu, rows)


def _tune(model: str, batch: int, cache: Path, extra: Sequence[str]) -> tuple[float, dict[str, Any]]:
    command = [sys.executable, str(ROOT / "main.py"), "tune", model, "--batch", str(batch), "--json", "-q", *extra]
    environment = {**os.environ, "BOLT_CACHE": str(cache), "BOLT_SHIPPED": ""}
    begin = time.perf_counter()
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise BoltError(f"tuning {model} failed: {said[-1]}", "run the same `tune` to see more")
    return seconds, json.loads(done.stdout)
