"""Back to ONNX: a graph, whole or cut out of another, as a model that checkers accept and ONNX Runtime runs."""

from typing import TYPE_CHECKING

from core.errors import ModelError
from core.graph.ir import Graph
from core.graph.proto import node_proto, tensor_proto, type_proto

if TYPE_CHECKING:
    from onnx import ModelProto


def to_model(graph: Graph) -> "ModelProto":
    """The model of the graph's nodes, inputs, outputs and the constants they read; every tensor's type is written down.

    Raises ModelError for tensors of unknown type among the inputs or outputs, and for nodes that hold subgraphs.
    """
    from onnx import helper

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
