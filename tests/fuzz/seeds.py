"""What is mutated: the built-in architectures with narrow layers, the operator models, and single operators.

Narrow, because what is tried is structure: a resnet18 with 8 channels goes through every rule that the real one does,
in a tenth of the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from core.importer.samples import build_sample
from tests.core.export import operator_models
from tests.core.export.models import Model
from tests.core.fusion.graphs import model as fusion_model
from tests.core.fusion.graphs import weight

_NARROW = 8  # channel counts are divided by it
_LEAST = 32  # and left alone below this: image channels, windows
_SHAPES = [(), (1,), (4,), (2, 8), (1, 8, 6, 6), (2, 16, 5, 5), (2, 3, 4), (1, 4, 3, 3, 3), (2, 1, 8, 8)]
_KINDS = [TensorProto.FLOAT] * 6 + [
    TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.INT8,
    TensorProto.UINT8, TensorProto.BFLOAT16, TensorProto.STRING,
]  # fmt: skip


def narrowed(name: str) -> onnx.ModelProto:
    """A built-in convolutional model or MLP with an eighth of its channels."""
    proto = build_sample(name)
    for tensor in proto.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        value = numpy_helper.to_array(tensor)
        picked = tuple(slice(0, _narrow(d)) for d in value.shape)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value[picked]), tensor.name))
    for declared in (*proto.graph.input, *proto.graph.output):
        dims = declared.type.tensor_type.shape.dim
        if len(dims) == 2:
            dims[1].dim_value = _narrow(dims[1].dim_value)
    return proto


def _narrow(extent: int) -> int:
    return extent // _NARROW if extent >= _LEAST and extent % _NARROW == 0 else extent


def _transformer() -> onnx.ModelProto:
    """A layer of BERT as exporters write it, at width 48."""
    m = Model()
    x, mask = m.input(2, 10, 48), m.input(2, 1, 1, 10)
    split, joined = m.const(np.array([0, 0, 4, 12])), m.const(np.array([0, 0, 48]))

    def dense(y: str, features: int, units: int) -> str:
        return m.op("Add", m.op("MatMul", y, m.weight(features, units)), m.weight(units))

    def norm(y: str) -> str:
        return m.op("LayerNormalization", y, m.weight(48), m.weight(48), axis=-1)

    q, k, v = (
        m.op("Transpose", m.op("Reshape", dense(x, 48, 48), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = m.op("Div", m.op("MatMul", q, k), m.const(np.float32(3.5)))
    rows = m.op("MatMul", m.op("Softmax", m.op("Add", scores, mask), axis=-1), v)
    rows = m.op("Reshape", m.op("Transpose", rows, perm=[0, 2, 1, 3]), joined)
    x = norm(m.op("Add", dense(rows, 48, 48), x))
    y = dense(x, 48, 96)
    erf = m.op("Add", m.op("Erf", m.op("Div", y, m.const(np.float32(2**0.5)))), m.const(np.float32(1)))
    y = m.op("Mul", m.op("Mul", y, erf), m.const(np.float32(0.5)))
    return m.build(norm(m.op("Add", dense(y, 96, 48), x)), opset=17)


def _pairs() -> onnx.ModelProto:
    """Chains that one kernel could run, and a residual of equals: the planner's close calls."""
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["g0"], "fc0", transB=1),
        helper.make_node("Relu", ["g0"], ["r0"], "relu0"),
        helper.make_node("Gemm", ["r0", "w1"], ["g1"], "fc1", transB=1),
        helper.make_node("Add", ["g1", "x"], ["a"], "add"),
        helper.make_node("HardSwish", ["a"], ["y"], "act"),
    ]
    weights = {"w0": weight(32, 64), "b0": weight(32), "w1": weight(64, 32)}
    return fusion_model(nodes, {"x": (256, 64)}, ["y"], weights)


@cache
def seeds() -> tuple[bytes, ...]:
    """Serialised models, small ones more often than their share."""
    made: list[Callable[[], onnx.ModelProto]] = [
        lambda: narrowed("mlp"), _pairs, _transformer, lambda: narrowed("resnet18"), lambda: narrowed("vgg16"),
        lambda: narrowed("repvgg-a0"), lambda: build_sample("dlrm"), operator_models.windows, operator_models.rows,
        operator_models.pointwise,
    ]  # fmt: skip
    return tuple(build().SerializeToString() for build in made)


def cut(proto: onnx.ModelProto, rng: random.Random, most: int) -> None:
    """Keeps a run of at most `most` nodes; what they read from outside becomes an input."""
    graph = proto.graph
    if len(graph.node) <= most:
        return
    start = rng.randrange(len(graph.node) - most)
    kept = list(graph.node)[start : start + most]
    typed = {v.name: v for v in onnx.shape_inference.infer_shapes(proto).graph.value_info}
    initial = {t.name: t for t in graph.initializer}
    made = {t for n in kept for t in n.output}
    read = dict.fromkeys(t for n in kept for t in n.input if t and t not in made)
    declared = {v.name: v for v in graph.input}
    inputs = [
        declared.get(t) or typed.get(t) or helper.make_tensor_value_info(t, TensorProto.FLOAT, [1, 8, 6, 6])
        for t in read
        if t not in initial
    ]
    used = {t for n in kept for t in n.input}
    outputs = [helper.make_empty_tensor_value_info(t) for t in made if t not in used]
    weights = [initial[t] for t in read if t in initial]
    graph.CopyFrom(helper.make_graph(kept, graph.name, inputs, outputs, weights))


@cache
def _schemas() -> tuple[defs.OpSchema, ...]:
    return tuple(s for s in defs.get_all_schemas() if s.domain == "")


def single(rng: random.Random) -> onnx.ModelProto:
    """Any operator of ONNX with operands of its arity, some constant, between two that fuse."""
    schema = rng.choice(_schemas())
    most = min(schema.max_input, 6)
    names = [f"x{i}" for i in range(rng.randint(min(schema.min_input, most), most))]
    shape = rng.choice(_SHAPES)
    first = _wanted(schema, 0)
    inputs, weights = [helper.make_tensor_value_info("start", first, shape)], []
    for i, name in enumerate(names[1:], 1):
        own = shape if rng.random() < 0.6 else rng.choice(_SHAPES)
        kind = rng.choice(_KINDS) if rng.random() < 0.15 else _wanted(schema, i)
        if rng.random() < 0.5 and kind != TensorProto.STRING:
            values = np.random.default_rng(rng.getrandbits(32)).integers(-2, 9, own)
            weights.append(numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(kind)), name))
        else:
            inputs.append(helper.make_tensor_value_info(name, kind, own))
    outputs = [f"y{i}" for i in range(max(1, min(schema.max_output, rng.randint(1, 3))))]
    node = helper.make_node(schema.name, names, outputs, "the node")
    for attribute in schema.attributes.values():
        if attribute.required or rng.random() < 0.5:
            add_attribute(node, attribute.name, attribute.type.value, rng)
    before, behind = ("Relu", "Relu") if first == TensorProto.FLOAT else ("Identity", "Identity")
    nodes = [helper.make_node(before, ["start"], ["x0"], "before"), node, helper.make_node(behind, ["y0"], ["end"], "")]
    if not names:
        nodes = nodes[1:]
    made = helper.make_graph(nodes, "single", inputs, [helper.make_empty_tensor_value_info("end")], weights)
    opset = helper.make_opsetid("", rng.choice([7, 9, 11, 13, 17, 18, 21, 23]))
    return helper.make_model(made, opset_imports=[opset], ir_version=10)


def _wanted(schema: defs.OpSchema, position: int) -> int:
    """An element type that the operator takes there."""
    if not schema.inputs:
        return TensorProto.FLOAT
    types = schema.inputs[min(position, len(schema.inputs) - 1)].types
    for text, kind in (("float", TensorProto.FLOAT), ("int64", TensorProto.INT64), ("bool", TensorProto.BOOL)):
        if f"tensor({text})" in types:
            return kind
    return TensorProto.UINT8


INTS = [0, 1, -1, 2, 3, 4, 7, 8, 16, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, 0.5, -1.0, 1e-45, 3.4e38, 1e300, float("inf"), float("-inf"), float("nan")]
TEXTS = [b"", b"SAME_UPPER", b"NOTSET", b"constant", b"nearest", b"linear", b"\xff\xfe", b"a\nb", b"ij,jk->ik", b"%s"]


def add_attribute(node: onnx.NodeProto, name: str, kind: int, rng: random.Random) -> None:
    """Adds an attribute of an AttributeProto type with values from the likely to the hostile."""
    attribute = node.attribute.add(name=name, type=kind)
    small = rng.random() < 0.6
    pool = [0, 1, 1, 2, 3, -1] if small else INTS
    floats = [0.0, 1.0, 0.5, 2.0] if small else FLOATS
    if kind == onnx.AttributeProto.INT:
        attribute.i = rng.choice(pool)
    elif kind == onnx.AttributeProto.FLOAT:
        attribute.f = min(max(rng.choice(floats), -3.4e38), 3.4e38) if small else rng.choice(floats)
    elif kind == onnx.AttributeProto.STRING:
        attribute.s = rng.choice(TEXTS)
    elif kind == onnx.AttributeProto.INTS:
        attribute.ints.extend(rng.choices(pool, k=rng.randint(0, 6)))
    elif kind == onnx.AttributeProto.FLOATS:
        attribute.floats.extend(rng.choices(floats, k=rng.randint(0, 4)))
    elif kind == onnx.AttributeProto.STRINGS:
        attribute.strings.extend(rng.choices(TEXTS, k=rng.randint(0, 3)))
    elif kind == onnx.AttributeProto.TENSOR:
        attribute.t.CopyFrom(numpy_helper.from_array(np.ones(rng.choice([(), (1,), (2, 2)]), np.float32)))
    elif kind == onnx.AttributeProto.GRAPH:
        attribute.g.CopyFrom(subgraph(rng.choice([1, 2, 5])))


def subgraph(depth: int, inner: str = "If") -> onnx.GraphProto:
    """A graph whose one node holds a graph, `depth` deep."""
    made = onnx.GraphProto(name="deepest")
    made.node.append(helper.make_node("Identity", ["start"], ["s"], "deepest"))
    for level in range(depth):
        outer = onnx.GraphProto(name=f"level{level}")
        node = outer.node.add(op_type=inner, name=f"inner{level}", output=["s"])
        node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.CopyFrom(made)
        made = outer
    return made
