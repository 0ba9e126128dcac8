"""The suite `models`: whole models, exported here, against PyTorch eager and torch.compile in one interleaved run."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from core.bench.table import Row, result
from core.errors import BoltError
from core.paths import ROOT

_EXPORT_LIMIT_S = 3600
_PEERS = {"compiled_ms": "torch.compile max-autotune, CUDA graph", "eager_ms": "PyTorch eager (cuDNN), CUDA graph"}


def measure(
    models: Sequence[str], batch: int | None, log: Callable[[str], None], compile_jobs: int = 1
) -> dict[str, Any]:
    """Export each model for the GPU here (tuning what has no record) and time it beside its peers.

    Args:
        models: paths or built-in names; a path keeps its own batch, a built-in gets `batch`.
        compile_jobs: models in torch.compile side by side, which takes minutes a model; 0 leaves it out.

    Returns:
        The suite's result; a model that fails is a row without a figure whose detail is the reason.
    """
    rows, gpu = [], ""
    with tempfile.TemporaryDirectory(prefix="bolt-models-") as work, ThreadPoolExecutor(max(1, compile_jobs)) as pool:
        peers = [pool.submit(_compile_peer, m, batch, log) if compile_jobs else None for m in models]
        for index, model in enumerate(models):
            made, found = _one(model, batch, Path(work) / f"m{index}", peers[index], log)
            rows += made
            gpu = found or gpu
    if not gpu:
        raise BoltError(f"none of {', '.join(models)} could be measured", "the lines above say why")
    return result("models", gpu, rows)


def _compile_peer(model: str, batch: int | None, log: Callable[[str], None]) -> float | None:
    """Seconds of torch.compile, None where it failed; its cache then holds what the measuring run loads."""
    job = {"model": model, "batch": None if Path(model).exists() else batch}
    done, why = _json_of([sys.executable, "-m", "core.bench.model_child", json.dumps(job)], log)
    seconds = done.get("compile_s")
    log(f"{Path(model).stem}: torch.compile {f'took {seconds:.0f} s' if seconds else why or done.get('note')}")
    return seconds


def _one(
    model: str, batch: int | None, folder: Path, compiling: Future[float | None] | None, log: Callable[[str], None]
) -> tuple[list[Row], str]:
    built_in = not Path(model).exists()
    size = ["--batch", str(batch)] if built_in and batch else []
    label = f"{model} b{batch}" if size else Path(model).stem
    log(f"{label}: tuning, exporting and verifying")
    command = [sys.executable, str(ROOT / "main.py"), "export", model, "-o", str(folder), "--json", *size]
    exported, why = _json_of(command, log)
    if not exported:
        log(f"{label}: {why}")
        return [Row(label, None, "not compared", None, None, why)], ""
    verified = exported.get("verify") or {}
    error = max((o["relative_l2"] for o in verified.get("outputs", [])), default=None)
    compile_s = compiling.result() if compiling else None
    job = {"folder": str(folder), "model": model, "batch": batch if size else None, "compile": compile_s is not None}
    times, why = _json_of([sys.executable, "-m", "core.bench.model_child", json.dumps(job)], log)
    if not times:
        log(f"{label}: {why}")
        latency = verified.get("latency_ms")
        row = Row(label, latency * 1e3 if latency else None, "not compared", None, error, why)
        return [row], str(verified.get("gpu", ""))
    ours = times["ours_ms"] * 1e3
    detail = f"torch.compile took {compile_s:.0f} s" if compile_s else ""
    rows = [Row(label, ours, peer, times[key] * 1e3, error, detail) for key, peer in _PEERS.items() if times.get(key)]
    for row in rows:
        log(f"{label}: {row.ours_us} us, {row.peer} {row.peer_us} us, error {error}")
    return rows or [Row(label, ours, "not compared", None, error, times.get("note", ""))], str(times["gpu"])


def _json_of(command: Sequence[str], log: Callable[[str], None]) -> tuple[dict[str, Any], str]:
    """(the JSON object on the command's stdout, ""), or ({}, the last line it said)."""
    try:
        done = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=_EXPORT_LIMIT_S
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, f"took more than {_EXPORT_LIMIT_S} s"
    said = [line for line in done.stderr.splitlines() if line.strip()]
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{") and done.returncode == 0:
            return json.loads(line), ""
    return {}, (said or [f"ended with status {done.returncode}"])[-1]
