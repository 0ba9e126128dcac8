"""Models whose activations leave float16's range, brought into it before they are lowered."""

from core.errors import ModelError
from core.fusion.plan import FusionPlan
from core.fusion.planner import plan as make_plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from core.graph.passes.rescale import fit_half_range
from core.graph.ranges import beyond_half, peaks
from core.importer.load import load_graph
from templates.types import DType

_NAMED = 3


def in_half_range(graph: Graph, plan: FusionPlan, source: str) -> tuple[Graph, FusionPlan, list[str]]:
    """(graph, plan, notes): the same ones, or an equal graph with tensors scaled by powers of two and its plan.

    Peaks are measured in ONNX Runtime on the CPU over random inputs, at batch 1 where the model named `source` can be
    loaded so. The new plan has the same regions; a note names what was scaled, and what no scaling could bring into
    range.
    """
    if plan.dtype != DType.F16:
        return graph, plan, []
    small = _smallest(graph, source)
    try:
        measured = peaks(small)
        outside = beyond_half(measured)
        if not outside:
            return graph, plan, []
        left = beyond_half(peaks(fit_half_range(small, measured)))
    except ModelError as error:
        return graph, plan, [f"the range of the activations is not known: {error}"]
    notes = [f"activations beyond half precision were scaled by powers of two: {_listed(list(outside))}"]
    if left:
        notes.append(f"{_listed(list(left))} may exceed half precision (65504); --dtype bf16 or tf32 holds them")
    scaled = fit_half_range(graph, measured)
    return scaled, make_plan(scaled, plan.dtype, [r.nodes for r in plan.regions]), notes


def _smallest(graph: Graph, source: str) -> Graph:
    """The model at batch 1 if its tensors have the same names, else the graph itself."""
    try:
        small = prepare(load_graph(source, 1))
    except ModelError:  # its batch is fixed, or the file is no longer there: the graph at hand serves as well
        return graph
    return small if [n.outputs for n in small.nodes] == [n.outputs for n in graph.nodes] else graph


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
