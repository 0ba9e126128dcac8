"""Chains of Reshape and of Transpose. Proves: both move no element relative to row-major order, or permute by one
permutation, so two in a row are one; and a Reshape's target is its output's inferred shape.
"""

from dataclasses import replace

import numpy as np

from core.graph.ir import Graph, Node, TensorType
from core.graph.walk import Names, names_of
from templates.types import DType


def merge_layout(graph: Graph) -> Graph:
    """Joins a Reshape with the Reshape it alone reads from, a Transpose likewise; gives Reshape its static target."""
    names: Names = names_of(graph)
    constants, types, absorbed = dict(graph.constants), dict(graph.types), dict(graph.absorbed)
    kept: dict[str, Node] = {}
    maker = {t: n.name for n in graph.nodes for t in n.outputs}
    for node in graph.nodes:
        above = kept.get(maker.get(node.inputs[0], "")) if node.inputs else None
        merged = _merged(graph, above, node) if above is not None else None
        if merged is not None and above is not None:
            del kept[above.name]
            absorbed[above.name] = f"joined with {node.name}"
            node = merged  # noqa: PLW2901
        target = _static_target(graph, node)
        if target is not None:
            name = names.take(f"{node.name}/target")
            constants[name], types[name] = target, TensorType(DType.I64, target.shape)
            node = replace(node, inputs=(node.inputs[0], name), attrs={})  # noqa: PLW2901
        kept[node.name] = node
    return graph.replaced(kept.values(), constants=constants, types=types, absorbed=absorbed)


def _merged(graph: Graph, above: Node, node: Node) -> Node | None:
    """`node` reading what `above` reads, if only it reads `above`."""
    middle = node.inputs[0]
    if node.op != above.op or node.op not in ("Reshape", "Transpose") or node.domain or above.domain:
        return None
    if middle in graph.outputs or graph.consumers(middle) != (node,) or node.output not in graph.types:
        return None
    if node.op == "Reshape":
        return replace(node, inputs=(above.inputs[0], *node.inputs[1:]), attrs={})
    outer, inner = node.attrs["perm"], above.attrs["perm"]
    return replace(node, inputs=above.inputs, attrs={"perm": tuple(inner[p] for p in outer)})


def _static_target(graph: Graph, node: Node) -> np.ndarray | None:
    """The target a Reshape should have, None if it has it or its output's type is unknown."""
    if node.op != "Reshape" or node.domain or node.output not in graph.types:
        return None
    wanted = graph.shape(node.output)
    given = graph.constant(node.inputs[1])
    if given is not None and not node.attrs and tuple(given.tolist()) == wanted:
        return None
    return np.array(wanted, np.int64)
