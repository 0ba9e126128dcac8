"""From drafts of regions to a plan: execution order, stable ids, the tensors that cross each border."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.errors import PlanError
from core.fusion.plan import FusionPlan, Kind, LeftAlone, Operands, Refusal, Region
from core.fusion.values import listed
from core.graph.ir import Graph
from templates.types import DType
from templates.workload import Workload


@dataclass(frozen=True)
class Draft:
    """A region before its place in the order is known."""

    kind: Kind
    nodes: tuple[str, ...]
    reason: str
    workload: Workload | None = None
    operands: Operands | None = None
    supported: bool = True
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Objection:
    """Why nodes can't be one region, and the node that stands in the way."""

    reason: str
    node: str


def assemble(
    graph: Graph,
    dtype: DType,
    drafts: Sequence[Draft],
    left_alone: Iterable[LeftAlone],
    forbidden: Sequence[frozenset[str]] = (),
) -> FusionPlan:
    """The plan of these drafts, which hold every node once. Regions run in topological order, the earliest anchor
    first, and are named r0, r1, ... in that order. Raises PlanError if two regions wait for each other.
    """
    position = {node.name: i for i, node in enumerate(graph)}
    owner = {name: i for i, draft in enumerate(drafts) for name in draft.nodes}
    waits: list[set[int]] = [set() for _ in drafts]
    for node in graph:
        for tensor in node.inputs:
            producer = graph.producer(tensor)
            if producer is not None and owner[producer.name] != owner[node.name]:
                waits[owner[node.name]].add(owner[producer.name])
    readers: list[list[int]] = [[] for _ in drafts]
    for region, before in enumerate(waits):
        for other in before:
            readers[other].append(region)
    first = [min(position[name] for name in draft.nodes) for draft in drafts]
    ready = [(first[i], i) for i, before in enumerate(waits) if not before]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, region = heapq.heappop(ready)
        order.append(region)
        for reader in readers[region]:
            waits[reader].discard(region)
            if not waits[reader]:
                heapq.heappush(ready, (first[reader], reader))
    if len(order) < len(drafts):
        stuck = [drafts[i].nodes[0] for i, before in enumerate(waits) if before and i not in order]
        raise PlanError(f"regions wait for each other in a circle: those of {listed(stuck)}", "take one apart")
    regions = tuple(_region(graph, f"r{i}", drafts[d], position) for i, d in enumerate(order))
    left = sorted(left_alone, key=lambda x: position[x.node])
    refusals = sorted((r for d in drafts for r in d.refusals), key=lambda r: (position[r.anchor], position[r.node]))
    bans = sorted(tuple(sorted(ban, key=position.__getitem__)) for ban in forbidden)
    return FusionPlan(graph.name, regions, tuple(left), tuple(refusals), dtype, tuple(bans))


def borders(graph: Graph, nodes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tensors the nodes read from outside (constants included), and those that others or the model read from them."""
    inside = set(nodes)
    made = {t for name in nodes for t in graph.node(name).outputs if t}
    inputs = dict.fromkeys(t for name in nodes for t in graph.node(name).inputs if t and t not in made)
    outputs = [
        t
        for name in nodes
        for t in graph.node(name).outputs
        if t and (t in graph.outputs or any(r.name not in inside for r in graph.consumers(t)))
    ]
    return tuple(inputs), tuple(outputs)


def _region(graph: Graph, region_id: str, draft: Draft, position: dict[str, int]) -> Region:
    nodes = tuple(sorted(draft.nodes, key=position.__getitem__))
    inputs, outputs = borders(graph, nodes)
    return Region(
        region_id, draft.kind, nodes, inputs, outputs, draft.reason, draft.workload, draft.operands, draft.supported
    )
