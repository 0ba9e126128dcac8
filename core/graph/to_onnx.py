"""Back to ONNX: a graph, whole or cut out of another, as a model that checkers accept and ONNX Runtime runs."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from core.errors import ModelError
from core.graph.ir import Graph, Node
from core.graph.proto import INPUT_SCALE, node_proto, numpy_dtype, tensor_proto, type_of, type_proto
from core.graph.walk import names_of

if TYPE_CHECKING:
    from onnx import ModelProto


def to_model(graph: Graph) -> "ModelProto":
    """The model of the graph's nodes, inputs, outputs and the constants they read; every tensor's type is written down.

    Raises ModelError for tensors of unknown type among the inputs or outputs, and for nodes that hold subgraphs.
    """
    from onnx import helper

    graph = _with_scales(graph)
    for name in (*graph.inputs, *graph.outputs):
        if name not in graph.types:
            raise ModelError(f"the type of tensor {name!r} is not known: {graph.untyped.get(name, 'no node makes it')}")
    read = {t for n in graph.nodes for t in n.inputs if t}
    made = [t for n in graph.nodes for t in n.outputs if t]
    known = {t: graph.types[t] for t in (*graph.inputs, *made) if t in graph.types}
    infos = {t: helper.make_value_info(t, type_proto(known[t])) for t in known}
    proto = helper.make_graph(
        [node_proto(n) for n in graph.nodes],
        graph.name or "graph",
        [infos[t] for t in graph.inputs],
        [infos[t] for t in graph.outputs],
        [tensor_proto(v, t) for t, v in graph.constants.items() if t in read],
        value_info=[infos[t] for t in made if t in infos and t not in graph.outputs],
    )
    imports = [helper.make_opsetid("", graph.opset)]
    imports += [helper.make_opsetid(d, 1) for d in sorted({n.domain for n in graph.nodes if n.domain})]
    ir_version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
    return helper.make_model(proto, opset_imports=imports, ir_version=ir_version, producer_name="bolt-workbench")


def _with_scales(graph: Graph) -> Graph:
    """`input_scale` of Softmax as a Mul of its own."""
    if not any(INPUT_SCALE in n.attrs for n in graph.nodes):
        return graph
    names = names_of(graph)
    constants, types = dict(graph.constants), dict(graph.types)
    nodes: list[Node] = []
    for node in graph.nodes:
        if INPUT_SCALE in node.attrs:
            read = node.inputs[0]
            factor, product = names.take(f"{node.name}/{INPUT_SCALE}"), names.take(f"{read}/scaled")
            constants[factor] = np.array(node.attrs[INPUT_SCALE], numpy_dtype(types[read].dtype))
            types[factor], types[product] = type_of(constants[factor]), types[read]
            nodes.append(Node(names.take(f"{node.name}/scale"), "Mul", (read, factor), (product,)))
            node = replace(node, inputs=(product, *node.inputs[1:]))  # noqa: PLW2901
        nodes.append(node)
    return graph.replaced(nodes, constants=constants, types=types)
