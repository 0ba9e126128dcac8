"""From a model file or a built-in name to the simplified graph."""

from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ModelError
from core.graph.infer import check_size
from core.graph.ir import Graph, TensorType
from core.graph.passes import simplify
from core.graph.proto import ELEMENT, element_name
from core.graph.walk import Walker
from core.importer.normalise import normalise
from core.importer.read import opset_of, read_model, read_tensor
from core.importer.samples import build_sample, sample_names
from core.importer.structure import wire

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

# The form every operator is brought to; newer models keep their opset, whose forms are the same.
CANONICAL_OPSET = 21


def load_graph(model: str | Path | bytes, batch: int | None = None) -> Graph:
    """Import and simplify: constants and BatchNorms folded, no-ops and dead code removed, every type known.

    `model` is a path, a built-in name (core.importer.samples) or the bytes of a model; `batch` sets the first
    dimension of the inputs (None: the model's own, 1 where it is symbolic). Raises ModelError.
    """
    return simplify(import_graph(model, batch))


def import_graph(model: str | Path | bytes, batch: int | None = None) -> Graph:
    """The graph in opset-21 form with constants folded, before any other pass. Raises ModelError."""
    if isinstance(model, str) and model in sample_names():
        return graph_of(build_sample(model), None, model, batch)
    proto, folder = read_model(model)
    name = proto.graph.name if isinstance(model, bytes) else Path(model).stem
    return graph_of(proto, folder, name, batch)


def graph_of(proto: "ModelProto", folder: Path | None, name: str, batch: int | None = None) -> Graph:
    """The graph of a message; external data is looked for in `folder`. Raises ModelError."""
    opset = opset_of(proto)
    wiring = wire(proto.graph)
    values = {v.name: v for v in proto.graph.input}
    walker = Walker(max(CANONICAL_OPSET, opset), wiring.names)
    for tensor in proto.graph.initializer:
        walker.add_constant(tensor.name, read_tensor(tensor, folder))
    for tensor_name in wiring.inputs:
        walker.add_input(tensor_name, _input_type(values[tensor_name], batch))
    for node in wiring.nodes:
        for simple in normalise(node, opset, walker):
            walker.add(simple)
    return walker.finish(name, wiring.inputs, wiring.outputs, {})


def _input_type(value: "ValueInfoProto", batch: int | None) -> TensorType:
    """The static type of a graph input, its first dimension set to the batch."""
    what = f"input {value.name!r}"
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"{what} is not a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type not in ELEMENT:
        raise ModelError(f"{what} has element type {element_name(tensor.elem_type)}, which is not supported")
    if not tensor.HasField("shape"):
        raise ModelError(f"{what} has no shape", "export the model with fixed input shapes")
    shape = []
    for i, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(batch if i == 0 and batch is not None else dim.dim_value)
        elif i == 0:
            shape.append(1 if batch is None else batch)
        else:
            raise ModelError(
                f"dimension {i} ({dim.dim_param or 'unnamed'}) of {what} is not fixed",
                "--batch only sets the first dimension; export the model with this one fixed",
            )
    check_size(tuple(shape), what)
    return TensorType(ELEMENT[tensor.elem_type], tuple(shape))
