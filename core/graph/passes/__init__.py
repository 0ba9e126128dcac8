"""Passes over the graph, each Graph -> Graph, and the order they run in."""

from collections.abc import Callable

from core.graph.ir import Graph
from core.graph.passes.affine import decompose_batch_norm, fold_affine
from core.graph.passes.dead import remove_dead
from core.graph.passes.noop import remove_noops

Pass = Callable[[Graph], Graph]
PASSES: tuple[Pass, ...] = (remove_noops, fold_affine, decompose_batch_norm, remove_dead)


def simplify(graph: Graph, watch: Callable[[str, Graph, Graph], None] | None = None) -> Graph:
    """Every pass in order. `watch` is told (pass name, graph before, graph after)."""
    for step in PASSES:
        after = step(graph)
        if watch:
            watch(step.__name__, graph, after)
        graph = after
    return graph
