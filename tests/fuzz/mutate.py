"""Structure-aware mutations of an ONNX model: each knows what a model is made of, and breaks one rule of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from tests.fuzz.seeds import FLOATS, INTS, add_attribute, cut, seeds, single, subgraph

Mutation = Callable[[onnx.ModelProto, random.Random], None]
NAMES = [
    "", " ", "a\nb\r\nc", '"; system("id"); //', "$(id)", "`id`", "../../etc/passwd", "/etc/passwd", "%s%n%x", "\0",
    "*/ #include <evil.h> /*", "{{ 7*7 }}", "{% for x in y %}", "'''\"\"\"\\", "??/", "é✓\u202e\u2028", "-o/tmp/x",
    "A" * 70000, "CON", "null", "int", "main", "__class__", "'; DROP TABLE gpus; --", "<script>alert(1)</script>",
]  # fmt: skip
_LOCATIONS = [
    "../x",
    "/etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "a/../../b",
    "",
    ".",
    "w.bin",
    "\\\\host\\x",
    "a\0b",
]


def _node(proto: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    return rng.choice(proto.graph.node) if proto.graph.node else proto.graph.node.add(op_type="Relu", input=["start"])


def _tensors(proto: onnx.ModelProto) -> list[str]:
    graph = proto.graph
    made = [t for n in graph.node for t in n.output]
    return [*(v.name for v in graph.input), *(t.name for t in graph.initializer), *made] or ["x"]


def drop_node(proto: onnx.ModelProto, rng: random.Random) -> None:
    if proto.graph.node:
        del proto.graph.node[rng.randrange(len(proto.graph.node))]


def repeat_node(proto: onnx.ModelProto, rng: random.Random) -> None:
    """The same node again, mostly with results of its own that take the first one's place for a reader."""
    node = _node(proto, rng)
    proto.graph.node.append(node)
    if node.output and rng.random() < 0.9:
        proto.graph.node[-1].output[0] = "again"
        rng.choice(proto.graph.node).input.append("again")


def insert_node(proto: onnx.ModelProto, rng: random.Random) -> None:
    """A node between a tensor and one of its readers: what separates two operators that would be fused."""
    reader = _node(proto, rng)
    if not reader.input or "between" in _tensors(proto):
        return
    at = rng.randrange(len(reader.input))
    tensor = reader.input[at]
    op = rng.choice(["Relu", "Identity", "Transpose", "Reshape", "Flatten", "Cast", "Add", "Mul", "Pad", "Slice",
                     "Concat", "Softmax", "Clip", "Dropout", "BatchNormalization", "MaxPool", "Shape", "MatMul",
                     "Squeeze", "Unsqueeze", "Split", "Gather", "ReduceMean", "LayerNormalization"])  # fmt: skip
    schema = defs.get_schema(op)
    inputs = [tensor, *(rng.choice([tensor, *_tensors(proto)]) for _ in range(max(schema.min_input, 1) - 1))]
    node = helper.make_node(op, inputs, ["between"], "inserted")
    for attribute in schema.attributes.values():
        if attribute.required or rng.random() < 0.4:
            add_attribute(node, attribute.name, attribute.type.value, rng)
    reader.input[at] = "between"
    proto.graph.node.append(node)


def shuffle_nodes(proto: onnx.ModelProto, rng: random.Random) -> None:
    nodes = list(proto.graph.node)
    rng.shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def rewire(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Any tensor in place of an input: other types, other shapes, cycles."""
    node = _node(proto, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*_tensors(proto), ""])


def change_arity(proto: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(proto, rng)
    ends = rng.choice([node.input, node.output])
    if ends and rng.random() < 0.5:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.choice([*_tensors(proto), "new", ""]))


def change_operator(proto: onnx.ModelProto, rng: random.Random) -> None:
    known = sorted({s.name for s in defs.get_all_schemas() if not s.domain})
    node = _node(proto, rng)
    node.op_type = rng.choice([*known, rng.choice(NAMES)])
    if rng.random() < 0.1:
        node.domain = rng.choice(["ai.onnx", "ai.onnx.ml", "my.domain", *NAMES])


def rename(proto: onnx.ModelProto, rng: random.Random) -> None:
    """One tensor or node by another's name, none, or a hostile one; a tensor everywhere or in one place."""
    new = rng.choice(NAMES if rng.random() < 0.8 else _tensors(proto))
    if rng.random() < 0.3:
        _node(proto, rng).name = new
        return
    old, everywhere = rng.choice(_tensors(proto)), rng.random() < 0.8
    for ends in (e for n in proto.graph.node for e in (n.input, n.output)):
        for i, name in enumerate(ends):
            if name == old:
                ends[i] = new
                if not everywhere:
                    return
    for named in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        if named.name == old:
            named.name = new


def change_attribute(proto: onnx.ModelProto, rng: random.Random) -> None:
    """A value replaced by a hostile one of the same type, or the type as well, or a new attribute."""
    node = _node(proto, rng)
    if node.attribute and rng.random() < 0.7:
        at = rng.randrange(len(node.attribute))
        name, kind = node.attribute[at].name, node.attribute[at].type
        changed = node.attribute[at]
        if kind == onnx.AttributeProto.INTS and changed.ints and rng.random() < 0.6:
            changed.ints[rng.randrange(len(changed.ints))] = rng.choice(INTS)
            return
        if kind == onnx.AttributeProto.TENSOR and rng.random() < 0.7:
            _break_tensor(changed.t, rng)
            return
        del node.attribute[at]
        add_attribute(node, name, kind if rng.random() < 0.8 else rng.randint(0, 13), rng)
        return
    name, kind = rng.choice(NAMES), rng.randint(0, 13)
    if defs.has(node.op_type) and defs.get_schema(node.op_type).attributes:
        schema = rng.choice(list(defs.get_schema(node.op_type).attributes.values()))
        name, kind = schema.name, schema.type.value
    add_attribute(node, name, kind, rng)


def drop_attribute(proto: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(proto, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def change_shape(proto: onnx.ModelProto, rng: random.Random) -> None:
    """A declared shape or element type, of an input, an output or an inner tensor."""
    declared = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    if not declared:
        return
    tensor = rng.choice(declared).type.tensor_type
    if rng.random() < 0.2:
        tensor.elem_type = rng.randint(0, 30)
        return
    dims = tensor.shape.dim
    if rng.random() < 0.2:
        dims.add().dim_value = rng.choice(INTS)
    elif dims and rng.random() < 0.15:
        del dims[rng.randrange(len(dims))]
    elif dims:
        dim = rng.choice(dims)
        if rng.random() < 0.3:
            dim.dim_param = rng.choice(["N", "batch", *NAMES])
        else:
            dim.dim_value = rng.choice([*INTS, 5, 17, 1000, 65536])


def untype(proto: onnx.ModelProto, rng: random.Random) -> None:
    if proto.graph.input:
        rng.choice(proto.graph.input).ClearField("type")


def declare(proto: onnx.ModelProto, rng: random.Random) -> None:
    """A statement about an inner tensor that nothing backs."""
    shape = rng.choices(INTS, k=rng.randint(0, 5))
    proto.graph.value_info.append(helper.make_tensor_value_info(rng.choice(_tensors(proto)), 1, shape))


def break_weight(proto: onnx.ModelProto, rng: random.Random) -> None:
    if proto.graph.initializer:
        _break_tensor(rng.choice(proto.graph.initializer), rng)


def _break_tensor(tensor: TensorProto, rng: random.Random) -> None:
    way = rng.randrange(6)
    if way == 0:
        tensor.data_type = rng.randint(-1, 30)
    elif way == 1:
        tensor.dims.extend([rng.choice(INTS)])
    elif way == 2 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTS)
    elif way == 3:
        tensor.raw_data = tensor.raw_data[: rng.randint(0, len(tensor.raw_data))]
    elif way == 4:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", rng.choice(_LOCATIONS)), ("offset", str(rng.choice(INTS))),
                           ("length", rng.choice(["", "x", "16", str(2**62)]))):  # fmt: skip
            tensor.external_data.add(key=key, value=value)
    else:
        _hostile_values(tensor, rng)


def _hostile_values(tensor: TensorProto, rng: random.Random) -> None:
    """NaN and infinity among weights, huge and negative extents among shapes, axes and pads."""
    if tensor.data_location == TensorProto.EXTERNAL:  # onnx would read any file
        return
    try:
        value = numpy_helper.to_array(tensor).copy()
    except (ValueError, TypeError, OverflowError, KeyError):
        return
    if value.size == 0 or value.dtype.kind not in "iuf":
        return
    flat = value.reshape(-1)
    with np.errstate(all="ignore"):
        for _ in range(rng.randint(1, 3)):
            wanted = rng.choice(FLOATS if value.dtype.kind == "f" else [0, 1, 2, -1, -2, *INTS])
            flat[rng.randrange(flat.size)] = np.array(wanted).astype(value.dtype)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def repeat_weight(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Twice the same initializer, or one that is called as an input or a node's output."""
    if proto.graph.initializer:
        proto.graph.initializer.append(rng.choice(proto.graph.initializer))
        proto.graph.initializer[-1].name = rng.choice(_tensors(proto))


def weight_to_input(proto: onnx.ModelProto, rng: random.Random) -> None:
    """What every rule takes for constant comes at run time."""
    if proto.graph.initializer:
        at = rng.randrange(len(proto.graph.initializer))
        tensor = proto.graph.initializer[at]
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        del proto.graph.initializer[at]


def change_opset(proto: onnx.ModelProto, rng: random.Random) -> None:
    if not proto.opset_import or rng.random() < 0.1:
        proto.opset_import.add(domain=rng.choice(["", "ai.onnx", "x"]), version=rng.choice(INTS))
    else:
        rng.choice(proto.opset_import).version = rng.choice([6, 7, 8, 9, 10, 11, 12, 13, 15, 18, 19, 20, 22, 23, 24])


def change_outputs(proto: onnx.ModelProto, rng: random.Random) -> None:
    if proto.graph.output and rng.random() < 0.3:
        del proto.graph.output[rng.randrange(len(proto.graph.output))]
    else:
        proto.graph.output.append(helper.make_empty_tensor_value_info(rng.choice(_tensors(proto))))


def add_subgraph(proto: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(proto, rng)
    node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.CopyFrom(subgraph(rng.choice([1, 3, 10])))


def add_function(proto: onnx.ModelProto, rng: random.Random) -> None:
    """A local function that stands for a node, may call itself, or be called with too few operands."""
    node = _node(proto, rng)
    body = [helper.make_node(rng.choice([node.op_type, "F", "Relu"]), ["a"], ["b"], domain=rng.choice(["", "f"]))]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    proto.functions.append(helper.make_function("f", "F", ["a"], ["b"], body, imports))
    proto.opset_import.add(domain="f", version=1)
    node.op_type, node.domain = "F", "f"


MUTATIONS: tuple[Mutation, ...] = (
    drop_node, repeat_node, shuffle_nodes, rewire, rewire, rewire, change_arity, insert_node, insert_node, insert_node,
    insert_node, change_operator,
    change_operator, change_operator, rename, rename, change_attribute, change_attribute, change_attribute,
    change_attribute, drop_attribute, change_shape, change_shape, change_shape, untype, declare, break_weight,
    break_weight, break_weight, repeat_weight, weight_to_input, change_opset, change_outputs, add_subgraph,
    add_function,
)  # fmt: skip


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes turned, cut, repeated or put in at random."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(changed)) if changed else 0
        way = rng.randrange(5)
        if way == 0 and changed:
            changed[at] = rng.randrange(256)
        elif way == 1 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            del changed[at : at + rng.randint(1, 200)]
        elif way == 3:
            changed[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
        elif len(changed) < 1 << 20:
            changed[at:at] = changed[at : at + rng.randint(1, 2000)]
    return bytes(changed)


def mutant(rng: random.Random) -> tuple[bytes, str]:
    """A mutated model and, in words, how it was made."""
    if rng.random() < 0.35:
        proto, made = single(rng), ["single"]
        count = rng.choice([0, 0, 0, 1, 2])
    else:
        number = rng.randrange(len(seeds()))
        proto, made = onnx.ModelProto.FromString(seeds()[number]), [f"seed {number}"]
        if rng.random() < 0.8:
            cut(proto, rng, rng.randint(3, 14))
            made.append("cut")
        count = rng.choice([1, 1, 1, 2, 2, 4])
    for _ in range(count):
        mutation = rng.choice(MUTATIONS)
        try:
            mutation(proto, rng)
        except (ValueError, TypeError):  # protobuf itself has no such value
            continue
        made.append(mutation.__name__)
    data = proto.SerializeToString()
    if rng.random() < 0.04:
        data = damaged(data, rng)
        made.append("damaged")
    return data, ", ".join(made)
