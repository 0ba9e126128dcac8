"""Nodes that change nothing. Proves: the output equals the input, element for element, in type and shape."""

from dataclasses import replace

import numpy as np

from core.graph.ir import Graph, Node


def remove_noops(graph: Graph) -> Graph:
    """Removes Identity, Cast, Reshape, Transpose, Expand, Pad, Slice, Concat and arithmetic that change nothing.

    Readers read the input instead. The name of a graph output survives: its no-op is removed by renaming what it
    reads, or kept where that is a graph input, a constant or another output.
    """
    source: dict[str, str] = {}
    renamed: dict[str, str] = {}
    absorbed = dict(graph.absorbed)
    outputs = set(graph.outputs)
    kept: list[Node] = []
    for node in graph.nodes:
        read = source.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        if not _changes_nothing(graph, node):
            kept.append(node)
        elif node.output not in outputs:
            source[node.output] = read
            absorbed[node.name] = "removed, it changes nothing"
        elif graph.producer(read) and read not in outputs and read not in renamed:
            renamed[read] = node.output
            absorbed[node.name] = "removed, it changes nothing"
        else:
            kept.append(node)
    if not source and not renamed:
        return graph

    def final(tensor: str) -> str:
        tensor = source.get(tensor, tensor)
        return renamed.get(tensor, tensor)

    nodes = [replace(n, inputs=tuple(map(final, n.inputs)), outputs=tuple(renamed.get(t, t) for t in n.outputs))
             for n in kept]  # fmt: skip
    return graph.replaced(nodes, absorbed=absorbed)


def _changes_nothing(graph: Graph, node: Node) -> bool:
    if node.domain or not node.inputs or node.inputs[0] not in graph.types or node.output not in graph.types:
        return False
    if node.op == "Identity":
        return True
    if len(node.outputs) > 1 or graph.types[node.inputs[0]] != graph.types[node.output]:
        return False
    if node.op == "Transpose":
        shape = graph.shape(node.inputs[0])
        moved = [p for p in node.attrs["perm"] if shape[p] > 1]
        return moved == sorted(moved)
    if node.op in ("Cast", "Reshape", "Expand", "Tile"):
        return True
    if node.op == "Concat":
        return len(node.inputs) == 1
    if node.op == "Pad":
        pads = graph.constant(node.inputs[1])
        return pads is not None and not pads.any()
    if node.op == "Slice":
        steps = graph.constant(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        return steps is not None and bool((steps == 1).all())
    neutral = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}.get(node.op)
    if neutral is not None:
        other = graph.constant(node.inputs[1])
        return other is not None and bool((other == neutral).all())
    return False
