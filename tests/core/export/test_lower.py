from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from core.export.operations import Concat, PackChannels, Pointwise, Pool, Reduce, ReduceKind, TiledTranspose
from core.export.program import OperatorStep
from templates import families
from templates.types import DType
from tests.core.export.models import Model, lowered, reference
from tests.core.export.operator_models import MODELS, exact_inputs
from tests.core.export.reference import execute


def check(model, dtype=DType.TF32, tolerance=2e-5, seed=1, inputs=None):
    """The lowered program, run in numpy in its planned arena, equals ONNX Runtime."""
    program = lowered(model, dtype)
    if inputs is None:
        random = np.random.default_rng(seed)
        inputs = [random.uniform(-1, 1, p.type.shape).astype(np.float32) for p in program.inputs]
    for mine, wanted in zip(execute(program, inputs), reference(model, inputs), strict=True):
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            assert np.linalg.norm(mine - wanted) <= tolerance * max(np.linalg.norm(wanted), 1e-6)
        else:
            assert np.array_equal(mine, wanted)
    return program


def conversions(program):
    return program.conversions()[0]


def test_a_conv_net_with_a_stem_a_residual_and_a_folded_flatten():
    m = Model()
    x = m.input(2, 3, 12, 12)
    stem = m.op("Relu", m.conv(x, 3, 16, strides=[2, 2]))
    y = m.op("Relu", m.conv(stem, 16, 16))
    y = m.op("Relu", m.op("Add", m.conv(y, 16, 16), stem))
    y = m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("Gemm", m.op("Flatten", y), m.weight(10, 144, scale=0.1), m.weight(10), transB=1)
    program = check(m.build(m.op("Softmax", y)))
    packs = [s for s in program.steps if isinstance(s, OperatorStep) and isinstance(s.operation, PackChannels)]
    assert [p.operation.padded for p in packs] == [4]
    assert conversions(program) == 1, "only the entry conversion"


def test_half_precision_storage_stays_close():
    m = Model()
    y = m.op("Relu", m.conv(m.input(1, 3, 8, 8), 3, 8))
    check(m.build(m.op("GlobalAveragePool", m.conv(y, 8, 16, size=1))), DType.F16, tolerance=3e-3)


def test_channel_shuffle_is_one_kernel():
    m = Model()
    y = m.conv(m.input(2, 4, 6, 6), 4, 24)
    y = m.op("Reshape", y, m.const(np.array([2, 3, 8, 6, 6])))
    y = m.op("Reshape", m.op("Transpose", y, perm=[0, 2, 1, 3, 4]), m.const(np.array([2, 24, 6, 6])))
    program = check(m.build(m.conv(y, 24, 8)))
    assert conversions(program) == 3, "entry, shuffle, exit"


def fire(m, x, left=16, right=24, **attributes):
    """SqueezeNet's expand layers, the right one with a residual: y, and its two parts."""
    a = m.op("Relu", m.conv(x, 8, left, size=1))
    b = m.op(
        "Relu", m.op("Add", m.conv(x, 8, right), m.op("MaxPool", m.conv(x, 8, right, size=1), kernel_shape=[1, 1]))
    )
    return m.op("Concat", a, b, axis=1, **attributes), a, b


def concats(program):
    return [s for s in program.steps if isinstance(s, OperatorStep) and isinstance(s.operation, Concat)]


@pytest.mark.parametrize("dtype", [DType.TF32, DType.F16])
def test_kernels_write_into_the_concatenation_of_their_results(dtype):
    m = Model()
    y, _, _ = fire(m, m.conv(m.input(2, 4, 7, 5), 4, 8))
    tolerance = 2e-5 if dtype == DType.TF32 else 5e-3
    program = check(m.build(m.conv(y, 40, 8), m.op("MaxPool", y, kernel_shape=[3, 3])), dtype, tolerance)
    assert not concats(program)
    apart = {(s.first, s.pitch, s.source is not None) for s in program.templates if s.pitch}
    assert apart == {(0, 40, False), (16, 40, True)}
    assert len({s.d for s in program.templates if s.pitch}) == 1


@pytest.mark.parametrize("why", ["read elsewhere", "twice", "not by a template", "unaligned", "spatial", "no ldd"])
def test_concatenations_that_need_a_kernel_keep_it(why, monkeypatch):
    m = Model()
    x = m.conv(m.input(2, 4, 6, 6), 4, 8)
    if why == "unaligned":
        y, a, b = fire(m, x, left=12)
    else:
        y, a, b = fire(m, x)
    other = {"read elsewhere": b, "twice": a, "not by a template": m.op("MaxPool", x, kernel_shape=[1, 1])}
    if why in ("twice", "not by a template"):
        y = m.op("Concat", a, other[why], axis=1)
    if why == "spatial":
        y = m.op("Concat", m.conv(x, 8, 16, size=1), m.conv(x, 8, 16), axis=2)
    if why == "no ldd":
        dense = replace(families()["sm80_conv"], pitched=False)
        monkeypatch.setattr("core.export.merge.families", lambda: {"sm80_conv": dense})
    outputs = [m.conv(y, {"spatial": 16, "twice": 32, "not by a template": 24, "unaligned": 36}.get(why, 40), 8)]
    if why == "read elsewhere":
        outputs.append(m.op("MaxPool", b, kernel_shape=[2, 2]))
    assert len(concats(check(m.build(*outputs), DType.F16, tolerance=5e-3))) == 1


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_concat_along_every_axis(axis):
    m = Model()
    x = m.input(2, 8, 4, 6)
    y = m.op("Concat", m.conv(x, 8, 8), m.op("Relu", x), x, axis=axis)
    program = check(m.build(y))
    assert sum(isinstance(s, OperatorStep) and isinstance(s.operation, Concat) for s in program.steps) == 1


def test_split_slice_and_negative_steps():
    m = Model()
    x = m.input(2, 9, 5, 6)
    parts = m.op("Split", m.conv(x, 9, 12), m.const(np.array([4, 7, 1])), outputs=3, axis=1)
    y = m.op("Slice", parts[1], m.const(np.array([3, -1])), m.const(np.array([0, -100])), m.const(np.array([2, 1])),
             m.const(np.array([-1, -2])))  # fmt: skip
    check(m.build(parts[0], y, m.op("Add", parts[2], parts[0])))


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [1, 2]},
        {"kernel_shape": [3, 3], "dilations": [2, 1], "pads": [2, 1, 2, 1]},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ],
)
def test_max_pool(attributes):
    m = Model()
    check(m.build(m.op("MaxPool", m.input(2, 5, 9, 7), **attributes)))


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
def test_average_pool(include, ceil):
    m = Model()
    y = m.op("AveragePool", m.input(1, 4, 8, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1],
             count_include_pad=include, ceil_mode=ceil)  # fmt: skip
    check(m.build(y))


@pytest.mark.parametrize(("op", "kind"), [("AveragePool", ReduceKind.MEAN), ("MaxPool", ReduceKind.MAX)])
def test_a_pool_with_one_window_is_a_reduction(op, kind):
    m = Model()
    y = m.conv(m.input(2, 8, 5, 7), 8, 16)
    padded = m.op(op, y, kernel_shape=[5, 7], pads=[0, 0, 1, 0])
    program = check(m.build(m.op(op, y, kernel_shape=[5, 7], strides=[2, 2]), padded), DType.F16, tolerance=3e-3)
    made = [s.operation for s in program.steps if isinstance(s, OperatorStep)]
    assert [o for o in made if isinstance(o, Reduce)] == [Reduce(kind, 2, 35, 16)]
    assert [(o.before, o.after) for o in made if isinstance(o, Pool)] == [((0, 0, 0), (0, 1, 0))]


def test_one_dimensional_conv_and_pool():
    m = Model()
    x = m.input(2, 8, 20)
    y = m.op("Conv", x, m.weight(16, 8, 3), m.weight(16), pads=[1, 1], strides=[2])
    check(m.build(m.op("MaxPool", y, kernel_shape=[3], strides=[2])))


def test_lrn_and_global_pools():
    m = Model()
    y = m.op("LRN", m.input(2, 7, 4, 4), size=5, alpha=0.3, beta=0.6, bias=1.5)
    check(m.build(y, m.op("GlobalMaxPool", y), m.op("GlobalAveragePool", y)))


@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceL1"]
)
@pytest.mark.parametrize(("axes", "keep"), [([1], 1), ([2, 3], 0), ([0, 2], 1), ([-1], 0), ([0, 1, 2, 3], 0)])
def test_reductions(op, axes, keep):
    m = Model()
    x = m.op("Relu", m.conv(m.input(2, 3, 4, 5), 3, 6))
    check(m.build(m.op(op, x, m.const(np.array(axes)), keepdims=keep)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_along_every_axis(op, axis):
    m = Model()
    check(m.build(m.op(op, m.input(3, 5, 4), axis=axis)))


def test_softmax_before_opset_13_flattens():
    m = Model()
    check(m.build(m.op("Softmax", m.input(2, 3, 4), axis=1), opset=11))


def test_arg_max_and_arg_min():
    m = Model()
    x = m.conv(m.input(2, 3, 6, 6), 3, 5)
    check(m.build(m.op("ArgMax", x, axis=1), m.op("ArgMin", x, axis=3, keepdims=0, select_last_index=1)))


def test_layer_norm_attention_and_gelu():
    m = Model()
    x = m.input(2, 6, 16)
    y = m.op("LayerNormalization", x, m.weight(16), m.weight(16), axis=-1)

    def heads(perm):
        split = m.op("Reshape", m.op("MatMul", y, m.weight(16, 16, scale=0.25)), m.const(np.array([2, 6, 4, 4])))
        return m.op("Transpose", split, perm=perm)

    scores = m.op("MatMul", heads([0, 2, 1, 3]), heads([0, 2, 3, 1]))
    scores = m.op("Softmax", m.op("Div", scores, m.const(np.float32(2.0))))
    y = m.op("Transpose", m.op("MatMul", scores, heads([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    y = m.op("Add", m.op("MatMul", m.op("Reshape", y, m.const(np.array([2, 6, 16]))), m.weight(16, 16)), x)
    y = m.op("Gelu", m.op("Add", m.op("MatMul", y, m.weight(16, 32)), m.weight(32)))
    check(m.build(y), tolerance=1e-4)


def test_gather_of_embeddings_and_of_a_single_row():
    m = Model()
    indices = m.input(3, 4, dtype=TensorProto.INT64)
    rows = m.op("Gather", m.weight(10, 6), indices)
    first = m.op("Gather", rows, m.const(np.array(-1)), axis=1)
    inputs = [np.random.default_rng(0).integers(-10, 10, (3, 4))]
    check(m.build(rows, first, m.op("ReduceSum", rows, m.const(np.array([1])), keepdims=0)), inputs=inputs)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode):
    m = Model()
    x = m.conv(m.input(1, 3, 5, 6), 3, 4)
    y = m.op("Pad", x, m.const(np.array([0, 1, 2, 0, 0, 2, 1, 3])), m.const(np.float32(0.5)), mode=mode)
    check(m.build(y, m.op("Pad", x, m.const(np.array([0, 0, -1, 0, 0, 0, 2, -2])), mode=mode)))


def test_broadcasting_in_every_direction():
    m = Model()
    x, row, gate = m.input(2, 6, 4, 4), m.input(1, 6, 1, 1), m.input(2, 1, 4, 1)
    y = m.conv(x, 6, 6)
    y = m.op("Mul", m.op("Add", y, row), gate)
    y = m.op("Sub", m.op("Mul", y, m.weight(6, 1, 1)), m.weight(4))
    z = m.op("Where", m.op("Greater", y, m.const(np.float32(0))), y, m.op("Mul", y, m.const(np.float32(0.1))))
    check(m.build(z, m.op("Expand", row, m.const(np.array([2, 6, 3, 1])))))


UNARY = [
    "Abs", "Atan", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish",
    "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh", "ThresholdedRelu", "Celu",
]  # fmt: skip


def test_unary_operators():
    m = Model()
    x = m.op("Mul", m.input(4, 9), m.const(np.float32(3)))
    check(m.build(*[m.op(op, x) for op in UNARY]), tolerance=1e-4)


def test_integer_and_boolean_arithmetic():
    m = Model()
    a, b = m.input(3, 5, dtype=TensorProto.INT64), m.input(5, dtype=TensorProto.INT64)
    less, equal = m.op("Less", a, b), m.op("Equal", a, b)
    mixed = m.op("Cast", m.op("Or", less, m.op("Not", equal)), to=TensorProto.FLOAT)
    outputs = [
        m.op("Mod", a, b), m.op("Div", a, b), m.op("Max", a, b), m.op("Add", a, m.const(np.int64(2**40))), mixed,
        m.op("Cast", m.op("Mul", mixed, m.const(np.float32(2.5))), to=TensorProto.INT32),
        m.op("Clip", a, m.const(np.int64(-2))),
    ]  # fmt: skip
    random = np.random.default_rng(0)
    check(m.build(*outputs), inputs=[random.integers(-9, 9, (3, 5)), random.integers(1, 5, 5)])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode):
    m = Model()
    y = m.op("DepthToSpace", m.conv(m.input(1, 3, 4, 4), 3, 8), blocksize=2, mode=mode)
    check(m.build(m.conv(y, 2, 4), m.op("SpaceToDepth", y, blocksize=2)))


def test_inputs_that_are_outputs_and_outputs_that_are_constants():
    m = Model()
    x = m.input(2, 3)
    check(
        m.build(
            m.op("Identity", x),
            m.op("Identity", m.const(np.float32([1, 2]))),
            m.op("Reshape", x, m.const(np.array([3, 2]))),
        )
    )


def test_transposes_that_only_change_the_layout_cost_nothing():
    m = Model()
    x = m.op("Transpose", m.input(2, 8, 8, 16), perm=[0, 3, 1, 2])
    y = m.op("Transpose", m.op("Relu", m.conv(x, 16, 8)), perm=[0, 2, 3, 1])
    program = check(m.build(y), DType.F16, tolerance=5e-3)
    steps = [s.operation for s in program.steps if isinstance(s, OperatorStep)]
    assert not any(isinstance(s, TiledTranspose) for s in steps)
    assert all(len(s.extents) == 1 for s in steps if isinstance(s, Pointwise)), "type conversions at the ends only"


def test_grouped_and_depthwise_convolutions():
    m = Model()
    y = m.conv(m.input(2, 8, 7, 7), 8, 16, group=4)
    y = m.conv(m.op("Relu", y), 16, 16, group=16, strides=[2, 2])
    check(m.build(m.conv(y, 16, 8, size=1)))


def test_rows_of_a_matrix_may_stay_permuted():
    m = Model()
    x = m.op("Transpose", m.input(4, 3, 8), perm=[1, 0, 2])
    program = check(m.build(m.op("Relu", m.op("MatMul", x, m.weight(8, 8)))), DType.TF32)
    assert conversions(program) == 1, "only the output is put in order"


def test_gemm_with_both_operands_computed():
    m = Model()
    a, b = m.input(6, 8), m.input(5, 6)
    check(m.build(m.op("Gemm", a, b, m.weight(8, 5), transA=1, transB=1, alpha=0.5)))


def test_strides_of_reused_memory_never_show_through():
    m = Model()
    y = m.conv(m.input(1, 4, 8, 8), 4, 8)
    for i in range(6):
        y = m.op("Concat", y, m.op("Relu", m.conv(y, 8 * (i + 1), 8)), axis=1)
    check(m.build(m.op("GlobalAveragePool", y)), tolerance=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_models_that_hold_every_operator(name):
    model = MODELS[name]()
    inputs = exact_inputs([(p.type.shape, p.type.dtype) for p in lowered(model).inputs])
    check(model, tolerance=1e-4, inputs=inputs)
    check(model, DType.F16, tolerance=1e-2, inputs=inputs)


def test_a_quantised_net_runs_in_floats():
    """QDQ form: weights are constants of floats, an activation is rounded on its way through one kernel."""
    m = Model()
    scale, zero, step = m.const(np.float32(0.02)), m.const(np.uint8(128)), m.const(np.float32(0.01))

    def rounded(x: str) -> str:
        return m.op("DequantizeLinear", m.op("QuantizeLinear", x, scale, zero), scale, zero)

    weight = m.op("DequantizeLinear", m.const(m.random.integers(-90, 90, (8, 4, 3, 3)).astype(np.int8)), step)
    bias = m.op(
        "DequantizeLinear", m.const(m.random.integers(-900, 900, 8).astype(np.int32)), m.const(np.float32(2e-4))
    )
    x = rounded(m.input(2, 4, 6, 6))
    y = rounded(m.op("Relu", m.op("Conv", x, weight, bias, pads=[1, 1, 1, 1])))
    program = check(m.build(m.op("GlobalAveragePool", y)), tolerance=5e-3)
    assert len(list(program.templates)) == 1
    assert sum(isinstance(s, OperatorStep) and isinstance(s.operation, Pointwise) for s in program.steps) <= 4


def test_a_concatenation_is_joined_into_the_pointwise_kernel_that_reads_it():
    m = Model()
    x = m.conv(m.input(2, 3, 6, 6), 3, 8)
    for channels, width in ((8, 4), (12, 6)):
        y = m.op("Relu", m.op("Mul", x, m.weight(channels, 1, 1)))
        x = m.op("Concat", x, m.conv(y, channels, width), axis=1)
    y = m.op("Relu", m.op("Add", x, m.weight(18, 1, 1)))
    program = check(m.build(m.conv(y, 18, 8, size=1), m.op("GlobalAveragePool", x)))
    operations = [s.operation for s in program.steps if isinstance(s, OperatorStep)]
    assert not any(isinstance(o, Concat) for o in operations)
    joined = [o for o in operations if isinstance(o, Pointwise) and any(p.widths for p in o.operands)]
    assert [len(o.results) for o in joined] == [2, 2], "each also writes the joined tensor for its other readers"


def test_a_concatenation_that_is_read_before_stays_a_step():
    m = Model()
    x = m.conv(m.input(1, 3, 6, 6), 3, 8)
    joined = m.op("Concat", x, m.op("Tanh", x), axis=1)
    pooled = m.op("MaxPool", joined, kernel_shape=[2, 2])
    program = check(m.build(pooled, m.op("Relu", joined)))
    assert any(isinstance(getattr(s, "operation", None), Concat) for s in program.steps)
