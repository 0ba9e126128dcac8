"""Does an exported library compute what the model computes, and how fast."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import Cancelled, ExportError
from core.export.emit import NUMPY_NAMES
from core.export.exporter import read_manifest
from core.export.layers import compare_layers, exported_graph
from core.export.manifest import FORMAT, NAME
from core.export.placement import require_writes
from core.export.reference import load_inputs, random_inputs, reference_outputs
from core.export.trust import require_trust
from core.files import digest
from core.graph.ir import Graph
from core.importer.load import load_graph
from core.paths import ROOT
from templates.types import DType

TIME_LIMIT_S = 600.0
# Relative L2 error of a whole model against float32, by what its activations are stored in.
TOLERANCE = {DType.F16: 1e-2, DType.BF16: 5e-2, DType.F32: 1e-2}
_LOG_CHARACTERS = 500
_POLL_S = 0.1
WAITING = "waiting"
Layers = Callable[[Path], None]
_PROVES_LITTLE = "the reference's output {!r} is nearly the same number everywhere: that it matches proves little"


def verify(
    folder: Path,
    model: str | None = None,
    inputs: Path | None = None,
    seed: int = 0,
    runtime: str = "cuda-bindings",
    ordinal: int = 0,
    time_limit_s: float = TIME_LIMIT_S,
    cancel: threading.Event | None = None,
    trust: bool = False,
    per_layer: bool = False,
) -> dict[str, Any]:
    """Run an exported library on this machine's GPU and compare it with ONNX Runtime.

    Args:
        model: the original model, a path or a built-in name; the one the manifest names if not given.
        inputs: a .npz file with the inputs by name; seeded random ones if not given.
        time_limit_s: for the process that runs it; waiting for another program on the GPU does not count.
        trust: the user's yes to loading a library that was exported elsewhere (core.export.trust).
        per_layer: also run it step by step and compare what each step leaves in memory ("layers", core.export.layers).

    Returns:
        The JSON of cli.md's `verify` with "gpu", "samples_ms", "tolerance", "notes" and "ok" beside; an output is ok if
        it is within the tolerance both alone and amid back-to-back runs. A note says where that proves little. For a
        library of several batch sizes this is the largest, and "batches" the others, one that is padded for each.

    Raises:
        ExportError: the folder is no exported library, was changed, or comes from elsewhere without the user's yes; the
            library fails, crashes or hangs.
        ModelError: the model can't be read.
        Cancelled: `cancel` was set.
    """
    data = checked_manifest(folder)
    require_trust(folder, trust)
    source = model or data["source"]
    graph = load_graph(source, data.get("batch"))
    given = load_inputs(inputs, data["inputs"]) if inputs else random_inputs(graph, seed)
    dtype = DType(data["dtype"])
    tolerance = TOLERANCE[dtype]
    layers: list[dict[str, Any]] = []

    def checked(
        ports: Mapping[str, Any], given: Mapping[str, np.ndarray], batch: int = 0, after: Layers | None = None
    ) -> dict[str, Any]:
        arrays = [_fitting(given, port) for port in ports["inputs"]]
        with ThreadPoolExecutor(1) as pool:
            reference = pool.submit(reference_outputs, source, given)
            answer, first, again = _run_child(
                folder, {**data, **ports}, arrays, runtime, ordinal, time_limit_s, cancel, after, batch
            )
            wanted = reference.result()
        return _result(ports["outputs"], answer, zip(first, again, strict=True), wanted, tolerance)

    def compare(work: Path) -> None:
        layers.extend(compare_layers(data, exported_graph(source, data.get("batch"), dtype), given, work, tolerance))

    if per_layer:
        require_writes(data)
    found = checked({k: data[k] for k in ("inputs", "outputs")}, given, after=compare if per_layer else None)
    batches = []
    for batch in () if inputs else other_batches(data):
        sized = load_graph(source, batch)
        ports = {k: [_resized(port, sized) for port in data[k]] for k in ("inputs", "outputs")}
        batches.append({"batch": batch, **checked(ports, random_inputs(sized, seed), batch)})
    return {
        "library": str(folder / f"lib{data['name']}.so"),
        **found,
        "reference": f"ONNX Runtime on the CPU, {source}",
        "tolerance": tolerance,
        "dtype": data["dtype"],
        "ok": found["ok"] and all(b["ok"] for b in batches),
        **({"layers": layers} if per_layer else {}),
        **({"batches": batches} if batches else {}),
    }


def other_batches(data: Mapping[str, Any]) -> list[int]:
    """What else to run of a library of several batch sizes: every size but the largest, and one less than each where
    that is padded."""
    sizes = [bucket["batch"] for bucket in data.get("buckets", [])]
    padded = [b - 1 for b, smaller in zip(sizes, [0, *sizes], strict=False) if b - 1 > smaller]
    return sorted({*sizes[:-1], *padded})


def _resized(port: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
    """The port of the same name in a graph of another batch. Raises ExportError when it has none."""
    if port["name"] not in graph.types:
        raise ExportError(f"the model has no tensor {port['name']!r} as the library has", "export the model again")
    return {**port, "shape": list(graph.shape(port["name"]))}


def _result(
    ports: Sequence[Mapping[str, Any]], answer: Mapping[str, Any], pairs: Iterable[tuple[np.ndarray, np.ndarray]],
    wanted: Sequence[np.ndarray], tolerance: float,
) -> dict[str, Any]:  # fmt: skip
    """What is told of the runs of one batch size."""
    outputs = [
        _compared(port, pair, expected, tolerance)
        for port, pair, expected in zip(ports, pairs, wanted, strict=True)
    ]  # fmt: skip
    constant = [p["name"] for p, w in zip(ports, wanted, strict=True) if nearly_constant(w, tolerance)]
    return {
        "outputs": outputs,
        **{key: answer[key] for key in ("latency_ms", "samples_ms", "gpu")},
        "notes": [_PROVES_LITTLE.format(name) for name in constant],
        "ok": all(o["ok"] for o in outputs),
    }


def checked_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, once every file it lists is there with its checksum. Raises ExportError."""
    data = read_manifest(folder)
    if data is None:
        raise ExportError(f"{folder} is no exported library (its manifest.json is missing or damaged)")
    if data["format"] != FORMAT:
        raise ExportError(
            f"{folder} has format {data['format']}, this version reads {FORMAT}", "export the model again"
        )
    if isinstance(data.get("stages"), list):
        raise ExportError(f"{folder} is a partial export", "verify each of its libraries: the folders called *_part*")
    if not _is_sound(data):
        raise ExportError(f"{folder / NAME} is damaged", "export the model again")
    for name, wanted in data["files"].items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
            raise ExportError(f"{folder} lacks the file {name}", "export the model again")
        if digest(path) != wanted:
            raise ExportError(f"{path} was changed after the export", "export the model again")
    return data


def _is_sound(data: Mapping[str, Any]) -> bool:
    """Whether what verify reads of a manifest of this format has the types that the exporter writes."""
    name, batch, ports = data.get("name"), data.get("batch"), [data.get("inputs"), data.get("outputs")]
    return (
        isinstance(name, str)
        and name.isidentifier()
        and f"lib{name}.so" in data["files"]
        and isinstance(data.get("source"), str)
        and (batch is None or (type(batch) is int and batch > 0))
        and data.get("dtype") in [str(d) for d in TOLERANCE]
        and _are_buckets(data.get("buckets", []))
        and all(isinstance(p, list) and all(map(_is_port, p)) for p in ports)
    )


def _are_buckets(found: object) -> bool:
    if not isinstance(found, list) or not all(isinstance(b, dict) for b in found):
        return False
    sizes = [b.get("batch") for b in found]
    return all(type(s) is int and s > 0 for s in sizes) and sizes == sorted(set(sizes))


def _is_port(port: object) -> bool:
    if not isinstance(port, dict) or not isinstance(port.get("name"), str):
        return False
    shape = port.get("shape")
    extents = isinstance(shape, list) and all(type(d) is int and d > 0 for d in shape)
    return extents and port.get("dtype") in [str(d) for d in NUMPY_NAMES]


def _fitting(given: Mapping[str, np.ndarray], port: Mapping[str, Any]) -> np.ndarray:
    """The input as the library takes it. Raises ExportError when the model's graph has no such input."""
    if port["name"] not in given:
        raise ExportError(
            f"the model has no input {port['name']!r} as the library has", "pass the original with --model"
        )
    array = np.ascontiguousarray(given[port["name"]])
    if list(array.shape) != port["shape"]:
        raise ExportError(
            f"input {port['name']!r} has shape {list(array.shape)}, the library takes {port['shape']}",
            "pass the original with --model",
        )
    return array


def _run_child(
    folder: Path,
    data: Mapping[str, Any],
    arrays: list[np.ndarray],
    runtime: str,
    ordinal: int,
    limit: float,
    cancel: threading.Event | None,
    layers: Layers | None = None,
    batch: int = 0,
) -> tuple[dict[str, Any], list[np.ndarray], list[np.ndarray]]:
    """(answer, outputs of the first run, outputs of a run amid others) of the library in a process of its own.

    With `layers` it also runs step by step; that is called with the folder that holds what each step wrote.
    """
    with tempfile.TemporaryDirectory(prefix="bolt-verify-") as name:
        work = Path(name)
        paths = {key: str(work / file) for key, file in
                 (("inputs", "inputs.npz"), ("results", "results.npz"), ("answer", "answer.json"),
                  ("waiting", WAITING))}  # fmt: skip
        named: dict[str, Any] = {f"input{i}": a for i, a in enumerate(arrays)}
        np.savez(paths["inputs"], **named)
        outputs = [{"shape": o["shape"], "numpy": NUMPY_NAMES[DType(o["dtype"])]} for o in data["outputs"]]
        library = str((folder / f"lib{data['name']}.so").resolve())
        job = {
            **paths,
            "library": library,
            "name": data["name"],
            "outputs": outputs,
            "runtime": runtime,
            "ordinal": ordinal,
            "batch": batch,
            "layers": [_with_numpy(s["writes"]) for s in data["steps"]] if layers else [],
        }
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "core.export.verify_child", str(work / "job.json")]
        with (
            (work / "log").open("wb") as errors,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True
            ) as process,
        ):
            try:
                _wait(process, limit, cancel, work / WAITING)
            finally:
                process.kill()
        log = (work / "log").read_text(encoding="utf-8", errors="replace")
        answered = _answer(paths, process.returncode, log, len(outputs))
        if layers:
            layers(work)
        return answered


def _with_numpy(writes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**placed, "numpy": NUMPY_NAMES[DType(placed["dtype"])]} for placed in writes]


def _wait(process: subprocess.Popen[bytes], limit: float, cancel: threading.Event | None, waiting: Path) -> None:
    """Until the process ends. Raises ExportError after `limit` seconds, Cancelled once `cancel` is set.

    While the file `waiting` is there another program has the GPU, and the time does not count.
    """
    deadline = time.monotonic() + limit
    while True:
        if waiting.exists():
            deadline = time.monotonic() + limit
        try:
            process.wait(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            return
        except subprocess.TimeoutExpired:
            if cancel is not None and cancel.is_set():
                raise Cancelled("verifying was stopped") from None
            if time.monotonic() >= deadline:
                raise ExportError(
                    f"the library did not finish within {limit:.0f} s", "export the model again"
                ) from None


def _answer(
    paths: Mapping[str, str], status: int, log: str, count: int
) -> tuple[dict[str, Any], list[np.ndarray], list[np.ndarray]]:
    if not Path(paths["answer"]).is_file():
        raise ExportError(f"the process running the library ended with status {status}: {log[-_LOG_CHARACTERS:]}")
    answer = json.loads(Path(paths["answer"]).read_text(encoding="utf-8"))
    if "error" in answer:
        raise ExportError(answer["error"])
    with np.load(paths["results"]) as results:
        first = [results[f"first{i}"] for i in range(count)]
        again = [results[f"again{i}"] for i in range(count)]
    return answer, first, again


def _compared(
    port: Mapping[str, Any], pair: tuple[np.ndarray, np.ndarray], wanted: np.ndarray, tolerance: float
) -> dict[str, Any]:
    """Errors of the worse of the two runs; integers and booleans must be equal."""
    relative, largest = 0.0, 0.0
    for mine in pair:
        if mine.shape != wanted.shape:
            raise ExportError(
                f"output {port['name']!r} has shape {list(mine.shape)}, ONNX Runtime's {list(wanted.shape)}"
            )
        difference = mine.astype(np.float64) - wanted.astype(np.float64)
        difference[(mine == wanted) | (np.isnan(mine.astype(np.float64)) & np.isnan(wanted.astype(np.float64)))] = 0.0
        norm = float(np.linalg.norm(wanted.astype(np.float64)))
        relative = max(relative, float(np.linalg.norm(difference)) / (norm or 1.0), key=_nan_last)
        largest = max(largest, float(np.abs(difference).max(initial=0.0)), key=_nan_last)
    exact = wanted.dtype.kind not in "f"
    ok = bool(relative == 0.0 if exact else relative <= tolerance)
    return {"name": port["name"], "relative_l2": relative, "max_abs": largest, "ok": ok}


def nearly_constant(wanted: np.ndarray, tolerance: float) -> bool:
    """Whether one number in place of the whole output would be within the tolerance (relative L2) too."""
    if wanted.size < 2:
        return False
    values = wanted.astype(np.float64)
    return bool(np.linalg.norm(values - values.mean()) <= tolerance * np.linalg.norm(values))


def _nan_last(value: float) -> float:
    return float("inf") if value != value else value
