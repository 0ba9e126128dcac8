"""Plans compute what the model computes: prepared and planned graphs against ONNX Runtime, written and random ones."""

from collections.abc import Callable

import numpy as np
import pytest

from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from tests.core.fusion.graphs import Net, graph_of, weight
from tests.core.fusion.proof import epilogues, proven

# --- activations that a model spells out ---------------------------------------------------------------------------

Body = Callable[[Net, str], str]


def gelu_half_last(n: Net, x: str) -> str:
    return n.op("Mul", n.op("Mul", x, n.op("Add", n.op("Erf", n.op("Div", x, 2**0.5)), 1.0)), 0.5)


def gelu_half_first(n: Net, x: str) -> str:
    return n.op("Mul", n.op("Mul", 0.5, x), n.op("Add", 1.0, n.op("Erf", n.op("Mul", x, 0.5**0.5))))


def gelu_half_inside(n: Net, x: str) -> str:
    return n.op("Mul", x, n.op("Mul", n.op("Add", n.op("Erf", n.op("Div", x, 2**0.5)), 1.0), 0.5))


def gelu_tanh(cube: Body) -> Body:
    def body(n: Net, x: str) -> str:
        inner = n.op("Mul", n.op("Add", x, n.op("Mul", cube(n, x), 0.044715)), 0.7978845608)
        return n.op("Mul", n.op("Mul", x, 0.5), n.op("Add", n.op("Tanh", inner), 1.0))

    return body


def hard_swish(n: Net, x: str) -> str:
    return n.op("Div", n.op("Mul", x, n.op("Clip", n.op("Add", x, 3.0), 0.0, 6.0)), 6.0)


SPELLED: list[tuple[str, Body]] = [
    ("gelu_erf", gelu_half_last),
    ("gelu_erf", gelu_half_first),
    ("gelu_erf", gelu_half_inside),
    ("gelu_tanh", gelu_tanh(lambda n, x: n.op("Pow", x, 3.0))),
    ("gelu_tanh", gelu_tanh(lambda n, x: n.op("Mul", n.op("Mul", x, x), x))),
    ("silu", lambda n, x: n.op("Mul", x, n.op("Sigmoid", x))),
    ("silu", lambda n, x: n.op("Div", x, n.op("Add", 1.0, n.op("Exp", n.op("Neg", x))))),
    ("hard_swish", hard_swish),
    ("hard_swish", lambda n, x: n.op("Mul", n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x)),
    ("hard_swish", lambda n, x: n.op("Mul", x, n.op("Div", n.op("Clip", n.op("Add", x, 3.0), 0.0, 6.0), 6.0))),
    ("softplus", lambda n, x: n.op("Log", n.op("Add", n.op("Exp", x), 1.0))),
    ("sigmoid", lambda n, x: n.op("Reciprocal", n.op("Add", n.op("Exp", n.op("Neg", x)), 1.0))),
    ("leaky_relu(0.125)", lambda n, x: n.op("Max", x, n.op("Mul", x, 0.125))),
    ("leaky_relu(0.25)", lambda n, x: n.op("Where", n.op("Greater", x, 0.0), x, n.op("Mul", x, 0.25))),
]


@pytest.mark.parametrize(("name", "body"), SPELLED)
@pytest.mark.parametrize("anchor", ["conv", "matmul"])
def test_spelled_out_activation_is_one_step(name: str, body: Body, anchor: str) -> None:
    net = Net(x=(1, 8, 4, 4)) if anchor == "conv" else Net(x=(2, 3, 8))
    y = net.conv("x", 16, 8) if anchor == "conv" else net.op("MatMul", "x", net.const(weight(8, 16, scale=1.0)))
    made = proven(net.model(body(net, y)))[1]
    assert epilogues(made) == [name if anchor == "matmul" else f"bias+{name}"]
    assert len(made.regions) == 1


@pytest.mark.parametrize(
    ("step", "op", "attrs", "extra"),
    [
        ("relu", "Relu", {}, []),
        ("leaky_relu(0.00999999978)", "LeakyRelu", {}, []),
        ("leaky_relu(0.300000012)", "PRelu", {}, [0.3]),
        ("clip(0,6)", "Clip", {}, [0.0, 6.0]),
        ("clip(0.25,0.25)", "Clip", {}, [0.5, 0.25]),
        ("clip(0.25,inf)", "Max", {}, [0.25]),
        ("clip(-inf,0.25)", "Min", {}, [0.25]),
        ("sigmoid", "Sigmoid", {}, []),
        ("gelu_erf", "Gelu", {}, []),
        ("gelu_tanh", "Gelu", {"approximate": "tanh"}, []),
        ("hard_swish", "HardSwish", {}, []),
        ("hard_sigmoid(0.25,0.5)", "HardSigmoid", {"alpha": 0.25}, []),
        ("softplus", "Softplus", {}, []),
        ("tanh", "Tanh", {}, []),
        ("elu(0.5)", "Elu", {"alpha": 0.5}, []),
        ("scale(0.5)", "Mul", {}, [0.5]),
        ("scale(0.25)", "Div", {}, [4.0]),
        ("shift(-0.5)", "Sub", {}, [0.5]),
        ("scale(-1)", "Neg", {}, []),
    ],
)
def test_single_operator_steps(step: str, op: str, attrs: dict[str, object], extra: list[float]) -> None:
    net = Net(x=(1, 8, 4, 4))
    y = net.op(op, net.conv("x", 16, 8), *extra, **attrs)
    found = epilogues(proven(net.model(y))[1])[0]
    assert found == f"bias+{step}" or (op in ("LeakyRelu",) and found.startswith("bias+leaky_relu(0.01"))


def test_what_is_no_activation_stays_out_with_a_reason() -> None:
    net = Net(x=(1, 8, 4, 4))
    y = net.conv("x", 16, 8, name="conv1")
    mish = net.op("Mul", y, net.op("Tanh", net.op("Softplus", y)))
    made = proven(net.model(mish))[1]
    assert [r.nodes for r in made.regions] == [("conv1",), ("softplus0", "tanh0", "mul0")]
    assert made.refusals[0].reason == "the output of conv1 is read by two nodes: softplus0 and mul0"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_constants_that_are_no_numbers_stay_out(value: float) -> None:
    for op in ("Mul", "Clip"):
        net = Net(x=(1, 8, 4, 4))
        y = net.op(op, net.conv("x", 8, 8), value)
        found = plan(net.graph(y))
        assert len(found.regions) == (1 if op == "Clip" and value == np.inf else 2)
        assert all(str(r.workload.epilogue) for r in found.regions if r.workload)


def test_squeeze_and_excitation_is_refused() -> None:
    net = Net(x=(2, 8, 4, 4))
    y = net.op("Relu", net.conv("x", 8, 8, name="conv1"))
    gate = net.op("Sigmoid", net.conv(net.op("GlobalAveragePool", "x"), 8, 8, r=1, name="gate"))
    made = proven(net.model(net.op("Mul", y, gate, name="excite")))[1]
    reason = next(r.reason for r in made.refusals if r.node == "excite" and r.anchor == "conv1")
    assert "2x8x1x1" in reason and "one value for each channel of each image" in reason


# --- operands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epilogue", "combine"),
    [
        ("bias+add", lambda n, y, r: n.op("Add", y, r)),
        ("bias+add+relu", lambda n, y, r: n.op("Relu", n.op("Add", r, y))),
        ("bias+relu+add", lambda n, y, r: n.op("Add", n.op("Relu", y), r)),
        ("bias+add", lambda n, y, r: n.op("Sum", y, r)),
        ("bias+mul", lambda n, y, r: n.op("Mul", y, r)),
        ("bias+scale(-1)+add", lambda n, y, r: n.op("Sub", r, y)),
        ("bias+scale(-1)+add+scale(-1)", lambda n, y, r: n.op("Sub", y, r)),
        ("bias+scale(2)+add", lambda n, y, r: n.op("Add", n.op("Mul", y, 2.0), r)),
    ],
)
def test_residuals(epilogue: str, combine: Callable[[Net, str, str], str]) -> None:
    net = Net(x=(2, 8, 5, 4))
    residual = net.op("Exp", "x")
    made = proven(net.model(combine(net, net.conv("x", 8, 8), residual)))[1]
    assert epilogues(made) == [epilogue]


def test_a_second_source_ends_the_region() -> None:
    net = Net(x=(2, 8, 5, 4))
    y = net.op("Add", net.conv("x", 8, 8), "x", name="first")
    made = proven(net.model(net.op("Mul", y, net.op("Exp", "x"), name="second")))[1]
    assert epilogues(made) == ["bias+add"]
    reason = next(r.reason for r in made.refusals if r.node == "second")
    assert reason == "second reads exp0.out, a second tensor after x; an epilogue takes one"


def test_residual_that_is_computed_later_in_the_file_is_waited_for() -> None:
    net = Net(x=(1, 8, 6, 6))
    y = net.conv("x", 8, 8, name="early")
    late = net.op("MaxPool", net.op("Exp", "x"), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    made = proven(net.model(net.op("Add", y, late)))[1]
    assert [r.nodes for r in made.regions] == [("exp0",), ("maxpool0",), ("early", "add0")]


@pytest.mark.parametrize("shape", [(16,), (1, 16), (1, 1, 16)])
def test_gemm_bias_shapes(shape: tuple[int, ...]) -> None:
    net = Net(x=(2, 3, 8))
    y = net.op("Add", net.op("MatMul", "x", net.const(weight(8, 16))), net.const(weight(*shape)))
    assert epilogues(proven(net.model(y))[1]) == ["bias"]


@pytest.mark.parametrize("shape", [(16, 1, 1), (1, 16, 1, 1)])
def test_conv_bias_shapes(shape: tuple[int, ...]) -> None:
    net = Net(x=(2, 8, 3, 3))
    y = net.op("Add", net.conv("x", 16, 8, bias=False), net.const(weight(*shape)))
    assert epilogues(proven(net.model(y))[1]) == ["bias"]


def test_bias_along_the_wrong_axis_is_none() -> None:
    net = Net(x=(2, 8, 4, 16))
    y = net.op("Add", net.conv("x", 16, 8, bias=False), net.const(weight(16)), name="columns")
    made = proven(net.model(y))[1]
    assert epilogues(made) == ["identity"] and len(made.regions) == 2


# --- anchors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attrs",
    [
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 1]},
        {"auto_pad": "VALID"},
        {"pads": [0, 1, 2, 3]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
        {"pads": [1, 1, 1, 1], "strides": [3, 2]},
        {"pads": [1, 1, 1, 1], "group": 4},
        {"pads": [1, 1, 1, 1], "group": 8},
    ],
)
def test_convolution_geometry(attrs: dict[str, object]) -> None:
    net = Net(x=(2, 8, 9, 7))
    group = int(attrs.get("group", 1))  # type: ignore[call-overload]
    y = net.op("Conv", "x", net.const(weight(16, 8 // group, 3, 3)), net.const(weight(16)), **attrs)
    made = proven(net.model(net.op("Relu", y)))[1]
    assert made.regions[0].kind is (Kind.DEPTHWISE_CONV if group == 8 else Kind.CONV)


@pytest.mark.parametrize(("channels", "padded"), [(1, 4), (3, 4), (4, 4), (5, 8), (8, 8), (12, 16)])
def test_stem_padding(channels: int, padded: int) -> None:
    net = Net(x=(1, channels, 7, 7))
    made = proven(net.model(net.conv("x", 16, channels)))[1]
    assert made.regions[0].workload.c == padded  # type: ignore[union-attr]


def test_pointwise_stem_is_a_gemm_with_padded_k() -> None:
    net = Net(x=(1, 3, 7, 7))
    made = proven(net.model(net.conv("x", 16, 3, r=1)))[1]
    assert made.regions[0].workload.k == 8  # type: ignore[union-attr]


def test_input_with_another_reader_is_not_padded() -> None:
    net = Net(x=(1, 3, 7, 7))
    made = proven(net.model(net.op("Relu", "x"), net.conv("x", 16, 3)))[1]
    assert [r.workload.c for r in made.regions if r.workload] == [3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "inputs",
    [
        ((3, 8), (8, 16)),
        ((2, 3, 8), (8, 16)),
        ((2, 3, 8), (2, 8, 16)),
        ((2, 4, 3, 8), (2, 4, 8, 16)),
        ((2, 4, 3, 8), (4, 8, 16)),
        ((2, 1, 3, 8), (1, 4, 8, 16)),
        ((3, 8), (4, 8, 16)),
        ((1, 3, 8), (1, 1, 8, 16)),
        ((8,), (8, 16)),
        ((3, 8), (8,)),
        ((2, 3, 8), (8,)),
        ((8,), (2, 8, 16)),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_matmul_of_every_shape(inputs: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    a, b = inputs
    net = Net(a=a) if constant else Net(a=a, b=b)
    y = net.op("MatMul", "a", net.const(weight(*b)) if constant else "b")
    made = proven(net.model(net.op("Relu", y)))[1]
    kinds = {r.kind for r in made.regions if r.workload}
    assert made.supported and len(kinds) == 1 and kinds <= {Kind.GEMM, Kind.BATCHED_GEMM}


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("c", [None, (), (1,), (16,), (1, 16), (6, 1), (6, 16)])
@pytest.mark.parametrize("constants", ["", "b", "c", "bc"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0)])
def test_gemm_of_every_form(
    trans_a: int, trans_b: int, c: tuple[int, ...] | None, constants: str, alpha: float, beta: float
) -> None:
    shapes = {"a": (8, 6) if trans_a else (6, 8), "b": (16, 8) if trans_b else (8, 16)}
    if c is not None:
        shapes["c"] = c
    net = Net(**{n: s for n, s in shapes.items() if n not in constants})
    operands = [net.const(weight(*s), n) if n in constants else n for n, s in shapes.items()]
    y = net.op("Gemm", *operands, transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)
    made = proven(net.model(net.op("Tanh", y)))[1]
    assert made.supported and [r.kind for r in made.regions if r.workload] == [Kind.GEMM]
    if constants == "bc" and c != (6, 1):
        assert len(made.regions) == 1


def test_scales_after_a_matmul_go_into_its_weights() -> None:
    net = Net(x=(2, 3, 8))
    y = net.op("Add", net.op("MatMul", "x", net.const(weight(8, 16)), name="product"), net.const(weight(16)))
    y = net.op("Sub", net.op("Mul", y, 0.125, name="scale"), net.const(weight(16, seed=3)), name="shift")
    graph, made = proven(net.model(y))
    assert epilogues(made) == ["bias"] and made.regions[0].nodes == ("product", "shift")
    assert graph.absorbed == {"add0": "folded into product", "scale": "folded into product"}


def test_bias_computed_at_run_time() -> None:
    net = Net(x=(1, 8, 4, 4), b=(16,))
    y = net.op("Conv", "x", net.const(weight(16, 8, 3, 3)), net.op("Exp", "b"))
    assert epilogues(proven(net.model(y))[1]) == ["bias"]
    net = Net(x=(1, 2, 3, 8), y=(1, 2, 8, 16), mask=(1, 1, 1, 16))
    y = net.op("Add", net.op("Mul", net.op("MatMul", "x", "y"), 0.5), "mask")
    assert epilogues(proven(net.model(y))[1]) == ["scale(0.5)+bias"]


def test_bias_of_one_column_is_a_bias_and_no_constant_of_the_kernel() -> None:
    net = Net(x=(4, 8))
    y = net.op("Sigmoid", net.op("Gemm", "x", net.const(weight(8, 1)), net.const(weight(1))))
    assert epilogues(proven(net.model(y))[1]) == ["bias+sigmoid"]


@pytest.mark.parametrize("anchor", ["conv", "plain conv", "matmul", "gemm"])
def test_second_bias_behind_a_residual_joins_the_first(anchor: str) -> None:
    conv = anchor.endswith("conv")
    net = Net(x=(1, 8, 4, 4) if conv else (3, 8))
    bias = [net.const(weight(*((8, 1, 1) if conv else (8,)), seed=i)) for i in range(3)]
    if conv:
        y = net.conv("x", 8, 8, bias=anchor == "conv", name="main")
    elif anchor == "gemm":
        y = net.op("Gemm", "x", net.const(weight(8, 8)), net.const(weight(8)), beta=0.5, name="main")
    else:
        y = net.op("MatMul", "x", net.const(weight(8, 8)), name="main")
    if anchor in ("plain conv", "matmul"):
        y = net.op("Add", y, bias[0], name="first")
    y = net.op("Mul", net.op("Add", net.op("Add", y, "x", name="residual"), bias[1], name="second"), 0.5)
    graph, made = proven(net.model(net.op("Add", bias[2], y, name="third")))
    assert epilogues(made) == ["bias+add+scale(0.5)"] and len(made.regions) == 1
    holder = "first" if anchor in ("plain conv", "matmul") else "main"
    assert graph.absorbed == {n: f"folded into the bias of {holder}" for n in ("second", "third")}


@pytest.mark.parametrize(("kernel", "chains"), [(1, ["add+relu", "bias"]), (3, ["bias+add+relu", "identity"])])
def test_one_dimensional_convolution(kernel: int, chains: list[str]) -> None:
    net = Net(x=(2, 8, 9))
    y = net.op("Conv", "x", net.const(weight(16, 8, kernel)), net.const(weight(16)), pads=[0, kernel - 1])
    y = net.op("Relu", net.op("Add", y, net.op("Conv", "x", net.const(weight(16, 8, 1)), name="side")))
    made = proven(net.model(y))[1]
    assert sorted(epilogues(made)) == chains
    assert made.supported and len(made.regions) == 2


@pytest.mark.parametrize(("op", "extent"), [("Conv", (1, 8, 4, 4, 4)), ("ConvTranspose", (1, 8, 4, 4))])
def test_what_no_template_serves_is_named(op: str, extent: tuple[int, ...]) -> None:
    net = Net(x=extent)
    y = net.op(op, "x", net.const(weight(8, 8, *(3,) * (len(extent) - 2))), name="odd one")
    made = plan(prepare(graph_of(net.model(y))))
    assert not made.supported and op in made.regions[0].reason


def test_weights_computed_at_run_time_are_refused() -> None:
    net = Net(x=(1, 8, 4, 4), w=(16, 8, 3, 3))
    made = plan(prepare(graph_of(net.model(net.op("Conv", "x", "w", name="hyper")))))
    assert not made.supported and "computed at run time" in made.regions[0].reason


# --- regions without an anchor -------------------------------------------------------------------------------------


def test_channel_shuffle_is_one_region() -> None:
    net = Net(x=(2, 12, 5, 5))
    shape = net.const(np.array([2, 3, 4, 5, 5], np.int64))
    back = net.const(np.array([2, 12, 5, 5], np.int64))
    y = net.op("Reshape", net.op("Transpose", net.op("Reshape", "x", shape), perm=[0, 2, 1, 3, 4]), back)
    made = proven(net.model(y))[1]
    assert [(r.kind, len(r.nodes)) for r in made.regions] == [(Kind.LAYOUT, 3)]
    assert "3 groups" in made.regions[0].reason


def shuffled(net: Net, x: str, channels: int, groups: int) -> str:
    shape, back = [2, groups, channels // groups, 5, 5], [2, channels, 5, 5]
    y = net.op("Reshape", x, net.const(np.array(shape, np.int64)))
    return net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3, 4]), net.const(np.array(back, np.int64)))


@pytest.mark.parametrize(("size", "groups"), [(1, 3), (1, 1), (3, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_channel_shuffle_is_absorbed_by_the_filters_in_front(size: int, groups: int, bias: bool) -> None:
    net = Net(x=(2, 12, 5, 5))
    constants = [weight(24, 12 // groups, size, size), *([weight(24, seed=1)] if bias else [])]
    y = net.op("Conv", "x", *map(net.const, constants), name="conv", group=groups, pads=[size // 2] * 4)
    y = shuffled(net, net.op("LeakyRelu", y, alpha=0.3), 24, 4)
    graph, made = proven(net.model(net.op("MaxPool", y, kernel_shape=[2, 2])))
    assert [r.kind for r in made.regions] == [Kind.GEMM if size == 1 else Kind.CONV, Kind.POOL]
    assert [n.op for n in graph] == ["Conv", "LeakyRelu", "MaxPool"]
    assert list(graph.absorbed.values()).count("folded into the order of the filters of conv") == 3


def test_channel_shuffle_stays_where_the_filters_can_not_take_it() -> None:
    net = Net(x=(2, 12, 5, 5), hyper=(12, 4, 1, 1))
    small, wide, deep = (net.const(weight(12, c, s, s)) for c, s in ((4, 1), (4, 3), (1, 1)))
    taps = net.op("Conv", "x", wide, group=3, pads=[1, 1, 1, 1])
    read_twice = net.op("Conv", "x", small, group=3)
    depthwise = net.op("Conv", "x", deep, group=12)
    computed = net.op("Conv", "x", "hyper", group=3)
    outputs = [shuffled(net, y, 12, 3) for y in (taps, read_twice, depthwise, computed)]
    graph, _ = proven(net.model(*outputs, net.op("Relu", read_twice)))
    assert sum(n.op == "Transpose" for n in graph) == 4


def test_pointwise_diamond_with_broadcasts_is_one_region() -> None:
    net = Net(x=(2, 1, 5), y=(4, 1))
    a = net.op("Exp", "x")
    b = net.op("Where", net.op("Greater", a, "y"), net.op("Neg", a), "y")
    made = proven(net.model(b))[1]
    assert [r.kind for r in made.regions] == [Kind.POINTWISE] and len(made.regions[0].nodes) == 4
