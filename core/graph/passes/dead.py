"""Dead code. Proves: what is removed is read by no kept node and is no graph output."""

from core.graph.ir import Graph, Node


def remove_dead(graph: Graph) -> Graph:
    """Drops nodes, constants and types that no graph output depends on; graph inputs stay."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    absorbed = dict(graph.absorbed)
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            absorbed[node.name] = "removed, no output depends on it"
            continue
        needed.update(t for t in node.inputs if t)
        kept.append(node)
    kept.reverse()
    alive = needed.union(graph.inputs, *(n.outputs for n in kept))
    return graph.replaced(
        kept,
        constants={k: v for k, v in graph.constants.items() if k in needed},
        types={k: v for k, v in graph.types.items() if k in alive},
        untyped={k: v for k, v in graph.untyped.items() if k in alive},
        absorbed=absorbed,
    )
