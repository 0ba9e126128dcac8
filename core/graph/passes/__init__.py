"""Passes over the graph, each Graph -> Graph, and the order they run in."""

from collections.abc import Callable

from core.graph.ir import Graph
from core.graph.passes.affine import decompose_batch_norm, fold_affine, fold_gemm_factors
from core.graph.passes.dead import remove_dead
from core.graph.passes.decompose import decompose
from core.graph.passes.dedupe import share_constants
from core.graph.passes.fold import fold_constants
from core.graph.passes.noop import remove_noops
from core.graph.passes.pad import fold_pad
from core.graph.passes.shapes import merge_layout

Pass = Callable[[Graph], Graph]
# Import folds constants while it infers shapes; fold_constants does it again for a graph that was changed since.
PASSES: tuple[Pass, ...] = (
    merge_layout, remove_noops, fold_gemm_factors, fold_affine, decompose_batch_norm, decompose, merge_layout,
    remove_noops, fold_pad, remove_dead, share_constants,
)  # fmt: skip


def simplify(graph: Graph, watch: Callable[[str, Graph, Graph], None] | None = None) -> Graph:
    """Every pass in order. `watch` is told (pass name, graph before, graph after)."""
    for step in PASSES:
        after = step(graph)
        if watch:
            watch(step.__name__, graph, after)
        graph = after
    return graph


__all__ = ["PASSES", "Pass", "fold_constants", "simplify"]
