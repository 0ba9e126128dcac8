"""A graph as text, one node a line: what passes print before and after."""

from core.errors import printable
from core.graph.ir import Graph, Node


def describe(graph: Graph) -> str:
    """Inputs, nodes in order with the types of their outputs, outputs, and what became of removed nodes."""
    lines = [f"graph {graph.name!r}, opset {graph.opset}, {len(graph.nodes)} nodes"]
    lines += [f"  input {_tensor(graph, t)}" for t in graph.inputs]
    lines += [f"  {_node(graph, n)}" for n in graph.nodes]
    lines += [f"  output {_tensor(graph, t)}" for t in graph.outputs]
    lines += [f"  absorbed {name!r}: {what}" for name, what in graph.absorbed.items()]
    return "\n".join(lines)


def _node(graph: Graph, node: Node) -> str:
    inputs = ", ".join(_operand(graph, t) for t in node.inputs)
    attrs = "".join(f" {printable(k)}={v!r}" for k, v in sorted(node.attrs.items()))
    outputs = ", ".join(_tensor(graph, t) for t in node.outputs if t)
    return f"{outputs} = {printable(node.op)}({inputs}){attrs}  # {node.name!r}"


def _operand(graph: Graph, tensor: str) -> str:
    value = graph.constant(tensor)
    if value is None:
        return repr(tensor) if tensor else "-"
    if value.size <= 8:
        return f"{tensor!r}={value.tolist()}"
    return f"{_tensor(graph, tensor)} const"


def _tensor(graph: Graph, tensor: str) -> str:
    known = graph.types.get(tensor)
    return f"{tensor!r}:{known.dtype}{list(known.shape)}" if known else f"{tensor!r}:?"
