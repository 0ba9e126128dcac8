"""The graph's wiring, before any type is known: names, order, who makes what."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from core.errors import ModelError
from core.graph.ir import Node
from core.graph.proto import attributes
from core.graph.walk import Names

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


@dataclass(frozen=True)
class Wiring:
    """Nodes in topological order with unique names; `inputs` without the initializers listed among them."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    names: Names


def wire(graph: "GraphProto", opset: int) -> Wiring:
    """Raises ModelError for a tensor made twice, read but never made, or made from itself, and for a node without its
    first input or with an attribute of another type than the operator's.
    """
    _refuse_bytes(graph)
    initial = [t.name for t in graph.initializer]
    if graph.sparse_initializer:
        raise ModelError("the model has sparse initializers, which are not supported", "export it with dense weights")
    known = set(initial)
    inputs = tuple(v.name for v in graph.input if v.name not in known)
    outputs = tuple(v.name for v in graph.output)
    made = [t for n in graph.node for t in n.output if t]
    _refuse_duplicates([*initial, *inputs, *made])
    if not all((*initial, *inputs, *outputs)):
        raise ModelError("a graph input, output or initializer has no name", "export the model again")
    if not outputs:
        raise ModelError("the model has no outputs", "export it again")
    known.update(inputs)
    nodes = _sorted(list(graph.node), known)
    dangling = next((t for t in outputs if t not in known and t not in set(made)), None)
    if dangling is not None:
        raise ModelError(f"graph output {dangling!r} is made by no node and is no initializer")
    if direct := next((t for t in outputs if t in inputs), None):
        raise ModelError(f"graph output {direct!r} is itself a graph input", "remove it from the outputs")
    names = Names({*known, *made})
    return Wiring(tuple(_named(nodes, opset)), inputs, tuple(dict.fromkeys(outputs)), names)


def _refuse_bytes(graph: "GraphProto") -> None:
    """protobuf hands out a string that is not UTF-8 as bytes."""
    texts: list[object] = [graph.name, *(t.name for t in graph.initializer)]
    for value in (*graph.input, *graph.output):
        texts += [value.name, *(d.dim_param for d in value.type.tensor_type.shape.dim)]
    for node in graph.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute)]
    for entry in (e for t in graph.initializer for e in t.external_data):
        texts += [entry.key, entry.value]
    if broken := next((t for t in texts if not isinstance(t, str)), None):
        raise ModelError(f"the name {broken!r} in the model is not UTF-8 text", "export or copy it again")


def _refuse_duplicates(tensors: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in tensors:
        if name in seen:
            raise ModelError(
                f"tensor {name!r} is defined twice", "every tensor needs one origin; export the model again"
            )
        seen.add(name)


def _reads(node: "NodeProto") -> list[str]:
    """The tensors a node reads, and those its subgraphs take from outside."""
    found = [t for t in node.input if t]
    for attribute in node.attribute:
        for sub in [attribute.g, *attribute.graphs]:
            own = {v.name for v in sub.input} | {t.name for t in sub.initializer}
            for inner in sub.node:
                found += [t for t in _reads(inner) if t not in own]
                own.update(inner.output)
            found += [v.name for v in sub.output if v.name not in own]
    return list(dict.fromkeys(found))


def _sorted(nodes: list["NodeProto"], known: set[str]) -> list["NodeProto"]:
    """In topological order, otherwise as in the file (Kahn's algorithm, smallest index first)."""
    producer = {t: i for i, n in enumerate(nodes) for t in n.output if t}
    readers: dict[int, list[int]] = {}
    waiting = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for tensor in _reads(node):
            if tensor in known:
                continue
            if tensor not in producer:
                raise ModelError(
                    f"node {node.name or i!r} ({node.op_type}) reads {tensor!r}, which is no input, no initializer "
                    "and no node's output"
                )
            readers.setdefault(producer[tensor], []).append(i)
            waiting[i] += 1
    ready = [i for i, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[NodeProto] = []
    while ready:
        i = heappop(ready)
        order.append(nodes[i])
        for reader in readers.get(i, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(n for i, n in enumerate(nodes) if waiting[i])
        raise ModelError(
            f"the graph has a cycle through node {stuck.name!r} ({stuck.op_type})", "export the model again"
        )
    return order


def _named(nodes: list["NodeProto"], opset: int) -> Iterable[Node]:
    """Unnamed nodes are called Op_number; of equal names all but the first get a number."""
    names = Names(())
    count: dict[str, int] = {}
    for proto in nodes:
        number = count[proto.op_type] = count.get(proto.op_type, -1) + 1
        name = names.take(proto.name or f"{proto.op_type}_{number}")
        if not proto.op_type:
            raise ModelError(f"node {name!r} has no operator")
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not domain:
            _check_form(proto, name, opset)
        inputs = list(proto.input)
        inner = [t for t in _reads(proto) if t not in inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        yield Node(name, proto.op_type, (*inputs, *inner), tuple(proto.output), attributes(proto), domain)


def _check_form(node: "NodeProto", name: str, opset: int) -> None:
    """Against the operator's schema; one that ONNX does not know is nobody's to check."""
    from onnx import AttributeProto, defs

    what = f"node {name!r} ({node.op_type})"
    if not defs.has(node.op_type, opset, ""):
        return
    schema = defs.get_schema(node.op_type, opset, "")
    given = list(node.input)
    if not schema.min_input <= len(given) <= schema.max_input:
        span = _span(schema.min_input, schema.max_input)
        raise ModelError(f"{what} is not formed as ONNX wants it: the number of inputs is {len(given)}, not {span}")
    for i in range(min(schema.min_input, len(schema.inputs))):
        if schema.inputs[i].option == defs.OpSchema.FormalParameterOption.Single and not given[i]:
            raise ModelError(f"{what} is not formed as ONNX wants it: it lacks input {schema.inputs[i].name!r}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        span = _span(schema.min_output, schema.max_output)
        raise ModelError(
            f"{what} is not formed as ONNX wants it: the number of outputs is {len(node.output)}, not {span}"
        )
    for attribute in node.attribute:
        if attribute.name not in schema.attributes:
            continue
        wanted = str(schema.attributes[attribute.name].type).rpartition(".")[2]
        found = AttributeProto.AttributeType.Name(attribute.type)
        if found != wanted:
            raise ModelError(
                f"{what} is not formed as ONNX wants it: attribute {attribute.name!r} has type {found}, not {wanted}"
            )


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}" if most < 2**31 - 1 else f"{least} or more"
