"""From a model file or a built-in name to the simplified graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ModelError
from core.graph.ir import Graph, TensorType
from core.graph.passes import simplify
from core.graph.walk import Walker
from core.importer.batch import BatchWalker
from core.importer.inputs import check_symbolic_outputs, declared_kinds, input_kinds
from core.importer.normalise import normalise
from core.importer.read import opset_of, read_model, read_tensor
from core.importer.samples import build_sample, sample_names
from core.importer.structure import wire

if TYPE_CHECKING:
    from onnx import ModelProto

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
    wiring = wire(proto.graph, opset)
    inputs = input_kinds(proto.graph, wiring.inputs)
    constants = {t.name: read_tensor(t, folder) for t in proto.graph.initializer}
    declared = declared_kinds(proto.graph, inputs, batch)

    def walked(walker: Walker, kinds: Mapping[str, TensorType]) -> Graph:
        for tensor, value in constants.items():
            walker.add_constant(tensor, value)
        for tensor, kind in kinds.items():
            walker.add_input(tensor, kind)
        for node in wiring.nodes:
            for simple in normalise(node, opset, walker):
                walker.add(simple)
        return walker.finish(name, wiring.inputs, wiring.outputs)

    def plain(kinds: Mapping[str, TensorType]) -> tuple[Walker, Graph]:
        walker = Walker(max(CANONICAL_OPSET, opset), wiring.names.copy(), declared)
        graph = walked(walker, kinds)
        return walker, graph

    def rebatched(new: int) -> Graph:
        before, _ = plain(inputs.kinds)
        walker = BatchWalker(before, wiring.names.copy(), inputs.batch, new, inputs.batched)
        graph = walked(walker, inputs.with_batch(new))
        walker.check_outputs(graph)
        return graph

    if batch is None or batch == inputs.batch:
        return plain(inputs.kinds)[1]
    wanted = inputs.with_batch(batch)
    if not inputs.symbolic:
        return rebatched(batch)
    try:
        graph = plain(wanted)[1]
        check_symbolic_outputs(proto.graph, graph, inputs, batch)
        return graph
    except ModelError as error:
        # Exported with a symbolic batch, yet with the batch of its example baked into a constant.
        try:
            return rebatched(batch)
        except ModelError:
            raise error from None
