"""Graph and fusion plan to Program: one walk over the regions, each tensor's layout chosen as it is made.

A backward walk first finds which tensors want channels-last: those a convolution, a pool or an LRN reads, and those
that reach one through nodes that run in any layout. Where a step is free to choose, it writes what is wanted; a
conversion is inserted only on an edge whose reader can't take the layout at hand.
"""

from collections.abc import Mapping
from math import prod

from core.errors import ExportError
from core.export import layout as L
from core.export.context import Context
from core.export.forms import Builder
from core.export.lower_operators import lower_operator
from core.export.lower_pointwise import lower_pointwise
from core.export.lower_rows import lower_rows
from core.export.lower_templates import lower_template
from core.export.merge import merge_concats, write_into_concats
from core.export.operators import FREE_LAYOUT, MOVING, POINTWISE, POOL, missing_kernels
from core.export.program import Program
from core.export.rows import ROW_OPERATORS, SOFTMAX, row_space
from core.fusion.plan import FusionPlan, Region
from core.graph.ir import Graph
from core.tuner.choice import Choice

_WANTS_CHANNELS_LAST = POOL | {"Conv"}
_ANY_LAYOUT = (POINTWISE | MOVING | SOFTMAX | {"Identity", "Resize"}) - {"Gather"}


def lower(graph: Graph, plan: FusionPlan, choices: Mapping[str, Choice]) -> Program:
    """The program of a planned graph, in the plan's dtype.

    Args:
        graph: the graph the plan was made for.
        choices: workload key -> the candidate to run it with. A convolution without one runs through our own direct
            kernel; a GEMM without one is an error.

    Raises:
        ExportError: an operator without a kernel (every one is named), or a GEMM without a candidate.
    """
    refuse_missing_kernels(graph, plan)
    builder = Builder(graph, plan.dtype)
    wanted = tensors_wanting_channels_last(graph)

    def preferred(tensor: str) -> L.Layout | None:
        return L.channels_last(graph.shape(tensor)) if tensor in wanted else None

    context = Context(builder, preferred)
    for region in plan.regions:
        if region.workload is not None:
            lower_template(builder, region, choices)
        else:
            _lower_region(context, graph, region)
    return write_into_concats(merge_concats(builder.finish()))


def refuse_missing_kernels(graph: Graph, plan: FusionPlan) -> None:
    """Raises ExportError naming every operator and node that can't run."""
    reasons = {node.name: f"{node.op} {node.name!r}: {reason}" for node, reason in missing_kernels(graph)}
    for region in plan.regions:
        if not region.supported:
            node = graph.node(region.nodes[0])
            reasons.setdefault(node.name, f"{node.op} {node.name!r}: {region.reason}")
    if reasons:
        raise ExportError(
            f"{len(reasons)} node{'s' * (len(reasons) > 1)} can't be exported: {'; '.join(reasons.values())}",
            "replace or remove these operators in the model",
        )


def _lower_region(context: Context, graph: Graph, region: Region) -> None:
    """A pass over rows is one step, so is a pointwise region whose results share a shape; else each node is one."""
    nodes = [graph.node(name) for name in region.nodes]
    if len(nodes) > 1 and any(n.op in ROW_OPERATORS for n in nodes):
        space = row_space(graph, nodes)
        if isinstance(space, str):
            raise ExportError(f"{region.id} is no pass over rows: {space}", "plan the model again")
        lower_rows(context.builder, space, nodes, region.outputs, context.preferred(region.outputs[0]))
        return
    shapes = {graph.shape(t) for t in region.outputs}
    if all(n.op in POINTWISE for n in nodes) and len(shapes) == 1:
        results, shape = list(region.outputs), next(iter(shapes))
        if max(prod(graph.shape(t)) for n in nodes for t in n.outputs) == prod(shape):
            lower_pointwise(context.builder, nodes, results, context.preferred(results[0]))
            return
    for node in nodes:
        if node.op in POINTWISE:
            lower_pointwise(context.builder, [node], [node.output], context.preferred(node.output))
        else:
            lower_operator(context, node)


def tensors_wanting_channels_last(graph: Graph) -> set[str]:
    """Tensors whose readers, or their readers through nodes that run in any layout, work channels-last."""
    wanted: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op in _WANTS_CHANNELS_LAST:
            wanted.add(node.inputs[0])
        elif node.op in _ANY_LAYOUT and node.op not in FREE_LAYOUT - {"Identity"}:
            rank = len(graph.shape(node.output))
            if any(t in wanted for t in node.outputs):
                wanted.update(t for t in node.inputs if t and len(graph.shape(t)) == rank)
    return {t for t in wanted if len(graph.shape(t)) in (3, 4, 5) and t not in graph.constants}
