"""ONNX's node tests on the GPU: `python -m tests.gpu.backend_nodes` exports them and counts what passes.

Many models share a library: their graphs lie side by side in one. Libraries compile side by side and run in a process
each, so that one crash fails one group only. The counts and a line for each failure are printed and written as JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from core.build.machine import default_jobs
from core.build.toolchain import Toolchain, find_toolchain
from core.device import GpuIdentity, detect_gpu
from core.errors import BoltError
from core.export.exporter import Origins, export
from core.export.lower import lower
from core.fusion.planner import plan
from core.graph.ir import Graph, Node
from core.paths import ROOT
from core.tuner.choice import Choice, estimated
from templates import families
from templates.gpu import GpuSpec
from templates.types import DType
from tests.backend_nodes import DISPUTED, Case, all_cases, difference, prepared

FOLDER = ROOT / "resources" / "conformance"
_LIMIT_S = 300
# What half precision, or tensor cores on float32, add to a test's own tolerance.
LOOSER = {DType.TF32: 5.0, DType.F16: 20.0}


@dataclass(frozen=True)
class Outcome:
    """`reason` is empty where the case passed; `refused` where the exporter said so before anything ran."""

    case: Case
    reason: str = ""
    refused: bool = False


def choices_for(graph: Graph, dtype: DType, gpu: GpuSpec) -> dict[str, Choice]:
    """Kernels of the sm80 families, which compile in seconds; a convolution without one runs through our own."""
    allowed = {n: families()[n] for n in ("sm80_gemm",)}
    found = {k: estimated(r[0].workload, gpu, allowed) for k, r in plan(graph, dtype).workloads.items()}
    return {k: c for k, c in found.items() if c is not None}


def merged(graphs: Sequence[Graph], name: str = "nodes") -> Graph:
    """The graphs side by side; everything of the i-th is called c<i>_<name>."""
    nodes, inputs, outputs, constants, types = [], [], [], {}, {}
    for i, graph in enumerate(graphs):

        def own(tensor: str, prefix: str = f"c{i}_") -> str:
            return prefix + tensor if tensor else ""

        nodes += [
            Node(own(n.name), n.op, tuple(map(own, n.inputs)), tuple(map(own, n.outputs)), n.attrs, n.domain)
            for n in graph
        ]
        inputs += map(own, graph.inputs)
        outputs += map(own, graph.outputs)
        constants |= {own(t): v for t, v in graph.constants.items()}
        types |= {own(t): v for t, v in graph.types.items()}
    return Graph(name, tuple(nodes), tuple(inputs), tuple(outputs), constants, types, graphs[0].opset)


def feeds_of(cases: Sequence[Case], graphs: Sequence[Graph]) -> list[np.ndarray]:
    """Inputs of the merged graph in order, bfloat16 as the library takes it (uint16)."""
    return [_plain(c.inputs[t]) for c, g in zip(cases, graphs, strict=True) for t in g.inputs]


def judged(
    cases: Sequence[Case], graphs: Sequence[Graph], results: Sequence[np.ndarray], dtype: DType
) -> list[Outcome]:
    """An outcome for each case from the merged library's outputs."""
    found, waiting = [], list(results)
    for case, graph in zip(cases, graphs, strict=True):
        mine = [waiting.pop(0) for _ in graph.outputs]
        pairs = zip(mine, case.wanted, strict=False)
        typed = [m.view(w.dtype) if w.dtype.name == "bfloat16" else m for m, w in pairs]
        wrong = difference(case, typed, LOOSER[dtype]) or ""
        found.append(Outcome(case, f"{wrong} (disputed: {DISPUTED[case.name]})" if case.name in DISPUTED else wrong))
    return found


def _plain(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def measure(cases: Sequence[Case], dtype: DType, gpu: GpuIdentity, groups: int, work: Path) -> list[Outcome]:
    """Every case exported, run and compared."""
    toolchain = find_toolchain()
    outcomes: list[Outcome] = []
    ready: list[tuple[Case, Graph]] = []
    for case in cases:
        made = prepared(case, dtype)
        if isinstance(made, str):
            outcomes.append(Outcome(case, made, refused=True))
            continue
        try:
            lower(made[1], plan(made[1], dtype), choices_for(made[1], dtype, gpu.spec))
            ready.append(made)
        except BoltError as error:
            outcomes.append(Outcome(case, error.what, refused=True))
    parts = [ready[i::groups] for i in range(groups) if ready[i::groups]]
    with ThreadPoolExecutor(default_jobs()) as pool:
        built = list(pool.map(lambda p: _built(p[1], dtype, gpu, toolchain, work / f"g{p[0]}"), enumerate(parts)))
    for part, failed in zip(parts, built, strict=True):
        group = [c for c, _ in part], [g for _, g in part]
        if isinstance(failed, str):
            outcomes += [Outcome(c, failed) for c in group[0]]
        else:
            outcomes += _ran(*group, failed, dtype)
    return outcomes


def _built(
    part: Sequence[tuple[Case, Graph]], dtype: DType, gpu: GpuIdentity, toolchain: Toolchain, folder: Path
) -> Path | str:
    graph = merged([g for _, g in part])
    try:
        export(
            graph, plan(graph, dtype), choices_for(graph, dtype, gpu.spec), gpu, folder, toolchain,
            Origins("onnx.backend.test"), name="nodes", jobs=2,
        )  # fmt: skip
    except BoltError as error:
        return str(error)
    return folder


def _ran(cases: Sequence[Case], graphs: Sequence[Graph], folder: Path, dtype: DType) -> list[Outcome]:
    feeds = feeds_of(cases, graphs)
    np.savez(folder / "inputs.npz", **{f"i{n:05}": v for n, v in enumerate(feeds)})
    command = [sys.executable, "-m", "tests.gpu.backend_nodes", "--run", str(folder)]
    try:
        done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return [Outcome(c, f"its group took more than {_LIMIT_S} s") for c in cases]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return [Outcome(c, f"its group's process ended: {last}") for c in cases]
    with np.load(folder / "outputs.npz") as results:
        return judged(cases, graphs, [results[n] for n in sorted(results)], dtype)


def run_folder(folder: Path) -> None:
    """In a process of its own: the library over inputs.npz, its outputs to outputs.npz."""
    from tests.core.export.emulated import load_caller

    model = load_caller(folder, "nodes").Model()
    with np.load(folder / "inputs.npz") as inputs:
        results = model(*(inputs[n] for n in sorted(inputs)))
    outputs = results if isinstance(results, list | tuple) else [results]
    np.savez(folder / "outputs.npz", **{f"o{n:05}": v for n, v in enumerate(outputs)})


def record(outcomes: Sequence[Outcome], dtype: DType, gpu: str) -> dict[str, Any]:
    """What is written: counts, counts for each operator, and a line for each case that did not pass."""
    passed, total = (
        Counter(o.case.op for o in outcomes if keep(o)) for keep in (lambda o: not o.reason, lambda o: True)
    )
    missed = sorted((o for o in outcomes if o.reason), key=lambda o: (o.refused, o.case.op, o.case.name))
    return {
        "suite": "onnx.backend.test, node", "onnx": onnx.__version__, "gpu": gpu, "date": date.today().isoformat(),
        "dtype": str(dtype), "cases": len(outcomes), "passed": sum(passed.values()),
        "failed": sum(not o.refused for o in missed), "refused": sum(o.refused for o in missed),
        "operators": {op: f"{passed[op]}/{total[op]}" for op in sorted(total)},
        "missed": [{"case": o.case.name, "refused": o.refused, "reason": o.reason} for o in missed],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=["tf32", "fp16"], default="tf32", help="what the libraries compute in")
    parser.add_argument("--op", nargs="*", help="only these operators; Attention runs only when named")
    parser.add_argument("--groups", type=int, default=default_jobs(), help="libraries")
    parser.add_argument("--out", type=Path, help="the record; not given: resources/conformance")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_folder(given.run)
        return 0
    gpu, dtype = detect_gpu(), DType.F16 if given.dtype == "fp16" else DType.TF32
    cases = [c for c in all_cases() if (c.op in given.op if given.op else c.op != "Attention")]
    with tempfile.TemporaryDirectory(prefix="bolt-nodes-") as work:
        data = record(measure(cases, dtype, gpu, given.groups, Path(work)), dtype, gpu.spec.name)
    for missed in data["missed"]:
        print(f"{'refused' if missed['refused'] else 'FAILED '} {missed['case']}: {missed['reason']}")
    print(f"{data['passed']} of {data['cases']} passed, {data['failed']} failed, {data['refused']} refused")
    out = given.out or FOLDER / f"onnx-nodes-{given.dtype}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0 if all(m["refused"] or m["case"] in DISPUTED for m in data["missed"]) else 1


if __name__ == "__main__":
    sys.exit(main())
