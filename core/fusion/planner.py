"""The fusion planner: every node into exactly one region, and a reason wherever it could have been otherwise."""

from collections.abc import Callable
from dataclasses import replace

from core.export.operators import refusal
from core.fusion.assemble import Draft, assemble
from core.fusion.grow import Growth, grow
from core.fusion.operators import ANCHORS, kind_of
from core.fusion.plan import FusionPlan, Kind, LeftAlone, Refusal
from core.fusion.values import native_dtype
from core.fusion.workload_of import anchor_of
from core.graph.ir import Graph, Node
from templates.types import DType


def plan(graph: Graph, dtype: DType = DType.F16) -> FusionPlan:
    """Cover the graph with regions. `graph` comes from the importer through `core.fusion.prepare`.

    Anchors are grown from the last to the first, so that where two convolutions meet in one Add, the later one takes
    it and reads the earlier one's result. The same graph always gives the same plan.
    """
    native = native_dtype(graph)
    owner: dict[str, str] = {}
    drafts: list[Draft] = []
    refusals: list[Refusal] = []
    for node in reversed(graph.nodes):
        if node.op not in ANCHORS:
            continue
        anchor = anchor_of(graph, node, dtype, native)
        if isinstance(anchor, str):
            drafts.append(Draft(Kind.OTHER, (node.name,), anchor, supported=False))
            owner[node.name] = node.name
            continue
        grown = grow(graph, anchor, native, dtype, _claimed(owner))
        owner.update({n.name: node.name for n in grown.nodes})
        drafts.append(anchor_draft(grown))
        refusals.extend(Refusal(node.name, n.name, grown.stop_reason) for n in grown.stopped_at)
    left: list[LeftAlone] = []
    for node in graph:
        if node.name not in owner:
            draft = single_draft(graph, node, _why_alone(graph, node, refusals))
            drafts.append(draft)
            left.append(LeftAlone(node.name, node.op, draft.reason))
    return assemble(graph, drafts, left, reversed(refusals))


def anchor_draft(grown: Growth) -> Draft:
    """The region of a grown anchor."""
    workload = replace(grown.anchor.workload, epilogue=grown.workload_epilogue)
    names = tuple(n.name for n in grown.nodes)
    reason = f"{grown.anchor.kind} with epilogue {grown.workload_epilogue}; it ends here: {grown.stop_reason}"
    return Draft(grown.anchor.kind, names, reason, workload, grown.operands)


def single_draft(graph: Graph, node: Node, reason: str) -> Draft:
    """A region of one node that is no anchor; unsupported with the exporter's reason where it has no kernel."""
    refused = refusal(graph, node)
    return Draft(
        kind_of(node.op), (node.name,), f"{node.name}: {refused}" if refused else reason, supported=not refused
    )


def _claimed(owner: dict[str, str]) -> Callable[[Node], str | None]:
    def refuse(node: Node) -> str | None:
        taken = owner.get(node.name)
        return f"{node.name} already runs in the region of {taken}" if taken else None

    return refuse


def _why_alone(graph: Graph, node: Node, refusals: list[Refusal]) -> str:
    refused = next((r for r in refusals if r.node == node.name), None)
    if refused:
        return f"not fused into {refused.anchor}: {refused.reason}"
    if kind_of(node.op) is not Kind.POINTWISE:
        return f"{node.op} has no epilogue form"
    return "no GEMM or convolution produces its input"
