"""Constant folding. Proves: a replaced tensor has the value ONNX's reference evaluator computes for its node."""

from core.graph.ir import Graph
from core.graph.walk import Walker, names_of


def fold_constants(graph: Graph) -> Graph:
    """Replaces nodes whose inputs are constants, and Shape and Size, by their values; infers every type again.

    Results are folded up to 64 MiB, or the size of what they are made from. Raises ModelError if the graph is wrong.
    """
    walker = Walker(graph.opset, names_of(graph), graph.types)
    for tensor in graph.inputs:
        walker.add_input(tensor, graph.types[tensor])
    for tensor, value in graph.constants.items():
        walker.add_constant(tensor, value)
    for node in graph.nodes:
        walker.add(node)
    folded = walker.finish(graph.name, graph.inputs, graph.outputs)
    return folded.replaced(folded.nodes, absorbed={**graph.absorbed, **folded.absorbed})
