"""Whether a group of nodes can run as one kernel, which one, and if not, which node stands in the way and why."""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from core.export.operators import refusal
from core.export.rows import ROW_OPERATORS, row_space
from core.fusion.assemble import Draft, Objection, borders
from core.fusion.attention import attention_of
from core.fusion.grow import Growth, grow
from core.fusion.operators import ANCHORS, kind_of
from core.fusion.parallel import merge
from core.fusion.persistent import join, tower
from core.fusion.plan import Kind, Refusal
from core.fusion.rows import row_draft, waits_for_itself
from core.fusion.shuffle import channel_shuffle
from core.fusion.values import counted, listed, uncompilable
from core.fusion.workload_of import Anchor, anchor_of
from core.graph.ir import Graph, Node
from templates.types import DType


def derive(graph: Graph, names: Sequence[str], dtype: DType, native: DType) -> Draft | Objection:
    """The region that exactly these nodes form."""
    unknown = next((n for n in names if not graph.has_node(n)), None)
    if unknown is not None:
        return Objection(f"the model has no node named {unknown}", unknown)
    twice = next((n for n, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        return Objection(f"{twice} is named twice", twice)
    if not names:
        return Objection("a region needs at least one node", "")
    position = {n.name: i for i, n in enumerate(graph)}
    nodes = [graph.node(n) for n in sorted(names, key=position.__getitem__)]
    found = attention_of(graph, nodes, dtype, native)
    if found is not None:
        return found
    anchors = [n for n in nodes if n.op in ANCHORS]
    if len(anchors) > 1 and len({a.inputs[0] for a in anchors}) == 1:
        return _parallel(graph, anchors, nodes, dtype, native)
    if len(anchors) in (2, 3):
        return _chain(graph, anchors, nodes, dtype, native)
    if len(anchors) > 3:
        reason = f"{listed([a.name for a in anchors])} each need a kernel of their own; a region has three at most"
        return Objection(reason, anchors[3].name)
    if anchors:
        return _around(graph, anchors[0], nodes, dtype, native)
    return _without_anchor(graph, nodes)


# --- regions with an anchor ----------------------------------------------------------------------------------------


def anchor_draft(grown: Growth) -> Draft:
    """The region of a grown anchor."""
    workload = replace(grown.anchor.workload, epilogue=grown.epilogue)
    names = tuple(n.name for n in grown.nodes)
    reason = f"{grown.anchor.kind} with epilogue {grown.epilogue}; it ends here: {grown.stop_reason}"
    refusals = tuple(Refusal(names[0], n.name, grown.stop_reason) for n in grown.stopped_at)
    return Draft(grown.anchor.kind, names, reason, workload, grown.operands, refusals=refusals)


def supported_anchor(graph: Graph, node: Node, dtype: DType, native: DType) -> Anchor | Draft:
    """The anchor that the node makes; an unsupported region where no template serves it."""
    reason = uncompilable(graph, node) or refusal(graph, node)
    anchor = reason or anchor_of(graph, node, dtype, native)
    if isinstance(anchor, str):
        return Draft(Kind.OTHER, (node.name,), anchor, supported=False)
    return anchor


def _around(graph: Graph, anchor: Node, nodes: Sequence[Node], dtype: DType, native: DType) -> Draft | Objection:
    wanted = {n.name for n in nodes}
    found = supported_anchor(graph, anchor, dtype, native)
    if isinstance(found, Draft):
        return Objection(found.reason, anchor.name) if len(nodes) > 1 else found
    grown = grow(graph, found, native, dtype, _all_but(wanted))
    taken = {n.name for n in grown.nodes}
    missing = [n for n in nodes if n.name not in taken]
    if not missing:
        return anchor_draft(grown)
    first = missing[0]
    if nodes.index(first) < nodes.index(anchor):
        return Objection(f"{first.name} comes before {anchor.name}; an epilogue follows its anchor", first.name)
    if first.name not in {n.name for n in grown.stopped_at}:
        return Objection(
            f"{first.name} does not follow directly on {grown.nodes[-1].name}; an epilogue is a chain", first.name
        )
    return Objection(grown.stop_reason, first.name)


def _all_but(wanted: Set[str]) -> Callable[[Node], str | None]:
    """Refuses every node that is not wanted."""
    return lambda node: None if node.name in wanted else f"the plan leaves {node.name} out"


def _chain(
    graph: Graph, anchors: Sequence[Node], nodes: Sequence[Node], dtype: DType, native: DType
) -> Draft | Objection:
    """Two or three anchors, each with its epilogue, as one persistent kernel."""
    starts = [nodes.index(anchor) for anchor in anchors]
    parts: list[Draft] = []
    # In order: what a later one can't take may lie before it, so the earlier one is to name it.
    for anchor, start, end in zip(anchors, [0, *starts[1:]], [*starts[1:], len(nodes)], strict=True):
        part = _around(graph, anchor, nodes[start:end], dtype, native)
        if isinstance(part, Objection):
            return part
        if not part.supported:
            return Objection(part.reason, anchor.name)
        parts.append(part)
    first, second, *third = parts
    return tower(graph, first, second, third[0]) if third else join(graph, first, second)


def _parallel(
    graph: Graph, anchors: Sequence[Node], nodes: Sequence[Node], dtype: DType, native: DType
) -> Draft | Objection:
    """Anchors of one input, each with its epilogue, as one kernel."""
    wanted = {n.name for n in nodes}
    drafts: list[Draft] = []
    for anchor in anchors:
        found = supported_anchor(graph, anchor, dtype, native)
        if isinstance(found, Draft):
            return Objection(found.reason, anchor.name)
        others = wanted.difference(n for d in drafts for n in d.nodes)
        drafts.append(anchor_draft(grow(graph, found, native, dtype, _all_but(others))))
    taken = {n for d in drafts for n in d.nodes}
    missing = next((n.name for n in nodes if n.name not in taken), None)
    if missing is not None:
        return Objection(f"{missing} is part of no epilogue of {listed([a.name for a in anchors])}", missing)
    return merge(graph, drafts)


# --- regions without an anchor -------------------------------------------------------------------------------------


def single_draft(graph: Graph, node: Node, reason: str) -> Draft:
    """A region of one node that is no anchor; unsupported with the exporter's reason where it has no kernel."""
    refused = uncompilable(graph, node) or refusal(graph, node)
    kind = kind_of(node.op)
    return Draft(kind, (node.name,), refused or reason, supported=not refused)


def pointwise_draft(nodes: Sequence[Node]) -> Draft:
    reason = f"{counted(len(nodes), 'pointwise node')} in one pass over memory"
    return Draft(Kind.POINTWISE, tuple(n.name for n in nodes), reason)


def shuffle_draft(graph: Graph, nodes: Sequence[Node]) -> Draft:
    groups = graph.shape(nodes[0].output)[1]
    return Draft(Kind.LAYOUT, tuple(n.name for n in nodes), f"channel shuffle over {groups} groups in one copy")


def _without_anchor(graph: Graph, nodes: Sequence[Node]) -> Draft | Objection:
    if len(nodes) == 1:
        return single_draft(graph, nodes[0], "the plan keeps it alone")
    shuffle = channel_shuffle(graph, nodes[0])
    if shuffle and {n.name for n in shuffle} == {n.name for n in nodes}:
        return shuffle_draft(graph, nodes)
    for node in nodes:
        kind = kind_of(node.op)
        if kind is not Kind.POINTWISE and node.op not in ROW_OPERATORS:
            return Objection(
                f"{node.name} ({node.op}) is a {kind} node; without a GEMM or convolution only pointwise nodes and "
                "reductions fuse",
                node.name,
            )
        refused = uncompilable(graph, node) or refusal(graph, node)
        if refused:
            return Objection(f"{node.name}: {refused}", node.name)
    if any(n.op in ROW_OPERATORS for n in nodes):
        space = row_space(graph, nodes)
        if isinstance(space, str):
            return Objection(space, nodes[0].name)
        if waits_for_itself(graph, [n.name for n in nodes], {}):
            return Objection(
                "a node outside reads one of its results and makes what another node of it reads", nodes[0].name
            )
        return row_draft(nodes)
    _, outputs = borders(graph, [n.name for n in nodes])
    if len(outputs) != 1:
        makers = [p.name for p in map(graph.producer, outputs) if p]
        return Objection(f"the results of {listed(makers)} leave the region; a region writes one tensor", makers[0])
    return pointwise_draft(nodes)
