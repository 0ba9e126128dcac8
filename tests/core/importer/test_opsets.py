"""Operators as older opsets write them, against ONNX Runtime running the model as it is; and ONNX's own node tests."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from core.errors import ModelError
from core.graph.to_onnx import to_model
from core.importer.load import load_graph
from tests.core.graph.equivalence import assert_same, run_model
from tests.core.importer.models import load, model, node, weights

ONE, TWO = np.array([1]), np.array([2])
# (operator, opset, input shape, constants, attributes)
CASES: list[tuple[str, int, list[int], dict[str, np.ndarray], dict[str, Any]]] = [
    ("Clip", 7, [3, 4], {}, {"min": -0.5, "max": 0.25}),
    ("Clip", 10, [3, 4], {}, {"max": 0.25}),
    ("Clip", 11, [3, 4], {"lo": np.array(-0.25, np.float32)}, {}),
    ("Squeeze", 7, [1, 3, 1, 4], {}, {"axes": [0]}),
    ("Squeeze", 11, [1, 3, 1, 4], {}, {"axes": [-2]}),
    ("Squeeze", 7, [1, 3, 1, 4], {}, {}),
    ("Squeeze", 13, [1, 3, 1, 4], {"a": TWO}, {}),
    ("Unsqueeze", 7, [3, 4], {}, {"axes": [0, 3]}),
    ("Unsqueeze", 13, [3, 4], {"a": np.array([-1, 0])}, {}),
    ("Flatten", 7, [2, 3, 4], {}, {"axis": 2}),
    ("Flatten", 13, [2, 3, 4], {}, {"axis": -1}),
    ("Flatten", 9, [2, 3, 4], {}, {"axis": 0}),
    ("ReduceMean", 7, [2, 3, 4], {}, {"axes": [1, 2]}),
    ("ReduceMean", 11, [2, 3, 4], {}, {"axes": [-1], "keepdims": 0}),
    ("ReduceMax", 13, [2, 3, 4], {}, {}),
    ("ReduceMean", 18, [2, 3, 4], {"a": np.array([-1])}, {"keepdims": 0}),
    ("ReduceL2", 18, [2, 3, 4], {}, {"noop_with_empty_axes": 1}),
    ("ReduceSum", 11, [2, 3, 4], {}, {"axes": [1]}),
    ("ReduceSum", 13, [2, 3, 4], {"a": ONE}, {}),
    ("Softmax", 7, [2, 3, 4], {}, {}),
    ("Softmax", 11, [2, 3, 4], {}, {"axis": 2}),
    ("Softmax", 9, [2, 3, 1, 1], {}, {"axis": 1}),
    ("Softmax", 13, [2, 3, 4], {}, {"axis": 1}),
    ("LogSoftmax", 11, [2, 3, 4], {}, {"axis": -2}),
    ("Hardmax", 11, [2, 3, 4], {}, {}),
    ("Dropout", 7, [3, 4], {}, {"ratio": 0.3}),
    ("Dropout", 12, [3, 4], {"r": np.array(0.3, np.float32)}, {}),
    ("Slice", 9, [4, 5], {}, {"starts": [1, 0], "ends": [3, -1]}),
    ("Slice", 9, [4, 5], {}, {"starts": [1], "ends": [1000], "axes": [1]}),
    ("Slice", 11, [4, 5], {"s": ONE, "e": np.array([-1]), "a": ONE}, {}),
    ("Pad", 7, [2, 3], {}, {"pads": [1, 0, 0, 2], "value": 1.5}),
    ("Pad", 10, [2, 3], {}, {"pads": [0, 1, 0, 1], "mode": "reflect"}),
    ("Pad", 13, [2, 3], {"p": np.array([1, 0, 0, 2])}, {}),
    ("TopK", 9, [3, 6], {}, {"k": 2}),
    ("TopK", 10, [3, 6], {"k": TWO}, {"axis": 0}),
    ("Upsample", 7, [1, 2, 3, 3], {}, {"scales": [1.0, 1.0, 2.0, 2.0]}),
    ("Upsample", 9, [1, 2, 3, 3], {"s": np.array([1, 1, 2, 3], np.float32)}, {"mode": "nearest"}),
    ("Resize", 10, [1, 2, 3, 3], {"s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
    ("ArgMax", 7, [3, 4], {}, {"axis": 1}),
    ("ArgMax", 11, [3, 4], {}, {"axis": -1, "keepdims": 0}),
    ("Gather", 11, [3, 4], {"i": np.array([2, 0])}, {"axis": -1}),
    ("Sum", 8, [2, 3], {"a": weights(2, 3), "b": weights(3)}, {}),
    ("Sum", 8, [2, 3], {}, {}),
    ("Max", 8, [2, 3], {"a": weights(2, 3), "b": weights(3)}, {}),
    ("Min", 13, [2, 3], {"a": weights(1)}, {}),
    ("Mean", 8, [2, 3], {"a": weights(2, 3), "b": weights(3)}, {}),
    ("Transpose", 9, [2, 3, 4], {}, {}),
    ("BatchNormalization", 7, [2, 3, 4], {k: np.abs(weights(3, seed=i)) for i, k in enumerate("gbmv")}, {}),
    ("BatchNormalization", 14, [2, 3, 4], {k: np.abs(weights(3, seed=i)) for i, k in enumerate("gbmv")}, {}),
    ("Conv", 7, [1, 2, 7, 8], {"w": weights(4, 2, 3, 3)}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", 11, [1, 2, 7, 8], {"w": weights(4, 2, 4, 3)}, {"auto_pad": "SAME_LOWER"}),
    ("Conv", 11, [1, 2, 7, 8], {"w": weights(4, 2, 3, 3)}, {"auto_pad": "VALID"}),
    ("Conv", 11, [1, 4, 9], {"w": weights(6, 2, 3), "b": weights(6)}, {"group": 2}),
    ("ConvTranspose", 11, [1, 2, 4, 5], {"w": weights(2, 3, 3, 3)}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("ConvTranspose", 11, [1, 2, 4, 5], {"w": weights(2, 3, 3, 3)}, {"output_shape": [10, 11], "strides": [2, 2]}),
    ("ConvTranspose", 7, [1, 2, 4, 5], {"w": weights(2, 3, 3, 3)}, {"output_padding": [1, 0], "strides": [2, 1]}),
    ("MaxPool", 7, [1, 2, 7, 8], {}, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}),
    ("MaxPool", 10, [1, 2, 7, 8], {}, {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", 7, [1, 2, 7, 8], {}, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", 19, [1, 2, 7, 8], {}, {"kernel_shape": [3, 2], "dilations": [2, 2], "count_include_pad": 1}),
    ("LpPool", 11, [1, 2, 7, 8], {}, {"kernel_shape": [3, 2], "p": 2}),
    ("Constant", 11, [2], {}, {"value": numpy_helper.from_array(weights(2))}),
    ("Constant", 12, [2], {}, {"value_floats": [1.0, 2.0]}),
]


@pytest.mark.parametrize(("op", "opset", "shape", "values", "attrs"), CASES)
def test_older_form(
    op: str, opset: int, shape: list[int], values: dict[str, np.ndarray], attrs: dict[str, Any]
) -> None:
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    nodes = [node("Abs", ["x"], ["z"], "front"), node(op, ["z", *values], outputs, "it", **attrs)]
    if op == "Constant":
        nodes = [node(op, [], ["c"], "it", **attrs), node("Mul", ["x", "c"], ["y"])]
    elif op == "Clip" and opset == 11:
        nodes[1] = node(op, ["x", *values], outputs, "it", **attrs)
    proto = model(nodes, {"x": shape}, outputs, values, opset)
    if op == "TopK":
        proto.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    elif op == "ArgMax":
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert_same(proto, load(proto))


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 21])
def test_split(opset: int) -> None:
    if opset < 13:
        split = node("Split", ["x"], ["a", "b"], axis=1, split=[2, 3])
    elif opset < 18:
        split = node("Split", ["x"], ["a", "b"], axis=-1)
    else:
        split = node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2)
    shape = [2, 6] if 13 <= opset < 18 else [2, 5]
    proto = model([split], {"x": shape}, ["a", "b"], {}, opset)
    graph = load(proto)
    assert_same(proto, graph)
    assert graph.constant(graph.nodes[0].inputs[1]) is not None


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_element_types(kind: type) -> None:
    values = {"w": weights(4, 8).astype(kind)}
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 4]}, ["y"], values, kind=code)
    assert_same(proto, load(proto), rtol=1e-2, atol=1e-2)


def test_bfloat16_weights_keep_their_bits() -> None:
    import ml_dtypes

    values = weights(4, 8).astype(ml_dtypes.bfloat16)
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 4]}, ["y"], kind=TensorProto.BFLOAT16)
    proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    graph = load(proto)
    assert graph.constants["w"].dtype == values.dtype
    assert graph.types["y"].dtype == "bf16"
    assert numpy_helper.to_array(to_model(graph).graph.initializer[0]).tobytes() == values.tobytes()


def test_initializers_listed_as_inputs_are_constants() -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 4], "w": [4, 8]}, ["y"], {"w": weights(4, 8)})
    graph = load(proto)
    assert graph.inputs == ("x",) and "w" in graph.constants
    assert_same(proto, graph)


def test_local_functions_are_inlined() -> None:
    function = onnx.helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [onnx.helper.make_opsetid("", 17)]
    )
    proto = model([onnx.helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": [3]}, ["y"])
    proto.opset_import.append(onnx.helper.make_opsetid("own", 1))
    proto.functions.append(function)
    graph = load(proto)
    assert [n.op for n in graph] == ["Add"]
    assert_same(proto, graph)


OPERATORS = frozenset((
    "Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "ConstantOfShape", "Conv", "ConvTranspose",
    "DepthToSpace", "Expand", "Flatten", "Gather", "Gelu", "Gemm", "GlobalAveragePool", "GroupNormalization",
    "HardSwish", "InstanceNormalization", "LRN", "LayerNormalization", "MatMul", "MaxPool", "Mul", "Pad",
    "ReduceMean", "ReduceSum", "Reshape", "Slice", "Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip


def test_node_tests_of_onnx() -> None:
    """Each case of these operators gives ONNX's expected output after import, or is refused for a stated reason."""
    ran, refused = 0, []
    with np.errstate(all="ignore"):
        cases = collect_testcases()
    for case in cases:
        proto = case.model
        if proto is None or {n.op_type for n in proto.graph.node} - OPERATORS or proto.opset_import[0].version > 23:
            continue
        inputs, wanted = case.data_sets[0]
        feeds = {v.name: np.asarray(a) for v, a in zip(proto.graph.input, inputs, strict=False)}
        # Shapes, axes and pads are constants in real models; these cases give them as inputs.
        fixed = {k: v for i, (k, v) in enumerate(feeds.items()) if i and v.ndim <= 1}
        proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in fixed.items())
        try:
            graph = load_graph(proto.SerializeToString())
        except ModelError as error:
            refused.append(f"{case.name}: {error}")
            continue
        if graph.untyped:
            continue
        try:
            got = run_model(to_model(graph), feeds)
        except RuntimeError:  # an operator or type that ONNX Runtime has no CPU kernel for
            continue
        for value, output in zip(wanted, proto.graph.output, strict=False):
            np.testing.assert_allclose(got[output.name], value, rtol=1e-3, atol=1e-4, err_msg=case.name)
        ran += 1
    assert ran > 150
    reasons = ("at least 1", "element type", "opset", "ONNX wants it")
    assert not [r for r in refused if not any(text in r for text in reasons)], refused
