"""Every pass: what it removes, what it must leave, and that the outputs stay the same."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from core.graph.describe import describe
from core.graph.ir import Graph, Node
from core.graph.passes import PASSES, fold_constants, simplify
from core.graph.passes.affine import decompose_batch_norm, fold_affine, fold_gemm_factors
from core.graph.passes.dead import remove_dead
from core.graph.passes.dedupe import share_constants
from core.graph.passes.noop import remove_noops
from core.graph.passes.pad import fold_pad
from core.graph.passes.shapes import merge_layout
from core.importer.load import import_graph
from tests.core.graph.equivalence import assert_pass_keeps
from tests.core.importer.models import model, node, weights


def graph_of(*args: object, **kwargs: object) -> Graph:
    return import_graph(model(*args, **kwargs).SerializeToString())  # type: ignore[arg-type]


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph]


def kept(step: object, before: Graph) -> Graph:
    """The graph after the pass, checked to be the same function."""
    after = step(before)  # type: ignore[operator]
    assert_pass_keeps(before, after)
    return after


def norm_weights(channels: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    values = {k: random.uniform(0.5, 1.5, channels).astype(np.float32) for k in ("g", "m", "v")}
    return values | {"b": random.uniform(-1, 1, channels).astype(np.float32)}


NORM = ("g", "b", "m", "v")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_folds_into_a_convolution(op: str, bias: bool, group: int) -> None:
    shape = (6, 4 // group, 3, 3) if op == "Conv" else (4, 6 // group, 3, 3)
    values = {"w": weights(*shape), "c": weights(6)} | norm_weights(6)
    nodes = [node(op, ["x", "w", *(["c"] if bias else [])], ["t"], "conv", group=group),
             node("BatchNormalization", ["t", *NORM], ["y"], "bn")]  # fmt: skip
    after = kept(fold_affine, graph_of(nodes, {"x": [2, 4, 5, 5]}, ["y"], values))
    assert ops(after) == [op] and after.absorbed["bn"] == "folded into conv"
    assert after.node("conv").outputs == ("y",)


@pytest.mark.parametrize("trans", [0, 1])
def test_batch_norm_folds_into_gemm_with_its_factors(trans: int) -> None:
    values = {"w": weights(5, 8) if trans else weights(8, 5), "c": weights(5)} | norm_weights(5)
    nodes = [node("Gemm", ["x", "w", "c"], ["t"], alpha=0.5, beta=2.0, transB=trans),
             node("BatchNormalization", ["t", *NORM], ["y"])]  # fmt: skip
    before = graph_of(nodes, {"x": [3, 8]}, ["y"], values)
    after = kept(fold_affine, before)
    assert ops(after) == ["Gemm"] and not {"alpha", "beta"} & set(after.nodes[0].attrs)
    kept(fold_gemm_factors, before)


@pytest.mark.parametrize(
    "chain", [["Mul"], ["Add"], ["Sub", "Div"], ["Mul", "Add"], ["BatchNormalization", "Mul", "Add"]]
)
@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (1,), ()])
def test_scales_and_shifts_fold(chain: list[str], shape: tuple[int, ...]) -> None:
    nodes, tensor = [node("Conv", ["x", "w"], ["t0"], "conv")], "t0"
    for i, op in enumerate(chain, 1):
        inputs = [tensor, *NORM] if op == "BatchNormalization" else [tensor, f"k{i}"]
        tensor = f"t{i}"
        nodes.append(node(op, inputs, [tensor], f"n{i}"))
    values = (
        {f"k{i}": np.abs(weights(*shape, seed=i)) + 0.5 for i in range(1, 4)}
        | norm_weights(6)
        | {"w": weights(6, 4, 3, 3)}
    )
    values = {k: np.asarray(v, np.float32) for k, v in values.items()}
    after = kept(fold_affine, graph_of(nodes, {"x": [2, 4, 5, 5]}, [tensor], values))
    assert ops(after) == ["Conv"]


def test_constant_on_the_left() -> None:
    nodes = [node("Conv", ["x", "w"], ["t"]), node("Sub", ["k", "t"], ["u"]), node("Mul", ["k", "u"], ["y"])]
    after = kept(
        fold_affine, graph_of(nodes, {"x": [1, 3, 5, 5]}, ["y"], {"w": weights(4, 3, 3, 3), "k": weights(4, 1, 1)})
    )
    assert ops(after) == ["Conv"]


def test_what_must_not_fold_into_a_convolution() -> None:
    values = {"w": weights(4, 3, 3, 3), "k": weights(4, 1, 1), "wide": weights(1, 4, 1, 3), "one": weights(1)}
    conv = node("Conv", ["x", "w"], ["t"])
    second_reader = [conv, node("Mul", ["t", "k"], ["y"]), node("Relu", ["t"], ["z"])]
    assert "Mul" in ops(kept(fold_affine, graph_of(second_reader, {"x": [1, 3, 5, 5]}, ["y", "z"], values)))
    output = [conv, node("Mul", ["t", "k"], ["y"])]
    assert "Mul" in ops(kept(fold_affine, graph_of(output, {"x": [1, 3, 5, 5]}, ["t", "y"], values)))
    along_width = [conv, node("Mul", ["t", "wide"], ["y"])]
    assert "Mul" in ops(kept(fold_affine, graph_of(along_width, {"x": [1, 3, 5, 5]}, ["y"], values)))
    squared = [conv, node("Mul", ["t", "t"], ["y"])]
    assert "Mul" in ops(kept(fold_affine, graph_of(squared, {"x": [1, 3, 5, 5]}, ["y"], values)))
    divided = [conv, node("Div", ["k", "t"], ["y"])]
    assert "Div" in ops(kept(fold_affine, graph_of(divided, {"x": [1, 3, 5, 5]}, ["y"], values)))


def test_a_scale_that_leaves_the_type_is_not_folded() -> None:
    values = {"w": np.full((4, 3, 1, 1), 6e4, np.float16), "k": np.full((4, 1, 1), 100, np.float16)}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("Mul", ["t", "k"], ["y"])]
    before = graph_of(nodes, {"x": [1, 3, 2, 2]}, ["y"], values, kind=TensorProto.FLOAT16)
    assert ops(fold_affine(before)) == ["Conv", "Mul"]


def test_batch_norm_without_a_convolution_becomes_mul_and_add() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("BatchNormalization", ["r", *NORM], ["y"], "bn")]
    after = kept(decompose_batch_norm, graph_of(nodes, {"x": [2, 6, 3, 3]}, ["y"], norm_weights(6)))
    assert ops(after) == ["Relu", "Mul", "Add"]
    assert [n.name for n in after][1:] == ["bn", "bn/shift"]
    assert after.constants[after.node("bn").inputs[1]].shape == (6, 1, 1)


def test_noops_go_and_outputs_keep_their_names() -> None:
    nodes = [
        node("Identity", ["x"], ["a"], "i"),
        node("Cast", ["a"], ["b"], "c", to=TensorProto.FLOAT),
        node("Transpose", ["b"], ["d"], "t", perm=[1, 0, 2]),
        node("Relu", ["d"], ["e"], "relu"),
        node("Mul", ["e", "one"], ["f"], "m"),
        node("Dropout", ["f"], ["g"], "drop"),
        node("Reshape", ["g", "s"], ["y"], "r"),
    ]
    values = {"one": np.ones(1, np.float32), "s": np.array([1, 1, -1])}
    after = kept(remove_noops, graph_of(nodes, {"x": [1, 1, 8]}, ["y"], values, opset=11))
    assert [n.name for n in after] == ["relu"] and after.nodes[0].outputs == ("y",)
    assert set(after.absorbed) >= {"i", "c", "t", "m", "drop", "r"}


def test_noop_between_an_input_and_an_output_stays() -> None:
    nodes = [node("Identity", ["x"], ["y"]), node("Relu", ["x"], ["z"]), node("Identity", ["z"], ["w"])]
    after = kept(remove_noops, graph_of(nodes, {"x": [3]}, ["y", "z", "w"]))
    assert set(after.outputs) <= {t for n in after for t in n.outputs}


def test_not_noops() -> None:
    values = {"z": np.zeros(1, np.float32), "w": np.ones((2, 1), np.float32), "p": np.array([0, 1, 0, -1]),
              "start": np.array([3]), "end": np.array([-5]), "ax": np.array([1]), "st": np.array([-1])}  # fmt: skip
    nodes = [
        node("Mul", ["x", "w"], ["a"]),  # broadcasts (1, 4) to (2, 4)
        node("Transpose", ["a"], ["b"], perm=[1, 0]),
        node("Pad", ["a", "p"], ["c"]),  # shifts
        node("Slice", ["a", "start", "end", "ax", "st"], ["d"]),  # reverses
        node("Sub", ["z", "x"], ["e"]),
    ]
    before = graph_of(nodes, {"x": [1, 4]}, ["b", "c", "d", "e"], values)
    assert len(kept(remove_noops, before).nodes) == 5


def test_dead_code() -> None:
    nodes = [
        node("Relu", ["x"], ["y"], "live"),
        node("Abs", ["x"], ["u"], "dead"),
        node("Neg", ["u"], ["v"], "dead too"),
    ]
    after = kept(remove_dead, graph_of(nodes, {"x": [3]}, ["y"], {"unused": weights(2)}))
    assert ops(after) == ["Relu"] and not after.constants and set(after.types) == {"x", "y"}
    assert "no output" in after.absorbed["dead"] and "no output" in after.absorbed["dead too"]


def test_constants_fold_and_so_does_shape_arithmetic() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zeros"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["f"]),
        node("Mul", ["k", "k"], ["k2"], "square"),
        node("MatMul", ["f", "k2"], ["y"]),
    ]
    values = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1]), "k": weights(12, 5)}
    proto = model(nodes, {"x": [2, 3, 4]}, ["y"], values)
    after = import_graph(proto.SerializeToString())
    assert ops(after) == ["Reshape", "MatMul"]
    assert "constants" in after.absorbed["square"]
    again = after.replaced([*after.nodes, Node("late", "Neg", ("k2",), ("unused",))])
    assert "unused" in fold_constants(again).constants


def test_random_numbers_are_not_folded() -> None:
    nodes = [node("RandomNormal", [], ["r"], shape=[3]), node("Add", ["x", "r"], ["y"])]
    assert ops(graph_of(nodes, {"x": [3]}, ["y"])) == ["RandomNormal", "Add"]


def test_output_that_is_constant_is_still_made_by_a_node() -> None:
    nodes = [node("Add", ["k", "k"], ["y"]), node("Mul", ["x", "y"], ["z"])]
    graph = graph_of(nodes, {"x": [3]}, ["y", "z"], {"k": weights(3)})
    assert_pass_keeps(graph, simplify(graph))
    assert graph.producer("y") is not None and "y" not in graph.constants


def test_layout_chains_merge() -> None:
    nodes = [
        node("Reshape", ["x", "s1"], ["a"], "r1"),
        node("Reshape", ["a", "s2"], ["b"], "r2"),
        node("Transpose", ["b"], ["c"], "t1", perm=[2, 0, 1]),
        node("Transpose", ["c"], ["y"], "t2", perm=[1, 0, 2]),
    ]
    values = {"s1": np.array([6, -1]), "s2": np.array([2, 0, 4])}
    values["s2"] = np.array([2, 3, -1])
    after = kept(merge_layout, graph_of(nodes, {"x": [2, 3, 4]}, ["y"], values))
    assert [n.name for n in after] == ["r2", "t2"] and after.node("t2").attrs["perm"] == (0, 2, 1)
    assert after.constants[after.node("r2").inputs[1]].tolist() == [2, 3, 4]


def test_layout_chain_with_a_second_reader_stays() -> None:
    nodes = [node("Transpose", ["x"], ["a"], perm=[1, 0]), node("Transpose", ["a"], ["y"], perm=[1, 0]),
             node("Relu", ["a"], ["z"])]  # fmt: skip
    assert len(kept(merge_layout, graph_of(nodes, {"x": [2, 3]}, ["y", "z"])).nodes) == 3


PADS = np.array([0, 0, 1, 2, 0, 0, 2, 0])


@pytest.mark.parametrize(
    ("window", "front"),
    [
        (node("Conv", ["p", "w"], ["y"], "win", pads=[1, 0, 0, 1]), "Relu"),
        (node("AveragePool", ["p"], ["y"], "win", kernel_shape=[3, 3]), "Neg"),
        (node("AveragePool", ["p"], ["y"], "win", kernel_shape=[4, 4], pads=[1] * 4, count_include_pad=1), "Neg"),
        (node("MaxPool", ["p"], ["y"], "win", kernel_shape=[3, 3], strides=[2, 2]), "Relu"),
    ],
)
def test_pad_folds(window: onnx.NodeProto, front: str) -> None:
    nodes = [node(front, ["x"], ["f"], "front"), node("Pad", ["f", "pads"], ["p"], "pad"), window]
    before = graph_of(nodes, {"x": [1, 3, 7, 7]}, ["y"], {"pads": PADS, "w": weights(4, 3, 3, 3)})
    after = kept(fold_pad, before)
    assert ops(after) == [front, window.op_type] and after.absorbed["pad"] == "folded into win"


@pytest.mark.parametrize(
    ("window", "front", "pads"),
    [
        (node("MaxPool", ["p"], ["y"], kernel_shape=[3, 3]), "Neg", PADS),  # zeros win over negative numbers
        (node("MaxPool", ["p"], ["y"], kernel_shape=[2, 2]), "Relu", PADS),  # a window of nothing but padding
        (node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3], pads=[1] * 4), "Neg", PADS),
        (node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), "Neg", PADS),
        (node("Conv", ["p", "w"], ["y"]), "Neg", np.array([0, 0, -1, 0, 0, 0, 1, 0])),
        (node("Conv", ["p", "w4"], ["y"]), "Neg", np.array([0, 1, 1, 0, 0, 0, 1, 0])),
    ],
)
def test_pad_stays(window: onnx.NodeProto, front: str, pads: np.ndarray) -> None:
    nodes = [node(front, ["x"], ["f"]), node("Pad", ["f", "pads"], ["p"]), window]
    values = {"pads": pads, "w": weights(4, 3, 3, 3), "w4": weights(4, 4, 3, 3)}
    assert "Pad" in ops(kept(fold_pad, graph_of(nodes, {"x": [1, 3, 7, 7]}, ["y"], values)))


def test_pad_of_another_value_stays() -> None:
    nodes = [node("Pad", ["x", "pads", "v"], ["p"]), node("Conv", ["p", "w"], ["y"])]
    values = {"pads": PADS, "v": np.array(1, np.float32), "w": weights(4, 3, 3, 3)}
    assert "Pad" in ops(kept(fold_pad, graph_of(nodes, {"x": [1, 3, 7, 7]}, ["y"], values)))


def test_equal_constants_are_shared() -> None:
    nodes = [node("Add", ["x", "a"], ["t"]), node("Mul", ["t", "b"], ["u"]), node("Sub", ["u", "c"], ["y"])]
    values = {"a": weights(3), "b": weights(3), "c": weights(1, 3)}
    after = kept(share_constants, graph_of(nodes, {"x": [2, 3]}, ["y"], values))
    assert set(after.constants) == {"a", "c"}


def test_passes_are_told_before_and_after() -> None:
    nodes = [node("Conv", ["x", "w"], ["t"], "conv"), node("BatchNormalization", ["t", *NORM], ["y"], "bn")]
    graph = graph_of(nodes, {"x": [1, 4, 5, 5]}, ["y"], {"w": weights(6, 4, 3, 3)} | norm_weights(6))
    seen: list[str] = []
    simplify(graph, lambda name, before, after: seen.append(f"{name}\n{describe(before)}\n{describe(after)}"))
    assert len(seen) == len(PASSES)
    assert "'bn'" in seen[0] and "absorbed 'bn': folded into conv" in seen[-1]
    assert "'x':f32[1, 4, 5, 5]" in seen[0]
