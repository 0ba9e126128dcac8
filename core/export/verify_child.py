"""The process that runs an exported library: `python -m core.export.verify_child JOB.json`.

The job names the library, the inputs and where to write; the answer is one JSON file. A library that crashes or hangs
takes this process along and nothing else; when the parent goes away (its end of stdin closes), this process ends too.
"""

import ctypes
import json
import math
import os
import sys
import threading
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from core.errors import BoltError, ExportError
from core.export.placement import stored_in
from core.measure.alone import alone
from core.measure.runtime import Runtime, open_runtime
from core.vendor.libraries import load

_SETS = 4  # of inputs and outputs, used in turn, so that a run does not find its own inputs in the L2 cache
_SAMPLES = 15
_SAMPLE_US = 20_000.0
_WARM_US = 300_000.0


class Library:
    """The C interface of an exported library, on one runtime's device memory."""

    def __init__(self, path: Path, name: str) -> None:
        if (path.parent / "src" / "vendor.cu").is_file():
            load("cublasLt", (13, 12))  # the library finds it by name once it is loaded
        self._lib = ctypes.CDLL(str(path))
        self._name = name
        self._handle = ctypes.c_void_p()
        self._function("last_error").restype = ctypes.c_char_p
        if self._function("create")(ctypes.byref(self._handle), None):
            raise ExportError(self._error(None))
        size = self._function("workspace_size")
        size.restype = ctypes.c_size_t
        self.workspace_bytes = int(size(self._handle))

    def _function(self, what: str) -> Any:
        return getattr(self._lib, f"{self._name}_{what}")

    def _error(self, handle: ctypes.c_void_p | None) -> str:
        return bytes(self._function("last_error")(handle)).decode("utf-8", "replace")

    def run(self, inputs: list[int], outputs: list[int], workspace: int, stream: int, batch: int = 0) -> None:
        """Enqueue one inference; `batch`: of a library of several. Raises ExportError with the library's reason."""
        pointers = [(ctypes.c_void_p * max(len(p), 1))(*p) for p in (inputs, outputs)]
        where = *pointers, ctypes.c_void_p(workspace), ctypes.c_void_p(stream)
        function = self._function("run_batch" if batch else "run")
        if function(self._handle, *([batch] if batch else []), *where):
            raise ExportError(self._error(self._handle))

    def run_step(self, inputs: list[int], outputs: list[int], workspace: int, step: int, stream: int) -> None:
        """Enqueue one step alone. Raises ExportError with the library's reason."""
        pointers = [(ctypes.c_void_p * max(len(p), 1))(*p) for p in (inputs, outputs)]
        where = ctypes.c_void_p(workspace), step, ctypes.c_void_p(stream)
        if self._function("run_step")(self._handle, *pointers, *where):
            raise ExportError(self._error(self._handle))

    def close(self) -> None:
        self._function("destroy")(self._handle)


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Run the library on the job's inputs; writes the outputs of the first run and of one amid the timed ones.

    Takes turns with other programs that measure on the GPU; the file job["waiting"] is there meanwhile.
    """
    runtime = open_runtime(job["runtime"], job["ordinal"])
    waiting = Path(job["waiting"])
    with alone(runtime.facts().pci_bus, waiting.touch):
        waiting.unlink(missing_ok=True)
        return _measured(job, runtime)


def _measured(job: dict[str, Any], runtime: Runtime) -> dict[str, Any]:
    library = Library(Path(job["library"]), job["name"])
    stream = runtime.stream()
    with np.load(job["inputs"]) as given:
        arrays = [np.ascontiguousarray(given[f"input{i}"]) for i in range(len(given.files))]
    sets = [_Set(runtime, arrays, job["outputs"], rolled=i) for i in range(_SETS)]
    workspace = runtime.alloc(max(library.workspace_bytes, 256))
    runtime.memset(workspace, 0xFF, max(library.workspace_bytes, 256), stream)

    def run(which: int) -> None:
        library.run(sets[which].inputs, sets[which].outputs, workspace, stream, job["batch"])

    run(0)
    first = sets[0].results()
    samples = _time(runtime, run, stream)
    sets[0].poison()
    for i in (1, 2, 3, 0, 1, 2):  # the checked run has neighbours: overlap with them must not show
        run(i)
    again = sets[0].results()
    if job["layers"]:
        _by_step(job, runtime, library, sets[0], workspace, stream)
    named: dict[str, Any] = {f"first{i}": a for i, a in enumerate(first)}
    named |= {f"again{i}": a for i, a in enumerate(again)}
    np.savez(job["results"], **named)
    facts = runtime.facts()
    library.close()
    return {"latency_ms": median(samples) / 1e3, "samples_ms": [s / 1e3 for s in samples], "gpu": facts.name}


def _by_step(job: dict[str, Any], runtime: Runtime, library: Library, of: "_Set", workspace: int, stream: int) -> None:
    """Run step by step and leave what each wrote in files, before a later one overwrites it."""
    of.poison()
    for step, writes in enumerate(job["layers"]):
        library.run_step(of.inputs, of.outputs, workspace, step, stream)
        for number, placed in enumerate(writes):
            array = np.empty(placed["elements"], placed["numpy"])
            base = workspace + placed["at"] if placed["space"] == "arena" else of.outputs[placed["at"]]
            runtime.to_host(array, base)
            np.save(stored_in(Path(job["answer"]).parent, step, number), array)


class _Set:
    """One set of inputs and poisoned outputs on the device. `rolled` sets hold the same numbers in another order."""

    def __init__(self, runtime: Runtime, arrays: list[np.ndarray], outputs: list[dict[str, Any]], rolled: int) -> None:
        self._runtime, self._kinds = runtime, outputs
        self.inputs = [runtime.alloc(max(a.nbytes, 16)) for a in arrays]
        for pointer, array in zip(self.inputs, arrays, strict=True):
            runtime.to_device(pointer, np.ascontiguousarray(np.roll(array, rolled)))
        self._bytes = [max(math.prod(o["shape"]) * np.dtype(o["numpy"]).itemsize, 16) for o in outputs]
        self.outputs = [runtime.alloc(n) for n in self._bytes]
        self.poison()

    def poison(self) -> None:
        for pointer, nbytes in zip(self.outputs, self._bytes, strict=True):
            self._runtime.memset(pointer, 0xFF, nbytes, 0)
        self._runtime.synchronize()

    def results(self) -> list[np.ndarray]:
        found = []
        for pointer, kind in zip(self.outputs, self._kinds, strict=True):
            array = np.empty(kind["shape"], kind["numpy"])
            self._runtime.to_host(array, pointer)
            found.append(array)
        return found


def _time(runtime: Runtime, run: Any, stream: int) -> list[float]:
    """Microseconds per inference, back to back over rotating sets, after warming up; a list of samples."""
    start, stop = runtime.event(), runtime.event()

    def sample(runs: int) -> float:
        runtime.record(start, stream)
        for i in range(runs):
            run(i % _SETS)
        runtime.record(stop, stream)
        return runtime.elapsed_us(start, stop)

    sample(2 * _SETS)
    once = max(sample(2 * _SETS) / (2 * _SETS), 1.0)
    sample(int(_WARM_US / once) + 1)
    runs = max(_SETS, int(_SAMPLE_US / once))
    return [sample(runs) / runs for _ in range(_SAMPLES)]


def _end_with_parent() -> None:
    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(argv: list[str]) -> int:
    job = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    _end_with_parent()
    try:
        answer = work(job)
    except (BoltError, OSError) as error:
        answer = {"error": " ".join(str(error).split())}
    Path(job["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # a context that a kernel broke must not crash in destructors


if __name__ == "__main__":
    main(sys.argv)
