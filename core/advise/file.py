"""A copy of a model's ONNX message that can be edited by the names that the graph gives nodes and tensors."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ModelError
from core.graph.ir import Graph
from core.graph.proto import numpy_dtype, tensor_proto
from core.graph.walk import Names
from core.importer.load import import_graph
from core.importer.read import opset_of, read_model, read_tensor
from core.importer.samples import build_sample, sample_names
from core.importer.structure import wire

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def open_file(model: str | Path) -> "ModelFile":
    """A model (a path or a built-in name) with its external data read in. Raises ModelError."""
    if isinstance(model, str) and model in sample_names():
        return ModelFile(build_sample(model), model)
    proto, folder = read_model(model)
    for tensor in proto.graph.initializer:
        if tensor.external_data:
            tensor.CopyFrom(tensor_proto(read_tensor(tensor, folder), tensor.name))
    return ModelFile(proto, str(model))


def save(proto: "ModelProto", path: Path) -> None:
    """Write a checked model; weights beyond protobuf's 2 GiB go to a file beside it. Raises ModelError."""
    import onnx

    large = proto.ByteSize() >= 2**31
    try:
        if not large:
            onnx.checker.check_model(proto)
        path.parent.mkdir(parents=True, exist_ok=True)
        if large:
            onnx.save(proto, path, save_as_external_data=True, location=f"{path.name}.data")
            onnx.checker.check_model(str(path))
        else:
            onnx.save(proto, path)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"the changed model is not valid ONNX: {error}", "please report this defect") from None
    except OSError as error:
        raise ModelError(f"{path} can't be written ({error.strerror or error})", "choose another place") from None


class ModelFile:
    """`proto` is edited in place; nodes go by the names of the importer, whether the file names them or not."""

    def __init__(self, proto: "ModelProto", source: str) -> None:
        self.proto = proto
        self.source = source
        self.opset = opset_of(proto)
        self._names: Names | None = None
        wired = wire(proto.graph, self.opset)
        by_output = {t: n.name for n in wired.nodes for t in n.outputs if t}
        for node in proto.graph.node:
            known = next((by_output[t] for t in node.output if t in by_output), "")
            node.name = known or node.name

    @cached_property
    def graph(self) -> Graph:
        """The file as the importer reads it, before any pass."""
        return import_graph(self.source)

    @cached_property
    def _varying(self) -> set[str]:
        """Tensors that depend on the model's inputs."""
        fixed = {t.name for t in self.proto.graph.initializer}
        found = {v.name for v in self.proto.graph.input} - fixed
        for node in self._ordered():
            if any(t in found for t in node.input):
                found.update(t for t in node.output if t)
        return found

    def _ordered(self) -> "list[NodeProto]":
        by_name = {n.name: n for n in self.proto.graph.node}
        return [by_name[n.name] for n in wire(self.proto.graph, self.opset).nodes]

    def fresh(self, wanted: str) -> str:
        """A name that no node or tensor has."""
        if self._names is None:
            graph = self.proto.graph
            made = {t for n in graph.node for t in (n.name, *n.input, *n.output)}
            self._names = Names({*made, *(t.name for t in graph.initializer), *(v.name for v in graph.input)})
        return self._names.take(wanted)

    def name_of(self, node: "NodeProto") -> str:
        return str(node.name)

    def nodes_named(self, names: Sequence[str]) -> "list[NodeProto]":
        """The file's nodes of those names, in the file's order; names that the importer made up are passed over.

        Raises ModelError if there are none.
        """
        wanted = set(names)
        found = [n for n in self.proto.graph.node if n.name in wanted]
        if not found:
            raise ModelError(f"the file has no node {names[0]!r}", "it was made on import; change the model's source")
        return found

    def border(self, group: "Sequence[NodeProto]", what: str) -> tuple[str, str]:
        """The one tensor that the nodes read and the one that leaves them. Raises ModelError if there are others."""
        made = {t for n in group for t in n.output if t}
        inner = {n.name for n in group}
        read = {t for n in group for t in n.input if t in self._varying and t not in made}
        outputs = {v.name for v in self.proto.graph.output}
        readers = {t for n in self.proto.graph.node if n.name not in inner for t in n.input}
        leaving = {t for t in made if t in readers or t in outputs}
        if len(read) != 1 or len(leaving) != 1:
            raise ModelError(f"{what} is not one function of one tensor in the file", "change it in the model's source")
        return read.pop(), leaving.pop()

    def replace(self, group: "Sequence[NodeProto]", made: "Sequence[NodeProto]") -> None:
        """Put nodes where the last of the group stands, and take the group out."""
        nodes = self.proto.graph.node
        gone = {n.name for n in group}
        at = max(i for i, n in enumerate(nodes) if n.name in gone)
        kept = [*(n for n in nodes[:at] if n.name not in gone), *made, *nodes[at + 1 :]]
        copies = [_copied(n) for n in kept]
        del nodes[:]
        nodes.extend(copies)
        self.__dict__.pop("_varying", None)

    def insert_behind(self, tensor: str, made: "Sequence[NodeProto]") -> None:
        """Put nodes behind the one that makes the tensor."""
        nodes = self.proto.graph.node
        at = next(i for i, n in enumerate(nodes) if tensor in n.output)
        for offset, node in enumerate(made, 1):
            nodes.insert(at + offset, node)

    def renamed(self, tensor: str, wanted: str) -> str:
        """Give what makes the tensor another output name, so that a new node can make the tensor. Raises ModelError."""
        name = self.fresh(wanted)
        for node in self.proto.graph.node:
            for i, output in enumerate(node.output):
                if output == tensor:
                    node.output[i] = name
                    return name
        raise ModelError(f"the file has no tensor {tensor!r}", "it was made on import; change the model's source")

    def numpy_dtype(self, tensor: str) -> np.dtype[Any]:
        return numpy_dtype(self.graph.types[tensor].dtype)

    def constant(self, wanted: str, value: np.ndarray) -> str:
        """A new initializer."""
        name = self.fresh(wanted)
        self.proto.graph.initializer.append(tensor_proto(value, name))
        return name

    def scalar(self, wanted: str, value: float, like: str) -> str:
        """A new constant of one value, of the type of tensor `like`."""
        return self.constant(wanted, np.array(value, self.numpy_dtype(like)))

    def set_constant(self, node: str, name: str, value: np.ndarray) -> None:
        """Another value for a constant that the node reads; other readers keep the old one.

        A constant that the importer made of an attribute is passed over. Raises ModelError for one that nodes of the
        file compute, or that another node of the file reads in its place.
        """
        weights = next((t for t in self.proto.graph.initializer if t.name == name), None)
        maker = next((n for n in self.proto.graph.node if name in n.output), None)
        if weights is None and maker is None:
            return
        if maker is not None and maker.op_type != "Constant":
            raise ModelError(
                f"{name!r} is computed in the file, by {maker.name} ({maker.op_type})", "fold constants first"
            )
        readers = [n for n in self.proto.graph.node if name in n.input]
        reader = next((n for n in readers if n.name == node), None)
        if reader is None:
            raise ModelError(f"the file has no node {node!r} that reads {name!r}", "change it in the model's source")
        if weights is not None and len(readers) == 1 and name not in {v.name for v in self.proto.graph.output}:
            weights.CopyFrom(tensor_proto(value, name))
            return
        own = self.constant(f"{name}/{node}", value)
        for i, read in enumerate(reader.input):
            if read == name:
                reader.input[i] = own


def _copied(node: "NodeProto") -> "NodeProto":
    other = type(node)()
    other.CopyFrom(node)
    return other
