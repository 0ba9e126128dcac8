"""Models that together hold every operator kernel; the GPU tests run them, the compile tests build them."""

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from templates.types import DType
from tests.core.export.models import Model

SMOOTH = [
    "Abs", "Atan", "Celu", "Cos", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg",
    "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh",
]  # fmt: skip
# A rounding error before one of these may become a whole step: they read inputs, which are exact.
STEPS = ["Ceil", "Floor", "Round", "Sign", "ThresholdedRelu"]


def windows() -> ModelProto:
    """Pools, LRN, concat, pad, shuffles, slices and a grouped convolution, channels-last."""
    m = Model()
    x = m.input(2, 3, 14, 14)
    y = m.op("Relu", m.conv(x, 3, 16))
    pooled = m.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    mean = m.op("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    inner = m.op("AveragePool", y, kernel_shape=[2, 2], pads=[1, 1, 0, 0])
    large = [m.op("MaxPool", y, kernel_shape=[6, 5], dilations=[2, 1], pads=[2, 1, 3, 2], strides=[3, 2]),
             m.op("AveragePool", y, kernel_shape=[3, 17], pads=[0, 8, 2, 8], strides=[2, 1])]  # fmt: skip
    norm = m.op("LRN", y, size=5, alpha=0.1)
    both = m.op("Concat", pooled, mean, m.conv(pooled, 16, 9), axis=1)
    joined = [m.op("Tanh", both), m.op("Tanh", m.op("Concat", mean, pooled, axis=1))]
    shuffled = m.op("Reshape", norm, m.const(np.array([2, 4, 4, 14, 14])))
    shuffled = m.op("Reshape", m.op("Transpose", shuffled, perm=[0, 2, 1, 3, 4]), m.const(np.array([2, 16, 14, 14])))
    wide = m.op("Pad", shuffled, m.const(np.array([0, 0, 1, 2, 0, 0, 0, 1])), mode="reflect")
    parts = m.op("Split", both, m.const(np.array([30, 11])), outputs=2, axis=1)
    cut = m.op(
        "Slice", wide, m.const(np.array([15])), m.const(np.array([0])), m.const(np.array([2])), m.const(np.array([-2]))
    )
    deep = m.op("DepthToSpace", norm, blocksize=2)
    pools = [m.op(kind, norm) for kind in ("GlobalAveragePool", "GlobalMaxPool")]
    # To one pixel, where channels-last is the output's own layout: the kernels write the library's output in its type.
    one = {"kernel_shape": [13, 13], "strides": [13, 13]}
    pixel = m.op("AveragePool", norm, **one)
    whole = m.op("AveragePool", norm, kernel_shape=[14, 14])
    pixels = [whole, m.op("MaxPool", norm, **one), pixel, m.op("LRN", m.op("Tanh", pixel), size=3, alpha=0.1)]
    flat = m.op("Gemm", m.op("Flatten", pooled), m.weight(5, 16 * 49, scale=0.05), transB=1)
    odd = m.conv(m.input(3, 3, 5, 5), 3, 8)  # planes of 25 pixels: packed one by one
    return m.build(
        odd,
        inner,
        *large,
        *joined,
        *parts,
        cut,
        deep,
        *pools,
        *pixels,
        flat,
        m.conv(y, 16, 16, group=4),
        m.op("ArgMax", x, axis=1),
    )


def rows() -> ModelProto:
    """Softmax, layer norm, reductions and gathers over rows short and long, and transposes between them."""
    m = Model()
    x, long = m.input(6, 40, 33), m.input(3, 3000)
    y = m.op("Relu", m.op("MatMul", x, m.weight(33, 64, scale=0.2)))
    normal = m.op("LayerNormalization", y, m.weight(64), m.weight(64))
    turned = m.op("Transpose", normal, perm=[0, 2, 1])
    scores = m.op("Softmax", m.op("MatMul", normal, turned), axis=-1)
    outputs = [
        m.op("Softmax", y, axis=1), m.op("LogSoftmax", long), m.op("Softmax", long),
        m.op("LayerNormalization", long, m.weight(3000), m.weight(3000)), m.op("MatMul", scores, normal),
        m.op("Relu", turned), m.op("Gather", y, m.const(np.array([3, -1, 0])), axis=1),
        m.op("Gather", y, m.const(np.array(0)), axis=1),
    ]  # fmt: skip
    for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        outputs.append(m.op(kind, y, m.const(np.array([1])), keepdims=0))
        outputs.append(m.op(kind, long, m.const(np.array([-1]))))
    return m.build(*outputs)


def fused_rows() -> ModelProto:
    """Reductions with their pointwise neighbours: rows of every length and layout, several results of one pass."""
    m = Model()
    x, r, long = m.input(5, 7, 48), m.input(5, 7, 48), m.input(2, 9000)
    half, eps, two = m.const(np.float32(0.5)), m.const(np.float32(1e-5)), m.const(np.float32(2))

    def spelled_rms(t: str, axis: int, *weight: int) -> str:
        mean = m.op("ReduceMean", m.op("Pow", t, two), m.const(np.array([axis])))
        return m.op("Mul", m.op("Div", t, m.op("Sqrt", m.op("Add", mean, eps))), m.weight(*weight))

    def spelled_norm(t: str, axis: int, *weight: int) -> str:
        centred = m.op("Sub", t, m.op("ReduceMean", t, m.const(np.array([axis]))))
        variance = m.op("ReduceMean", m.op("Mul", centred, centred), m.const(np.array([axis])))
        return m.op("Add", m.op("Div", centred, m.op("Sqrt", m.op("Add", variance, eps))), m.weight(*weight))

    total = m.op("Add", x, r)  # read by others too: a second result
    outputs = [
        m.op("LayerNormalization", total, m.weight(48), m.weight(48)),
        m.op("Exp", m.op("Reshape", total, m.const(np.array([35, 48])))),
    ]
    outputs += m.op("LayerNormalization", m.op("Tanh", x), m.weight(48), m.weight(48), outputs=3)
    outputs += [
        spelled_rms(m.op("Mul", x, half), -1, 48),
        spelled_norm(long, -1, 9000),
        spelled_rms(m.op("Sub", m.input(70, 4), half), -1, 4),
    ]
    endless = m.input(1, 33000)  # more than the registers of a block
    outputs.append(m.op("LayerNormalization", endless, m.weight(33000), m.weight(33000)))
    mask = m.input(5, 1, 48)
    outputs += [
        m.op("Softmax", m.op("Add", m.op("Mul", x, half), mask)),
        m.op("Tanh", m.op("LogSoftmax", m.op("Add", x, mask))),
    ]
    outputs += [
        m.op("ReduceLogSumExp", m.op("Add", x, r), m.const(np.array([2])), keepdims=0),
        m.op("ReduceMax", m.op("Abs", r), m.const(np.array([1, 2]))),
    ]
    outputs += [m.op("Exp", m.op("LpNormalization", m.op("Add", x, half), axis=-1, p=p)) for p in (1, 2)]
    image = m.input(2, 3, 6, 6)
    y = m.op("Sigmoid", m.conv(image, 3, 32))  # channels last
    g = m.op("GroupNormalization", y, m.weight(32), m.weight(32), num_groups=2)
    outputs += [
        m.op("Mul", g, m.op("Sigmoid", g)),
        m.op("Relu", m.op("InstanceNormalization", y, m.weight(32), m.weight(32))),
    ]
    outputs += [
        m.op("Relu", m.op("GroupNormalization", image, m.weight(3), m.weight(3), num_groups=3)),
        spelled_norm(y, 1, 32, 1, 1),
    ]
    outputs += [m.op("Neg", m.op("Softmax", y, axis=1))]
    return m.build(*outputs)


def indexed() -> ModelProto:
    """Reads and writes where data says, selections, running sums, resampling, pools of one and three dimensions."""
    m = Model()
    x = m.input(3, 40, 16)
    y = m.op("Tanh", x)
    at = m.const(np.array(m.random.integers(-40, 40, (2, 7, 16))))
    tuples = m.const(np.array([[0, 3], [2, -1], [1, 39], [0, 4]]))
    repeated = m.const(np.array([[0, 3], [2, 5], [0, 3]]))
    unique = m.const(np.argsort(m.random.random((2, 40, 16)), axis=1)[:, :5])
    outputs = [
        m.op("GatherElements", y, at, axis=1),
        m.op("GatherND", y, tuples),
        m.op("GatherND", y, m.const(np.array([[[1], [2]], [[0], [39]], [[-1], [7]]])), batch_dims=1),
        m.op("ScatterND", y, tuples, m.weight(4, 16)),
        m.op("ScatterElements", y, unique, m.weight(2, 5, 16), axis=1),
    ]
    for kind in ("add", "mul", "max", "min"):
        outputs.append(m.op("ScatterND", y, repeated, m.weight(3, 16), reduction=kind))
        outputs.append(m.op("ScatterElements", y, at, m.weight(2, 7, 16), axis=1, reduction=kind))
    for largest, axis, k in ((1, 1, 5), (0, 2, 16), (1, 0, 1)):
        outputs += m.op("TopK", x, m.const(np.array([k])), outputs=2, axis=axis, largest=largest)
    outputs += m.op("TopK", m.input(1, 5000), m.const(np.array([9])), outputs=2)
    outputs += [m.op("CumSum", x, m.const(np.array(1)), exclusive=e, reverse=r) for e in (0, 1) for r in (0, 1)]
    image = m.input(2, 3, 6, 7)
    z = m.op("Relu", m.conv(image, 3, 16))  # channels last
    for mode, where in (
        ("nearest", "asymmetric"),
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "pytorch_half_pixel"),
    ):
        scales = m.const(np.array([1, 1, 2, 1.5], np.float32))
        outputs.append(m.op("Resize", z, "", scales, mode=mode, coordinate_transformation_mode=where))
    outputs.append(m.op("Resize", image, "", "", m.const(np.array([2, 3, 4, 3])), mode="linear", antialias=1))
    line, volume = m.input(2, 5, 12), m.input(1, 4, 5, 6, 7)
    outputs += [
        m.op("MaxPool", line, kernel_shape=[3], strides=[2], ceil_mode=1),
        m.op("AveragePool", line, kernel_shape=[4], pads=[1, 2]),
        m.op("MaxPool", volume, kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[0, 1, 0, 1, 0, 1]),
        m.op("AveragePool", volume, kernel_shape=[3, 2, 3], strides=[2, 2, 1], ceil_mode=1, pads=[1, 0, 1, 0, 0, 1]),
        m.op("GlobalAveragePool", volume),
        m.op("GlobalMaxPool", line),
        m.op("ConvTranspose", z, m.weight(16, 8, 4, 4, scale=0.1), strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    return m.build(*outputs)


def pointwise() -> ModelProto:
    """Every pointwise operator, broadcasting every way, on floats, integers and booleans."""
    m = Model()
    x, row = m.input(2, 12, 5, 8), m.input(1, 12, 1, 1)
    y = m.op("Mul", m.conv(x, 12, 12), m.const(np.float32(3)))
    wide = m.op("Sub", m.op("Mul", m.op("Add", y, row), m.weight(5, 1)), m.weight(12, 1, 1))
    chosen = m.op("Where", m.op("Greater", x, m.const(np.float32(0))), m.op("Pow", y, m.const(np.float32(2))), wide)
    i, j = m.input(4, 6, dtype=TensorProto.INT64), m.input(6, dtype=TensorProto.INT64)
    divisor = m.op("Add", m.op("Abs", j), m.const(np.int64(3)))
    numbers = [
        m.op("Mod", i, divisor), m.op("Div", i, divisor), m.op("Max", i, j), m.op("Add", i, m.const(np.int64(2**40))),
        m.op("Or", m.op("Less", i, j), m.op("Equal", i, j)), m.op("Cast", m.op("Greater", i, j), to=TensorProto.FLOAT),
        m.op("Cast", m.op("Mul", x, m.const(np.float32(9))), to=TensorProto.INT32),
        m.op("Clip", i, m.const(np.int64(0))),
    ]  # fmt: skip
    return m.build(chosen, *[m.op(k, y) for k in SMOOTH], *[m.op(k, x) for k in STEPS], *numbers)


def exact_inputs(ports: Sequence[tuple[tuple[int, ...], DType]], seed: int = 0) -> list[np.ndarray]:
    """Inputs that half precision holds exactly: a step (Floor, ArgMax) then falls on the same side as in float32."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-9, 9, shape)
        if dtype == DType.I64
        else (random.integers(-512, 513, shape) / 512).astype(np.float32)
        for shape, dtype in ports
    ]


MODELS = {"windows": windows, "rows": rows, "fused_rows": fused_rows, "indexed": indexed, "pointwise": pointwise}
