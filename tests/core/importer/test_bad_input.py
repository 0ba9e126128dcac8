"""What a broken or hostile file gets: one line that says what is wrong, and nothing allocated or read outside."""

import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from core.errors import BoltError, ModelError
from core.importer.load import load_graph
from core.importer.read import MAX_NODES
from tests.core.importer.models import load, model, node, weights


def refused(proto: onnx.ModelProto, *words: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(proto)
    return said(caught.value, *words)


def said(error: ModelError, *words: str) -> str:
    text = str(error)
    assert "\n" not in text
    for word in words:
        assert word in text, text
    return text


def relu(shape: list[int | str | None]) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not an ONNX model"), (b"hello, this is text\n" * 9, "not an ONNX model"), (b"\x08\x08", "no graph")],
)
def test_not_onnx(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_graph(path)
    said(caught.value, words)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_graph(tmp_path / "none.onnx")
    said(caught.value, "there is no file")
    with pytest.raises(ModelError) as caught:
        load_graph(str(tmp_path))
    said(caught.value, "is a folder")


def test_names_no_file_can_have(tmp_path: Path) -> None:
    for name in ("a" * 5000, "a\0b", "", "/dev/zero"):
        with pytest.raises(ModelError):
            load_graph(name)
    big = tmp_path / "big.onnx"
    with big.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ModelError, match="2 GiB"):
        load_graph(big)


def test_truncated(tmp_path: Path) -> None:
    data = model([node("Gemm", ["x", "w"], ["y"])], {"x": [1, 64]}, ["y"], {"w": weights(64, 64)}).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in (1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            load_graph(path)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_end_in_a_graph_or_a_reason(data: st.DataObject) -> None:
    whole = model(
        [node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")], {"x": [1, 3, 8, 8]}, ["y"],
        {"w": weights(4, 3, 3, 3)},
    ).SerializeToString()  # fmt: skip
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_graph(bytes(damaged))
    except BoltError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("shape", [[1, 0, 4], [1, -3, 4], [0, 3]])
def test_extent_below_one(shape: list[int | str | None]) -> None:
    refused(relu(shape), "'x'", "at least 1")


def test_declared_sizes_are_not_allocated() -> None:
    refused(relu([1, 10**6, 10**6]), "'x'", "more than")
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"])
    proto.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[10**6, 10**6]))
    refused(proto, "'w'", "more than")
    proto.graph.initializer[0].dims[:] = [1000, 1000]
    refused(proto, "'w'", "holds 0")
    shape = np.array([10**6, 10**6], np.int64)
    proto = model(
        [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])], {"x": [1]}, ["y"], {"s": shape}
    )
    start = time.perf_counter()
    refused(proto, "more than")
    assert time.perf_counter() - start < 5


def test_growing_a_tensor_without_bound_is_refused() -> None:
    nodes = [node("Concat", [f"t{i}"] * 8, [f"t{i + 1}"], axis=0) for i in range(12)]
    refused(model(nodes, {"t0": [64, 8]}, ["t12"]), "more than")


def test_open_dimension_is_named() -> None:
    text = refused(relu(["N", 3, "height", 4]), "dimension 2", "height", "--batch only sets the first")
    assert "'x'" in text


def test_wiring() -> None:
    refused(model([node("Relu", ["nowhere"], ["y"], "r")], {"x": [1]}, ["y"]), "'nowhere'", "'r'")
    refused(model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["z"]), "'z'", "made by no node")
    loop = [node("Add", ["x", "b"], ["a"], "first"), node("Relu", ["a"], ["b"], "second")]
    refused(model(loop, {"x": [1]}, ["b"]), "cycle")
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    refused(model(twice, {"x": [1]}, ["y"]), "'y'", "twice")
    refused(model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["x"]), "itself a graph input")


def test_unsorted_nodes_are_sorted_and_names_made_unique() -> None:
    nodes = [
        node("Relu", ["a"], ["y"], "same"),
        node("Abs", ["x"], ["a"], "same"),
        node("Neg", ["x"], ["z"]),
        node("Neg", ["z"], ["w"]),
    ]
    graph = load(model(nodes, {"x": [2, 2]}, ["y", "w"]))
    assert [n.op for n in graph] == ["Abs", "Relu", "Neg", "Neg"] or graph.nodes[0].op == "Abs"
    names = [n.name for n in graph]
    assert len(set(names)) == 4 and all(names) and "same" in names


@pytest.mark.parametrize("opset", [6, 24])
def test_opset_outside(opset: int) -> None:
    proto = relu([1])
    proto.opset_import[0].version = opset
    refused(proto, f"opset {opset}", "7 to 23")


def test_type_and_shape_mistakes_name_the_node() -> None:
    proto = model([node("Conv", ["x", "w"], ["y"], "the conv")], {"x": [1, 3, 8, 8]}, ["y"], {"w": weights(4, 5, 3, 3)})
    refused(proto, "'the conv'", "Conv")
    proto = model([node("MatMul", ["x", "w"], ["y"], "mm")], {"x": [1, 3]}, ["y"], {"w": weights(4, 5)})
    refused(proto, "'mm'", "'x' [1, 3]", "'w' [4, 5]")
    refused(model([node("Flatten", ["x"], ["y"], "f", axis=9)], {"x": [1, 3]}, ["y"]), "'f'", "axis 9")


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"group": 1.5}, "'group' has type FLOAT, not INT"),
        ({"pads": "x"}, "'pads' has type STRING, not INTS"),
        ({"auto_pad": "EVIL"}, "auto_pad 'EVIL'"),
        ({"strides": [2**40, 1]}, "stride"),
        ({"dilations": [1, 2**40]}, "dilation"),
        ({"pads": [2**31, 0, 0, 0], "strides": [2**31 - 1, 1]}, "pads dimension 2"),
    ],
)
def test_attributes_no_convolution_can_have(attrs: dict[str, object], words: str) -> None:
    conv = node("Conv", ["x", "w"], ["y"], "c", **attrs)
    refused(model([conv], {"x": [1, 3, 8, 8]}, ["y"], {"w": weights(4, 3, 1, 1)}), "'c'", words)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "words"),
    [
        ("Shape", [], {}, "inputs is 0, not 1"),
        ("Shape", [""], {}, "lacks input"),
        ("Conv", ["x"], {}, "inputs is 1, not 2 to 3"),
        ("Conv", ["x", ""], {}, "lacks input"),
        ("Concat", [], {"axis": 0}, "inputs is 0, not 1 or more"),
        ("Relu", ["x", "x"], {}, "inputs is 2, not 1"),
        ("LRN", ["x"], {"size": 0}, "size 0"),
        ("LRN", ["x"], {}, "not formed"),
    ],
)
def test_nodes_not_formed_as_their_operator(op: str, inputs: list[str], attrs: dict[str, object], words: str) -> None:
    refused(model([node(op, inputs, ["y"], "n", **attrs)], {"x": [1, 3, 8, 8]}, ["y"]), "'n'", words)


@pytest.mark.parametrize(
    ("op", "shape", "weights_of", "attrs", "words"),
    [
        ("Reshape", [2, 3], {"k": np.array([2, 2, 6], np.int64)}, {}, "[2, 3] has not as many elements as [2, 2, 6]"),
        ("SpaceToDepth", [2, 1, 8, 8], {}, {"blocksize": 3}, "blocks of 3"),
        ("DepthToSpace", [2, 6, 8, 8], {}, {"blocksize": 4}, "blocks of 4"),
        ("Clip", [2, 3], {"k": weights(2, 3)}, {}, "one number is needed"),
        ("LayerNormalization", [2, 4, 8], {"k": weights(4)}, {}, "[4] is not one number for each of [8]"),
        ("InstanceNormalization", [2, 4, 8], {"k": weights(4), "l": weights(3)}, {}, "'l' [3] is not one number"),
        ("InstanceNormalization", [4], {"k": weights(4), "l": weights(4)}, {}, "no dimension behind its channels"),
        ("LpNormalization", [], {}, {"axis": 3}, "axis 3"),
        ("MeanVarianceNormalization", [2, 4, 8, 8], {}, {"axes": [0, 7]}, "axis 7"),
        ("PRelu", [2, 4], {"k": weights(3, 4)}, {}, "does not broadcast"),
        ("Celu", [2, 4], {}, {"alpha": 0.0}, "alpha is 0"),
        ("Pad", [], {"k": np.array(8)}, {}, "pads [] for 0 dimensions"),
        ("GatherND", [4], {"k": np.zeros((1, 2), np.int64)}, {"batch_dims": -(2**31)}, "batch_dims"),
        ("GatherND", [4], {"k": np.zeros((1, 2), np.int64)}, {}, "must not be larger"),
        (
            "ScatterElements",
            [4],
            {"k": np.zeros((1, 1), np.int64), "l": weights(1, 1)},
            {},
            "'k' [1, 1] has not as many",
        ),
        (
            "ScatterElements",
            [4],
            {"k": np.zeros(1, np.int64), "l": weights(1)},
            {"reduction": "%s"},
            "none of none, add",
        ),
        ("CumSum", [], {"k": np.array(0)}, {}, "a scalar"),
        ("LpNormalization", [], {}, {"axis": 0}, "a scalar"),
        ("LayerNormalization", [], {"k": weights()}, {"axis": 0}, "a scalar"),
        ("Gemm", [2, 4], {"k": weights(4, 4)}, {"transA": 2**32}, "transA 4294967296, not 0 or 1"),
        ("Einsum", [2, 2], {}, {"equation": "..." * 30}, "which is none"),
        ("GroupNormalization", [2, 4, 2], {"k": weights(4), "l": weights(4)}, {"num_groups": 0}, "formed"),
        ("Unsqueeze", [2, 4], {"k": np.arange(40)}, {}, "42 dimensions"),
    ],
)
def test_operands_that_onnx_lets_pass(
    op: str, shape: list[int | str | None], weights_of: dict[str, np.ndarray], attrs: dict[str, object], words: str
) -> None:
    refused(model([node(op, ["x", *weights_of], ["y"], "n", **attrs)], {"x": shape}, ["y"], weights_of), "'n'", words)


def test_a_bias_of_more_rows_than_the_product() -> None:
    proto = model([node("Gemm", ["x", "w", "c"], ["y"], "fc")], {"x": [1, 8]}, ["y"],
                  {"w": weights(8, 64), "c": weights(64, 1)})  # fmt: skip
    refused(proto, "'fc'", "[64, 1] does not broadcast to [1, 64]")


def calling(*calls: list[str]) -> onnx.ModelProto:
    """A model of local functions F0, F1, ...; each holds the named operators in a row."""
    proto = model([helper.make_node("F0", ["x"], ["y"], "call", domain="own")], {"x": [4]}, ["y"])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for number, ops in enumerate(calls):
        tensors = ["a", *(f"m{i}" for i in range(len(ops) - 1)), "b"]
        body = [
            helper.make_node(op, [tensors[i]], [tensors[i + 1]], domain="own" if op.startswith("F") else "")
            for i, op in enumerate(ops)
        ]
        proto.functions.append(helper.make_function("own", f"F{number}", ["a"], ["b"], body, imports))
    proto.opset_import.append(imports[1])
    return proto


def test_local_functions_are_put_in_place_unless_they_never_end() -> None:
    assert [n.op for n in load(calling(["Relu", "F1"], ["Neg"]))] == ["Relu", "Neg"]
    refused(calling(["F1"], ["F0"]), "calls itself")
    refused(calling(*([f"F{i + 1}"] * 2 for i in range(40)), ["Relu"]), f"{2**40} nodes: more than the")
    twice = calling(["Relu"])
    twice.functions.append(twice.functions[0])
    refused(twice, "can't be inlined")


def test_more_nodes_than_anyone_draws() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    proto.graph.node.extend([proto.graph.node[0]] * MAX_NODES)
    refused(proto, f"{MAX_NODES + 1} nodes: more than the {MAX_NODES} supported")


def test_string_tensors_are_refused() -> None:
    refused(model([node("Identity", ["x"], ["y"])], {"x": [1]}, ["y"], kind=TensorProto.STRING), "STRING", "'x'")


@pytest.mark.parametrize("name", ['"; system("ls"); //', "a\nb\r\nc", "/* */ #include <x>", "\0", "é✓", "%s%n"])
def test_hostile_names_are_data(name: str) -> None:
    proto = model([node("Relu", [name + "in"], [name], name)], {name + "in": [1, 4]}, [name])
    proto.graph.name = name
    graph = load(proto)
    assert (graph.name, graph.nodes[0].name, graph.outputs) == (name, name, (name,))


def external(location: str, offset: str | None = None, length: str | None = None) -> onnx.ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    proto.graph.initializer.append(tensor)
    return proto


def test_external_data_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "deep"
    folder.mkdir(parents=True)
    values = np.arange(6, dtype=np.float32)
    (folder / "w.bin").write_bytes(values.tobytes())
    path = tmp_path / "model" / "m.onnx"
    onnx.save(external("deep/w.bin", "8", "16"), path)
    np.testing.assert_array_equal(load_graph(path).constants["w"], values[2:])


@pytest.mark.parametrize(
    ("location", "offset", "length", "words"),
    [
        ("../secret.bin", None, None, "not a path inside"),
        ("deep/../../secret.bin", None, None, "not a path inside"),
        ("{absolute}", None, None, "not a path inside"),
        ("", None, None, "not a path inside"),
        ("link.bin", None, None, "leaves the model's folder"),
        ("linked/secret.bin", None, None, "leaves the model's folder"),
        ("missing.bin", None, None, "missing"),
        ("w.bin", "1000", None, "past the end"),
        ("w.bin", "-4", None, "past the end"),
        ("w.bin", "0", "12", "12 bytes long"),
        ("w.bin", "zero", None, "no number"),
        ("loop.bin", None, None, "can't be read"),
        ("x" * 5000, None, None, "can't be read"),
    ],
)
def test_external_data_outside_the_folder(
    tmp_path: Path, location: str, offset: str | None, length: str | None, words: str
) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(16))
    os.symlink(secret, folder / "link.bin")
    os.symlink(tmp_path, folder / "linked")
    os.symlink("loop.bin", folder / "loop.bin")
    path = folder / "m.onnx"
    path.write_bytes(external(location.format(absolute=secret), offset, length).SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_graph(path)
    said(caught.value, words, "'w'")


def test_external_data_of_bytes_is_refused() -> None:
    refused(external("w.bin"), "folder")


@pytest.mark.parametrize("location", ["w.bin", "../w.bin", "/dev/zero"])
def test_attributes_hold_their_data_themselves(tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx would read them from wherever the program was started."""
    (tmp_path / "w.bin").write_bytes(bytes(16))
    monkeypatch.chdir(tmp_path)
    proto = model([node("Constant", [], ["w"], "k"), node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"])
    value = proto.graph.node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    value.t.CopyFrom(external(location).graph.initializer[0])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_graph(path)
    said(caught.value, "'k'", "outside the model")


def test_unknown_operators_stay_in_the_graph() -> None:
    proto = model([node("Relu", ["x"], ["a"], "r"), helper.make_node("Own", ["a"], ["b"], "own", domain="my.ops"),
                   node("Relu", ["b"], ["y"], "s")], {"x": [1, 4]}, ["y"])  # fmt: skip
    graph = load(proto)
    assert [n.op for n in graph] == ["Relu", "Own", "Relu"]
    assert "my.ops.Own" in graph.untyped["b"] and "y" in graph.untyped and "a" in graph.types
    proto.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 4]))
    assert not load(proto).untyped
