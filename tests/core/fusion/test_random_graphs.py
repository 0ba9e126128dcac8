"""Plans of random graphs, and random edits of them, compute what the model computes."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import PlanError
from core.fusion.edit import check, fuse, split
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from tests.core.fusion.graphs import Net, graph_of, weight
from tests.core.fusion.oracle import run_model, run_plan
from tests.core.fusion.proof import assert_close, feeds_of, proven
from tests.core.fusion.test_semantics import SPELLED

UNARY = ["Relu", "Sigmoid", "Tanh", "HardSwish", "Softplus", "Elu", "LeakyRelu", "Gelu", "Abs", "Neg"]


@st.composite
def nets(draw: st.DrawFn) -> onnx.ModelProto:
    """Up to 14 choices over tensors of one shape: anchors, activations, spelled-out ones, residuals, biases, pools."""
    conv = draw(st.booleans())
    shape = (1, 8, 4, 3) if conv else (2, 3, 8)
    net = Net(x=shape)
    tensors = ["x"]
    for _ in range(draw(st.integers(1, 14))):
        # The newest tensor most of the time, so that chains come about.
        x = draw(st.sampled_from([tensors[-1]] * 4 + tensors))
        y = draw(st.sampled_from(tensors))
        seed = len(net.constants)
        match draw(st.integers(0, 9)):
            case 0 | 1 | 2 if conv:
                made = net.conv(x, 8, 8, r=draw(st.sampled_from([1, 3])), bias=draw(st.booleans()))
            case 0 | 1 | 2:
                made = net.op("MatMul", x, net.const(weight(8, 8, seed=seed, scale=0.5)))
            case 3:
                made = net.op(draw(st.sampled_from(["Add", "Mul", "Sub", "Sum", "Max"])), x, y)
            case 4:
                made = net.op(draw(st.sampled_from(["Add", "Mul", "Sub", "Div", "Min"])), x, 0.75)
            case 5:
                bias = weight(8, 1, 1, seed=seed) if conv else weight(8, seed=seed)
                order = draw(st.permutations([x, net.const(bias)]))
                made = net.op(draw(st.sampled_from(["Add", "Add", "Mul", "Sub"])), *order)
            case 6:
                made = draw(st.sampled_from(SPELLED))[1](net, x)
            case 7 if conv:
                made = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            case 7:
                made = net.op("Softmax", x)
            case _:
                made = net.op(draw(st.sampled_from(UNARY)), x)
        tensors.append(made)
    read = {t for n in net.nodes for t in n.input}
    extra = draw(st.sets(st.sampled_from(tensors[1:]), max_size=1))
    return net.model(*sorted({t for t in tensors[1:] if t not in read} | extra))


RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tamed(model: onnx.ModelProto) -> bool:
    """Whether the values stay where float32 says something."""
    found = run_model(model.SerializeToString(), feeds_of(graph_of(model)))
    return all(np.isfinite(v).all() and np.abs(v).max() < 1e4 for v in found)


@RANDOM
@given(nets())
def test_random_graphs(model: onnx.ModelProto) -> None:
    if not tamed(model):
        return
    graph, made = proven(model)
    assert plan(graph) == made
    reasons = {x.node for x in made.left_alone}
    assert all(r.nodes[0] in reasons for r in made.regions if r.workload is None and len(r.nodes) == 1)


@RANDOM
@given(nets(), st.data())
def test_random_edits_are_refused_with_a_reason_or_right(model: onnx.ModelProto, data: st.DataObject) -> None:
    if not tamed(model):
        return
    graph = prepare(graph_of(model))
    made = plan(graph)
    feeds = feeds_of(graph)
    wanted = run_model(model.SerializeToString(), feeds)
    for _ in range(3):
        if data.draw(st.booleans()):
            made = split(made, graph, data.draw(st.sampled_from([r.id for r in made.regions])))
            continue
        names = [n.name for n in graph]
        start = data.draw(st.integers(0, len(names) - 1))
        group = [n for n in names[start : start + 5] if data.draw(st.booleans())]
        verdict = check(graph, made, group)
        if verdict.legal:
            made = fuse(made, graph, group)
            region = made.region_of(group[0])
            assert region is not None and set(region.nodes) == set(group) and region.kind is verdict.kind
        else:
            assert verdict.reason and (not group or verdict.offending_node in group)
            with pytest.raises(PlanError):
                fuse(made, graph, group)
    assert_close(run_plan(graph, made, feeds), wanted)
