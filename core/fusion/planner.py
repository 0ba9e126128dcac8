"""The fusion planner: every node into exactly one region, and a reason wherever it could have been otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.errors import PlanError
from core.export.operators import refusal
from core.fusion.assemble import Draft, assemble
from core.fusion.attention import attention
from core.fusion.derive import (
    Objection,
    anchor_draft,
    derive,
    pointwise_draft,
    shuffle_draft,
    single_draft,
    supported_anchor,
)
from core.fusion.grow import banned, grow
from core.fusion.operators import ANCHORS, kind_of, no_epilogue_form
from core.fusion.plan import FusionPlan, Kind, LeftAlone, Refusal
from core.fusion.rows import row_draft, row_groups
from core.fusion.shuffle import channel_shuffle
from core.fusion.values import leaves_graph, native_dtype, uncompilable
from core.fusion.workload_of import Anchor
from core.graph.ir import Graph, Node
from templates.types import DType


@dataclass
class _Cover:
    """What the planner has decided so far."""

    drafts: list[Draft] = field(default_factory=list)
    left: list[LeftAlone] = field(default_factory=list)
    owner: dict[str, Draft] = field(default_factory=dict)
    forbidden: tuple[frozenset[str], ...] = ()

    def take(self, draft: Draft) -> None:
        self.drafts.append(draft)
        self.owner.update(dict.fromkeys(draft.nodes, draft))

    def refuse(self, refusal: Refusal) -> None:
        """Adds the refusal to the region of its anchor."""
        draft = self.owner[refusal.anchor]
        if refusal not in draft.refusals:
            told = replace(draft, refusals=(*draft.refusals, refusal))
            self.drafts[self.drafts.index(draft)] = told
            self.owner.update(dict.fromkeys(told.nodes, told))

    def taken(self, node: Node) -> str | None:
        draft = self.owner.get(node.name)
        if draft is None:
            return None
        others = [n for n in draft.nodes if n != node.name]
        return f"{node.name} already runs with {others[0]}" if others else f"the plan keeps {node.name} alone"


def plan(
    graph: Graph,
    dtype: DType = DType.F16,
    overrides: Sequence[Sequence[str]] | None = None,
    forbidden: Sequence[Sequence[str]] = (),
) -> FusionPlan:
    """Cover the graph with regions. `graph` comes from the importer through `core.fusion.prepare`.

    Each override is a group of node names that must be one region; a group of one keeps that node alone. Nodes that no
    override names are planned automatically. No region holds all nodes of a `forbidden` group. The same input always
    gives the same plan. Raises PlanError if an override is not legal or a forbidden group is none, with the reason and
    the node.
    """
    native = native_dtype(graph)
    bans = _bans(graph, forbidden)
    automatic = _Cover(forbidden=bans)
    _cover(graph, dtype, native, automatic)
    chosen = automatic
    if overrides:
        chosen = _overridden(graph, dtype, native, overrides, automatic)
        _cover(graph, dtype, native, chosen)
    return assemble(graph, dtype, chosen.drafts, chosen.left, bans)


def _bans(graph: Graph, forbidden: Sequence[Sequence[str]]) -> tuple[frozenset[str], ...]:
    """The forbidden groups, without those that hold another one whole: they forbid nothing more."""
    for group in forbidden:
        unknown = next((n for n in group if not graph.has_node(n)), None)
        if unknown is not None:
            raise PlanError(f"the model has no node named {unknown}, which a forbidden fusion names")
        if len(set(group)) < 2:
            raise PlanError("a forbidden fusion names two nodes or more", "leave it out")
    bans = {frozenset(group) for group in forbidden}
    least = [ban for ban in bans if not any(other < ban for other in bans)]
    return tuple(sorted(least, key=sorted))


def _overridden(
    graph: Graph, dtype: DType, native: DType, groups: Sequence[Sequence[str]], automatic: _Cover
) -> _Cover:
    """The overrides as regions. One that the planner makes anyway keeps the planner's own reasons, if they still hold:
    if the nodes it was refused run where they would.
    """
    wanted = {frozenset(group) for group in groups}
    known = {
        frozenset(d.nodes): d
        for d in automatic.drafts
        if all(frozenset(automatic.owner[r.node].nodes) in wanted for r in d.refusals)
    }
    alone = {x.node: x for x in automatic.left}
    cover = _Cover(forbidden=automatic.forbidden)
    for group in groups:
        again = next((n for n in group if n in cover.owner), None)
        if again is not None:
            raise PlanError(f"{again} is in two regions of the plan", "name each node once")
        refused = banned(group, cover.forbidden)
        if refused is not None:
            raise PlanError(f"{_named(group)} can't be one region: {refused}", "allow the fusion first")
        draft = known.get(frozenset(group)) if len(set(group)) == len(group) else None
        if draft is not None:
            cover.left.extend(alone[n] for n in draft.nodes if n in alone)
        else:
            made = derive(graph, group, dtype, native)
            if isinstance(made, Objection):
                raise PlanError(f"{_named(group)} can't be one region: {made.reason}")
            draft = made
            if len(group) == 1:
                cover.left.append(LeftAlone(group[0], graph.node(group[0]).op, draft.reason))
        cover.take(draft)
    return cover


def _named(group: Sequence[str]) -> str:
    return " + ".join(group) if len(group) <= 6 else f"{' + '.join(group[:5])} + {len(group) - 5} more"


def _cover(graph: Graph, dtype: DType, native: DType, cover: _Cover) -> None:
    """Regions for all nodes that have none yet."""
    no_attention = _attentions(graph, dtype, native, cover)
    _anchors(graph, dtype, native, cover)
    for other in no_attention:
        cover.refuse(other)
    for node in graph:
        shuffle = channel_shuffle(graph, node)
        names = [n.name for n in shuffle or ()]
        if shuffle and not any(n in cover.owner for n in names) and not banned(names, cover.forbidden):
            cover.take(shuffle_draft(graph, shuffle))
    _rows(graph, cover)
    _pointwise(graph, cover)
    refused = {r.node: r for d in reversed(cover.drafts) for r in d.refusals}
    for node in graph:
        if node.name not in cover.owner:
            draft = single_draft(graph, node, _why_alone(graph, node, refused.get(node.name), cover.forbidden))
            cover.take(draft)
            cover.left.append(LeftAlone(node.name, node.op, draft.reason))


def _attentions(graph: Graph, dtype: DType, native: DType, cover: _Cover) -> list[Refusal]:
    """Attention before anchors: its products would be regions of their own, with the scores between them in memory.

    Gives what looked like attention and is none.
    """
    refused = []
    for node in graph:
        made = attention(graph, node, dtype, native) if node.name not in cover.owner else None
        if isinstance(made, Refusal):
            refused.append(made)
        elif made and not any(n in cover.owner for n in made.nodes) and not banned(made.nodes, cover.forbidden):
            cover.take(made)
            if not made.supported:
                cover.left.append(LeftAlone(node.name, node.op, made.reason))
    return refused


def _anchors(graph: Graph, dtype: DType, native: DType, cover: _Cover) -> None:
    """Regions around anchors. Where two meet in one Add, the one with more arithmetic for each byte takes it, since
    reading the other's result hides behind its arithmetic; of equals, the later one. No region can then wait for
    itself, whatever the order, because each has one way out.
    """
    position = {n.name: i for i, n in enumerate(graph)}
    anchors: list[tuple[float, int, Node, Anchor]] = []
    for node in graph:
        if node.op not in ANCHORS or node.name in cover.owner:
            continue
        anchor = supported_anchor(graph, node, dtype, native)
        if isinstance(anchor, Draft):
            cover.take(anchor)
            cover.left.append(LeftAlone(node.name, node.op, anchor.reason))
        else:
            intensity = anchor.workload.flops / anchor.workload.bytes
            anchors.append((-intensity, -position[node.name], node, anchor))
    for *_, anchor in sorted(anchors, key=lambda a: a[:2]):
        cover.take(anchor_draft(grow(graph, anchor, native, dtype, cover.taken, cover.forbidden)))


def _rows(graph: Graph, cover: _Cover) -> None:
    """Reductions with their pointwise neighbours."""

    def free(node: Node) -> bool:
        return node.name not in cover.owner and not (uncompilable(graph, node) or refusal(graph, node))

    def allowed(names: Sequence[str]) -> bool:
        return not banned(names, cover.forbidden)

    for group in row_groups(graph, free, cover.drafts, allowed):
        cover.take(row_draft(group))


def _pointwise(graph: Graph, cover: _Cover) -> None:
    """Pointwise nodes, from each last one backwards over producers that only this group reads."""
    position = {n.name: i for i, n in enumerate(graph)}
    for sink in reversed(graph.nodes):
        if not _free_pointwise(graph, sink, cover):
            continue
        group = {sink.name: sink}
        frontier = [sink]
        while frontier:
            node = frontier.pop()
            for producer in dict.fromkeys(filter(None, map(graph.producer, node.inputs))):
                if producer.name in group or not _free_pointwise(graph, producer, cover):
                    continue
                if cover.forbidden and banned([*group, producer.name], cover.forbidden):
                    continue
                readers = graph.consumers(producer.output)
                if not leaves_graph(graph, producer.output) and all(r.name in group for r in readers):
                    group[producer.name] = producer
                    frontier.append(producer)
        if len(group) > 1:
            cover.take(pointwise_draft(sorted(group.values(), key=lambda n: position[n.name])))


def _free_pointwise(graph: Graph, node: Node, cover: _Cover) -> bool:
    return (
        node.name not in cover.owner
        and kind_of(node.op) is Kind.POINTWISE
        and not (uncompilable(graph, node) or refusal(graph, node))
    )


def _why_alone(graph: Graph, node: Node, refused: Refusal | None, forbidden: Sequence[frozenset[str]]) -> str:
    if refused:
        return f"not fused into {refused.anchor}: {refused.reason}"
    ban = next((b for b in forbidden if node.name in b), None)
    if ban is not None:
        return banned([n.name for n in graph if n.name in ban], [ban]) or ""
    if kind_of(node.op) is not Kind.POINTWISE:
        return no_epilogue_form(node.op)
    producers = [p for p in map(graph.producer, node.inputs) if p]
    if not producers:
        return "it reads only inputs and constants of the model"
    return f"no GEMM or convolution produces its input; {producers[0].name} ({producers[0].op}) does"
