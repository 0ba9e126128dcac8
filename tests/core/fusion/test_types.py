"""The types a plan computes in and writes: the plan's own, the model's casts, and what can't be."""

import numpy as np
import pytest
from onnx import TensorProto

from core.fusion.plan import Kind
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.fusion.values import native_dtype, stored_dtype
from templates.types import DType
from tests.core.fusion.graphs import Net, weight


@pytest.mark.parametrize(
    ("dtype", "output"), [(DType.F16, DType.F16), (DType.BF16, DType.BF16), (DType.TF32, DType.F32)]
)
def test_float32_model_is_computed_in_the_plan_s_type(dtype: DType, output: DType) -> None:
    net = Net(x=(1, 8, 4, 4))
    found = plan(net.graph(net.op("Relu", net.conv("x", 8, 8))), dtype)
    workload = found.regions[0].workload
    assert workload is not None and workload.dtype == dtype and workload.epilogue.output == output
    assert found.dtype == dtype


def test_half_model_converts_its_output_in_the_epilogue() -> None:
    net = Net(dtype="float16", x=(2, 3, 8))
    y = net.op("MatMul", "x", net.const(weight(8, 16)))
    y = net.op("Cast", net.op("Relu", y), to=TensorProto.FLOAT, name="widen")
    region = plan(net.graph(y)).regions[0]
    assert region.nodes[-1] == "widen" and region.epilogue.output is DType.F32
    assert str(region.epilogue) == "relu->f32"


def test_nothing_follows_a_conversion() -> None:
    net = Net(dtype="float16", x=(2, 3, 8))
    y = net.op("Cast", net.op("MatMul", "x", net.const(weight(8, 16))), to=TensorProto.FLOAT, name="widen")
    found = plan(net.graph(net.op("Tanh", y, name="after")))
    assert found.regions[0].nodes == ("matmul0", "widen")
    assert found.refusals[0].node == "after" and "already converted to f32" in found.refusals[0].reason


def test_conversion_that_changes_nothing_in_memory_is_a_step_of_nothing() -> None:
    net = Net(x=(2, 3, 8))
    y = net.op("Cast", net.op("MatMul", "x", net.const(weight(8, 16))), to=TensorProto.FLOAT16, name="narrow")
    region = plan(net.graph(net.op("Tanh", y))).regions[0]
    assert region.nodes == ("matmul0", "narrow", "tanh0") and str(region.epilogue) == "tanh"


def test_conversion_after_a_residual_is_refused_because_the_source_has_the_output_s_type() -> None:
    net = Net(dtype="float16", x=(2, 3, 8))
    y = net.op("Add", net.op("MatMul", "x", net.const(weight(8, 8))), "x")
    found = plan(net.graph(net.op("Cast", y, to=TensorProto.FLOAT, name="widen")))
    assert found.regions[0].nodes == ("matmul0", "add0")
    assert "the source tensor x is f16" in found.refusals[0].reason


def test_conversion_to_integers_stays_out() -> None:
    net = Net(x=(2, 3, 8))
    y = net.op("Cast", net.op("MatMul", "x", net.const(weight(8, 16))), to=TensorProto.INT64, name="round")
    assert plan(net.graph(y)).refusals[0].reason == "round converts to i64, an epilogue writes f16, bf16 or f32"


def test_integer_product_has_no_template() -> None:
    net = Net(x=(2, 8))
    a = net.op("Cast", "x", to=TensorProto.INT32)
    y = net.op("MatMul", a, net.const(np.ones((8, 4), np.int32)), name="count")
    found = plan(prepare(net.graph(net.op("Cast", y, to=TensorProto.FLOAT))))
    region = found.region_of("count")
    assert region is not None and region.kind is Kind.OTHER and not region.supported
    assert region.reason == "cast0.out is i32, the plan computes in f16"


def test_wide_part_of_a_half_model_is_named() -> None:
    net = Net(dtype="float16", x=(2, 8))
    half = net.op("MatMul", "x", net.const(weight(8, 8)))
    net.op("MatMul", half, net.const(weight(8, 8)))
    wide = net.op("Cast", "matmul1.out", to=TensorProto.FLOAT)
    y = net.op("MatMul", wide, net.op("Transpose", wide), name="wide")
    region = plan(net.graph(y)).region_of("wide")
    assert region is not None and not region.supported and "is f32, the plan computes in f16" in region.reason


def test_stored_types() -> None:
    assert stored_dtype(DType.F32, DType.F32, DType.F16) is DType.F16
    assert stored_dtype(DType.F32, DType.F16, DType.F16) is DType.F32
    assert stored_dtype(DType.F16, DType.F16, DType.BF16) is DType.BF16
    assert stored_dtype(DType.I64, DType.F32, DType.F16) is DType.I64
    assert stored_dtype(DType.F32, DType.F32, DType.TF32) is DType.F32
    net = Net(dtype="float16", x=(2, 8))
    assert native_dtype(net.graph(net.op("MatMul", "x", net.const(weight(8, 8))))) is DType.F16
