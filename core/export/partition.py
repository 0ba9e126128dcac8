"""A graph with operators that have no kernel, cut into subgraphs that can be exported and the rest between them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import groupby

from core.export.operators import missing_kernels
from core.fusion.plan import FusionPlan
from core.graph.ir import Graph, Node


@dataclass(frozen=True)
class Stage:
    """A subgraph; stages run in order, each on the model's inputs and on what earlier ones made."""

    graph: Graph
    carried: bool  # by an exported library; else by ONNX Runtime


def not_carried(graph: Graph, plan: FusionPlan) -> set[str]:
    """Names of the nodes that can't be exported."""
    without = {node.name for node, _ in missing_kernels(graph)}
    return without | {name for r in plan.regions if not r.supported for name in r.nodes}


def partition(graph: Graph, left: Collection[str], worth: Callable[[Graph], bool]) -> list[Stage]:
    """Stages in the order to run them; the nodes named in `left` are in none that is carried.

    A node's level counts the changes between the two sides on the longest way to it. Nodes of one level and side form a
    stage: a way out of it and back would pass two changes, so none does. A carried stage for which `worth` is false
    goes to the other side.
    """
    left = set(left)
    while True:
        stages = _levels(graph, left)
        poor = [s for s in stages if s.carried and not worth(s.graph)]
        if not poor:
            return stages
        left |= {node.name for s in poor for node in s.graph}


def _levels(graph: Graph, left: Collection[str]) -> list[Stage]:
    level: dict[str, int] = {}
    for node in graph:
        side = node.name in left
        before = [p for t in node.inputs if t and (p := graph.producer(t)) is not None]
        # Even levels are carried.
        level[node.name] = max(
            (level[p.name] + ((p.name in left) != side) for p in before), default=int(side)
        )  # fmt: skip
    ordered = sorted(graph, key=lambda n: level[n.name])  # stable: each stage stays in topological order
    return [
        Stage(_cut(graph, list(nodes)), number % 2 == 0) for number, nodes in groupby(ordered, lambda n: level[n.name])
    ]


def _cut(graph: Graph, nodes: list[Node]) -> Graph:
    """The subgraph of these nodes; its outputs are what others read."""
    names = {n.name for n in nodes}
    made = {t for n in nodes for t in n.outputs if t}
    read = [t for n in nodes for t in n.inputs if t]
    inputs = tuple(dict.fromkeys(t for t in read if t not in made and t not in graph.constants))
    outputs = tuple(
        t for n in nodes for t in n.outputs
        if t and (graph.leaves(t) or any(c.name not in names for c in graph.consumers(t)))
    )  # fmt: skip
    types = {t: kind for t, kind in graph.types.items() if t in made or t in read}
    constants = {t: value for t, value in graph.constants.items() if t in types}
    untyped = {t: why for t, why in graph.untyped.items() if t in made or t in read}
    return graph.replaced(
        nodes, inputs=inputs, outputs=outputs, types=types, constants=constants, untyped=untyped, absorbed={}
    )
