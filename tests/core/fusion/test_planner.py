"""Which nodes share a kernel, and the words said about the others."""

import onnx
import pytest
from onnx import helper, numpy_helper

from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.importer.load import load_graph
from templates.workload import ConvWorkload, GemmWorkload
from tests.core.fusion.graphs import Net, weight


def groups(found: FusionPlan) -> list[tuple[str, ...]]:
    return [r.nodes for r in found.regions]


def refusal(found: FusionPlan, node: str) -> str:
    return next(r.reason for r in found.refusals if r.node == node)


def residual_block(kernel: int) -> Net:
    """Two branches from a stem, the last convolution of each with `kernel` and 1x1, that meet in an Add and a Relu."""
    net = Net(x=(2, 64, 14, 14))
    stem = net.op("Relu", net.conv("x", 64, 64))
    y = net.conv(net.op("Relu", net.conv(stem, 64, 64)), 128, 64, r=kernel, name="main")
    shortcut = net.conv(stem, 128, 64, r=1, name="shortcut")
    net.op("Relu", net.op("Add", y, shortcut), name="last")
    return net


def test_residual_goes_to_the_convolution_with_more_arithmetic_for_each_byte() -> None:
    found = plan(residual_block(3).graph("last.out"))
    assert groups(found) == [("conv0", "relu0"), ("conv1", "relu1"), ("shortcut",), ("main", "add0", "last")]
    main = found.regions[-1]
    assert str(main.epilogue) == "bias+add+relu"
    assert main.operands is not None and main.operands.source == "shortcut.out"
    assert main.inputs == ("relu1.out", main.operands.b, main.operands.bias, "shortcut.out")
    assert "add0 already runs with main" in refusal(found, "add0")
    assert found.supported


def test_of_equal_convolutions_the_later_one_takes_the_residual() -> None:
    found = plan(residual_block(1).graph("last.out"))
    assert groups(found)[2:] == [("main",), ("shortcut", "add0", "last")]
    last = found.regions[-1]
    assert last.kind is Kind.GEMM  # 1x1, stride 1
    assert last.workload == GemmWorkload(2 * 14 * 14, 128, 64, epilogue=last.epilogue)


def test_conv_workload_has_onnx_geometry() -> None:
    net = Net(x=(1, 64, 15, 13))
    w = net.const(weight(32, 64, 3, 5))
    y = net.op("Conv", "x", w, pads=[1, 2, 0, 1], strides=[2, 1], dilations=[1, 2])
    graph = net.graph(y)
    workload = plan(graph).regions[0].workload
    assert isinstance(workload, ConvWorkload)
    assert workload.pad == (1, 2, 0, 1) and workload.stride == (2, 1) and workload.dilation == (1, 2)
    assert (workload.p, workload.q) == graph.shape(y)[2:]


def test_stem_channels_are_padded_to_four() -> None:
    net = Net(x=(1, 3, 32, 32))
    found = plan(net.graph(net.op("Relu", net.conv("x", 64, 3, r=7))))
    assert isinstance(found.regions[0].workload, ConvWorkload) and found.regions[0].workload.c == 4


def test_two_readers_end_a_region() -> None:
    net = Net(x=(1, 64, 8, 8))
    y = net.conv("x", 64, 64, name="conv1")
    a, b = net.op("Relu", y, name="relu1"), net.op("Tanh", y, name="tanh1")
    found = plan(net.graph(a, b))
    assert groups(found) == [("conv1",), ("relu1",), ("tanh1",)]
    assert refusal(found, "relu1") == "the output of conv1 is read by two nodes: relu1 and tanh1"
    assert "not fused into conv1" in found.left_alone[0].reason


def test_operator_without_epilogue_form_is_named() -> None:
    net = Net(x=(1, 64, 8, 8))
    y = net.op("MaxPool", net.conv("x", 64, 64), kernel_shape=[2, 2], strides=[2, 2])
    found = plan(net.graph(y))
    assert refusal(found, "maxpool0").startswith("MaxPool has no epilogue form: ")
    assert [r.kind for r in found.regions] == [Kind.CONV, Kind.POOL]


@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm_with_bias(trans_b: int) -> None:
    net = Net(x=(8, 48))
    b = net.const(weight(32, 48) if trans_b else weight(48, 32))
    y = net.op("Relu", net.op("Gemm", "x", b, net.const(weight(32)), transB=trans_b))
    region = plan(net.graph(y)).regions[0]
    assert region.workload == GemmWorkload(8, 32, 48, epilogue=region.epilogue)
    assert str(region.epilogue) == "bias+relu"


def test_matmul_folds_its_batch_into_m_and_takes_a_following_bias() -> None:
    net = Net(x=(2, 5, 48))
    y = net.op("Add", net.const(weight(32)), net.op("MatMul", "x", net.const(weight(48, 32))))
    region = plan(net.graph(y)).regions[0]
    assert region.workload == GemmWorkload(10, 32, 48, epilogue=region.epilogue)
    assert region.operands is not None and region.operands.bias == "c0"


def test_same_graph_gives_the_same_plan() -> None:
    net = Net(x=(2, 64, 14, 14))
    y = net.conv("x", 64, 64)
    graph = net.graph(net.op("Relu", net.op("Add", net.conv(y, 64, 64), y)))
    assert plan(graph) == plan(graph)
    assert [r.id for r in plan(graph).regions] == ["r0", "r1"]


def test_nodes_whose_types_nobody_knows_are_regions_without_a_kernel() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="before"),
        helper.make_node("Mystery", ["a"], ["b"], name="mystery", domain="com.example"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="after"),
        helper.make_node("Relu", ["c"], ["y"], name="last"),
    ]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [8, 8]) for n in "xy"]
    made = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weight(8, 8), "w")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=10)
    found = plan(prepare(load_graph(model.SerializeToString())))
    assert [(r.nodes[0], r.supported) for r in found.regions] == [
        ("before", True), ("mystery", False), ("after", False), ("last", False),
    ]  # fmt: skip
    assert found.regions[2].reason == "its input b has no type before the model runs"
    assert "com.example.Mystery" in refusal(found, "mystery")
