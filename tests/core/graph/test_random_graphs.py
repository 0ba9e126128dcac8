"""Random small graphs: whatever the passes make of them, the outputs stay the same and every type is known."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from core.graph.passes import PASSES, simplify
from core.graph.walk import names_of
from core.importer.load import import_graph, load_graph
from tests.core.graph.equivalence import assert_pass_keeps, assert_same
from tests.core.importer.models import model, node

CHANNELS, SIDE = 4, 5
# operator -> (constant inputs by shape, attributes); all keep (2, 4, 5, 5)
STEPS = {
    "Conv": ([(CHANNELS, CHANNELS, 3, 3)], {"pads": [1] * 4}),
    "BatchNormalization": ([(CHANNELS,)] * 4, {}),
    "Mul": ([(CHANNELS, 1, 1)], {}),
    "Add": ([(1,)], {}),
    "Sub": ([(1, CHANNELS, 1, 1)], {}),
    "Div": ([()], {}),
    "Relu": ([], {}),
    "Identity": ([], {}),
    "Dropout": ([], {}),
    "MaxPool": ([], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "AveragePool": ([], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "Sum": ([(CHANNELS, SIDE, SIDE), (1,)], {}),
    "Transpose": ([], {"perm": [0, 1, 3, 2]}),
    "Join": ([], {}),
    "Detour": ([], {}),
}


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    opset = draw(st.sampled_from([9, 11, 13, 17, 21]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    nodes, values, tensors = [], {}, ["x"]
    for i in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from(sorted(STEPS)))
        source, out = draw(st.sampled_from(tensors)), f"t{i}"
        shapes, attrs = STEPS[op]
        names = []
        for j, shape in enumerate(shapes):
            names.append(f"{out}.{j}")
            positive = op in ("BatchNormalization", "Div")
            values[names[-1]] = np.asarray(random.uniform(0.5 if positive else -1, 1, shape), np.float32)
        if op == "Join":
            nodes.append(node("Add", [source, draw(st.sampled_from(tensors))], [out], f"n{i}"))
        elif op == "Detour":
            values |= {f"{out}.a": np.array([2, -1]), f"{out}.b": np.array([0, CHANNELS, SIDE, SIDE])}
            nodes += [node("Reshape", [source, f"{out}.a"], [f"{out}.f"]),
                      node("Reshape", [f"{out}.f", f"{out}.b"], [out])]  # fmt: skip
        else:
            nodes.append(node(op, [source, *names], [out], f"n{i}", **attrs))
        tensors.append(out)
    outputs = draw(st.lists(st.sampled_from(tensors[1:]), min_size=1, max_size=3, unique=True))
    proto = model(nodes, {"x": [2, CHANNELS, SIDE, SIDE]}, outputs, values, opset)
    proto.ir_version = helper.find_min_ir_version_for(proto.opset_import)
    return proto


@settings(max_examples=60, deadline=None)
@given(models())
def test_simplified_is_the_same_function(proto: ModelProto) -> None:
    graph = load_graph(proto.SerializeToString())
    assert_same(proto, graph, rtol=1e-3, atol=1e-3)
    assert not graph.untyped
    assert len({n.name for n in graph}) == len(graph.nodes)
    made = [t for n in graph for t in n.outputs]
    assert len(set(made)) == len(made) and not set(made) & set(graph.constants)
    assert all(t in graph.types for t in (*made, *graph.constants))
    assert names_of(graph).take("x") != "x"


@settings(max_examples=30, deadline=None)
@given(models(), st.sampled_from(PASSES))
def test_each_pass_alone_is_the_same_function(proto: ModelProto, step: object) -> None:
    before = import_graph(proto.SerializeToString())
    frozen = (before.nodes, before.constants.keys() | set(), dict(before.types), dict(before.absorbed))
    assert_pass_keeps(before, step(before), rtol=1e-3, atol=1e-3)  # type: ignore[operator]
    assert frozen == (before.nodes, set(before.constants), before.types, before.absorbed)


@settings(max_examples=20, deadline=None)
@given(models())
def test_simplify_twice_is_simplify_once(proto: ModelProto) -> None:
    once = load_graph(proto.SerializeToString())
    assert len(simplify(once).nodes) <= len(once.nodes)
