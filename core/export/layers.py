"""Which region of an exported library first computes something else than ONNX Runtime, and where float16 overflows.

The library runs step by step; each tensor that a step leaves in memory is compared with the same tensor of the prepared
graph in ONNX Runtime, in the model's own precision.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import ExportError
from core.export.placement import logical, stored_in
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.graph.proto import type_proto
from core.graph.ranges import LARGEST_HALF, runtime_failures
from core.graph.to_onnx import to_model
from core.half_range import in_half_range
from core.importer.load import load_graph
from templates.types import DType

# Of reference tensors held at once; the model runs once for each such group.
_GROUP_BYTES = 1 << 30


def exported_graph(source: str, batch: int | None, dtype: DType) -> Graph:
    """The graph the library was made from: its tensors have the names, and the scales, of the library's buffers."""
    graph = prepare(load_graph(source, batch))
    return in_half_range(graph, lambda: graph)[0] if dtype == DType.F16 else graph


def compare_layers(
    data: Mapping[str, Any], graph: Graph, given: Mapping[str, np.ndarray], folder: Path, tolerance: float
) -> list[dict[str, Any]]:
    """A row for each tensor that a step left in `folder`, in the order of the steps.

    Args:
        data: the manifest.
        graph: as `exported_graph` gives it; `given` its inputs by name.

    Returns:
        Rows of "step", "region", "kind", "nodes", "tensor", "relative_l2", "max_abs", "largest" (magnitude of the
        reference), "overflowed" (elements that are infinite or NaN where the reference is finite) and "ok".

    Raises ExportError when ONNX Runtime can't run the graph.
    """
    regions = {node: r for r in data["regions"] for node in r["nodes"]}
    made = {t for n in graph.nodes for t in n.outputs if t in graph.types}
    found = [
        (step, number, placed)
        for step in data["steps"]
        for number, placed in enumerate(step["writes"])
        if placed["tensor"] in made
    ]
    nowhere = {"id": "", "kind": ""}
    rows = []
    for names, wanted in _references(graph, [p["tensor"] for _, _, p in found], given):
        for step, number, placed in found:
            if placed["tensor"] not in names:
                continue
            reference = wanted[placed["tensor"]]
            memory = np.load(stored_in(folder, step["step"], number))
            mine = logical(_numbers(memory, placed["dtype"]), placed, reference.shape)
            region = regions.get(step["nodes"][0], nowhere) if step["nodes"] else nowhere
            rows.append(
                {"step": step["step"], "region": region["id"], "kind": region["kind"],
                 "nodes": step["nodes"], "tensor": placed["tensor"], **_errors(mine, reference, tolerance)}
            )  # fmt: skip
    return sorted(rows, key=lambda r: r["step"])


def _numbers(memory: np.ndarray, dtype: str) -> np.ndarray:
    """bfloat16 comes as its bits."""
    return (memory.astype(np.uint32) << 16).view(np.float32) if dtype == str(DType.BF16) else memory


def _errors(mine: np.ndarray, wanted: np.ndarray, tolerance: float) -> dict[str, Any]:
    a, b = mine.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    overflowed = int(np.count_nonzero(finite & ~np.isfinite(a)))
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, a - b)
    difference[~finite & ~np.isfinite(a)] = 0.0
    norm = float(np.linalg.norm(b[finite])) or 1.0
    broken = not np.isfinite(difference).all()
    relative = float("inf") if broken else float(np.linalg.norm(difference)) / norm
    return {
        "relative_l2": relative,
        "max_abs": float("inf") if broken else float(np.abs(difference).max(initial=0.0)),
        "largest": float(np.abs(b[finite]).max(initial=0.0)),
        "overflowed": overflowed,
        "ok": bool(relative <= tolerance),
    }


def _references(
    graph: Graph, tensors: Sequence[str], given: Mapping[str, np.ndarray]
) -> Iterator[tuple[set[str], dict[str, np.ndarray]]]:
    """Groups of tensors with their values in ONNX Runtime."""
    import onnxruntime
    from onnx import helper

    filled, sized = 0, []
    for name in dict.fromkeys(tensors):
        filled += graph.types[name].nbytes
        sized.append((filled // _GROUP_BYTES, name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = to_model(graph)
    for _, group in groupby(sized, key=lambda pair: pair[0]):
        names = [name for _, name in group]
        del model.graph.output[:]
        model.graph.output.extend(helper.make_value_info(t, type_proto(graph.types[t])) for t in names)
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            values = session.run(names, {i.name: given[i.name] for i in session.get_inputs()})
        except runtime_failures() as error:
            raise ExportError(f"ONNX Runtime can't run {graph.name!r} layer by layer: {error}") from error
        yield set(names), dict(zip(names, map(np.asarray, values), strict=True))


def first_wrong(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first row that differs; None if none does."""
    return next((row for row in rows if not row["ok"]), None)


def layer_lines(rows: Sequence[Mapping[str, Any]], dtype: str) -> list[str]:
    """A line for each row, then what was found first, and where float16 is nearly or really exceeded."""
    lines = [
        f"{'ok' if r['ok'] else 'WRONG'}  step {r['step']} {r['region'] or '(conversion)'}  {r['tensor']}: "
        f"relative L2 {r['relative_l2']:.3g}, max abs {r['max_abs']:.3g}, largest {r['largest']:.4g}"
        for r in rows
    ]
    wrong = first_wrong(rows)
    if wrong is None:
        lines.append(f"all {len(rows)} tensors agree")
    else:
        nodes = ", ".join(wrong["nodes"]) or "a conversion of layout or type"
        where = f"{wrong['region']} ({wrong['kind']})" if wrong["region"] else "outside the regions"
        lines.append(f"first to differ: step {wrong['step']}, {where}: {nodes}")
    over = [r for r in rows if r["overflowed"]]
    lines += [f"overflow: {r['overflowed']} elements of {r['tensor']} are not finite, ONNX Runtime's are" for r in over]
    if dtype == str(DType.F16):
        near = [r for r in rows if r["largest"] > LARGEST_HALF / 2 and not r["overflowed"]]
        lines += [f"near overflow: {r['tensor']} reaches {r['largest']:.4g} of {LARGEST_HALF:.0f}" for r in near]
    return lines
