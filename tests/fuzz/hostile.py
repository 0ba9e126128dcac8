"""Inputs made by hand: the attacks that random mutation would not find, each at the size at which it hurts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.mutate import NAMES
from tests.fuzz.seeds import FLOATS, INTS, subgraph

Attack = Callable[[Path], bytes | Path]
_MANY = 100_000


def _model(
    nodes: list[onnx.NodeProto],
    shape: list[int] | None = None,
    output: str = "y",
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "hostile", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or [1, 8, 6, 6])],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _bytes(made: onnx.ModelProto) -> Attack:
    return lambda folder: made.SerializeToString()


def chain(count: int, *kinds: str) -> bytes:
    """`count` nodes in a row, the kinds in turn."""
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    nodes = [
        onnx.NodeProto(op_type=kinds[i % len(kinds)], name=f"n{i}", input=[names[i]], output=[names[i + 1]])
        for i in range(count)
    ]
    return _model(nodes).SerializeToString()


def fan(count: int) -> bytes:
    """`count` readers of one tensor, all joined again."""
    nodes = [onnx.NodeProto(op_type="Relu", input=["x"], output=[f"t{i}"]) for i in range(count)]
    return _model([*nodes, helper.make_node("Sum", [f"t{i}" for i in range(count)], ["y"])]).SerializeToString()


def ladder(count: int) -> bytes:
    """Sums of the tensor before with itself and with the one before that: paths without number."""
    nodes, before, last = [], "x", "x"
    for i in range(count):
        nodes.append(helper.make_node("Add", [last, before], [f"t{i}"]))
        before, last = last, f"t{i}"
    return _model(nodes, output=last).SerializeToString()


def convolutions(count: int) -> bytes:
    """`count` residual convolutions that share one weight."""
    nodes, last = [], "x"
    for i in range(count):
        nodes += [
            helper.make_node("Conv", [last, "w"], [f"c{i}"], f"conv{i}", pads=[1] * 4),
            helper.make_node("Add", [f"c{i}", last], [f"a{i}"], f"add{i}"),
        ]
        last = f"a{i}"
    return _model(nodes, output=last, weights={"w": np.ones((8, 8, 3, 3), np.float32)}).SerializeToString()


def nested(depth: int, inner: str) -> bytes:
    """A graph in a graph, `depth` deep, written by hand: no library builds or copies so deep a message."""
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["s"])], "g", [], []).SerializeToString()
    for _ in range(depth):
        attribute = _field(1, b"body") + _field(6, body) + _number(20, onnx.AttributeProto.GRAPH)
        node = _field(2, b"s") + _field(4, inner.encode()) + _field(5, attribute)
        body = _field(1, node) + _field(2, b"g")
    proto = _model([helper.make_node("Relu", ["x"], ["y"])])
    proto.graph.node.add(op_type=inner, output=["s"])
    whole = proto.SerializeToString()
    attribute = _field(1, b"body") + _field(6, body) + _number(20, onnx.AttributeProto.GRAPH)
    node = _field(2, b"deep") + _field(4, inner.encode()) + _field(5, attribute)
    return whole + _field(7, _field(1, node))  # fields of messages that come twice are merged


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _growing(op: str, **attributes: object) -> bytes:
    """Each node makes its tensor eight times as large as the one before."""
    nodes = [helper.make_node(op, [f"t{i}"] * 8, [f"t{i + 1}"], **attributes) for i in range(40)]
    made = _model(nodes, output="t40")
    made.graph.input[0].name = "t0"
    return made.SerializeToString()


def _folded(op: str, *values: np.ndarray, **attributes: object) -> bytes:
    """A node of constants alone: what the importer computes while it reads."""
    names = [f"c{i}" for i in range(len(values))]
    nodes = [helper.make_node(op, names, ["k"], **attributes), helper.make_node("Add", ["x", "k"], ["y"])]
    return _model(nodes, [1], weights=dict(zip(names, values, strict=True))).SerializeToString()


def _tower(levels: int) -> bytes:
    """Constants of 32 MB folded one after another: each fits, all together do not."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["t0"])]
    nodes += [helper.make_node("Cos", ["t0"], [f"t{i + 1}"]) for i in range(levels)]
    nodes += [helper.make_node("Sum", ["x", *(f"t{i + 1}" for i in range(levels))], ["y"])]
    return _model(nodes, [1], weights={"s": np.array([8 << 20], np.int64)}).SerializeToString()


def _shape(*extents: int) -> bytes:
    return _model([helper.make_node("Relu", ["x"], ["y"])], list(extents)).SerializeToString()


def _window(op: str, **attributes: object) -> bytes:
    inputs = ["x", "w"] if op.startswith("Conv") else ["x"]
    weights = {"w": np.ones((8, 8, 3, 3), np.float32)} if op.startswith("Conv") else {}
    return _model([helper.make_node(op, inputs, ["y"], **attributes)], weights=weights).SerializeToString()


def _names(name: str) -> bytes:
    """Every string of the model is the same attack."""
    made = _model([helper.make_node("Conv", [f"{name}x", f"{name}w"], [f"{name}c"], name),
                   helper.make_node("Relu", [f"{name}c"], [f"{name}y"], name)])  # fmt: skip
    made.graph.initializer.append(numpy_helper.from_array(np.ones((8, 8, 1, 1), np.float32), f"{name}w"))
    made.graph.input[0].name, made.graph.output[0].name = f"{name}x", f"{name}y"
    made.graph.name = made.producer_name = made.doc_string = name
    return made.SerializeToString()


def _external(location: str, link: str = "", in_attribute: bool = False) -> Attack:
    """A weight whose data lies elsewhere; `link` is what a link of that name leads to."""

    def make(folder: Path) -> Path:
        if link:
            os.symlink(link, folder / location)
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        made = _model([helper.make_node("Add", ["x", "w"], ["y"])], [4])
        if in_attribute:
            made.graph.node.insert(0, helper.make_node("Constant", [], ["w"]))
            made.graph.node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
        else:
            made.graph.initializer.append(tensor)
        path = folder / "model.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    return make


def _recursive_functions(count: int) -> bytes:
    """Functions that each call the next one twice: 2**count nodes when they are put in place."""
    made = _model([helper.make_node("F0", ["x"], ["y"], domain="f")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    for i in range(count):
        inner = ("f", f"F{i + 1}") if i < count - 1 else ("", "Relu")
        body = [helper.make_node(inner[1], [a], [b], domain=inner[0]) for a, b in (("a", "m"), ("m", "b"))]
        made.functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], body, imports))
    made.opset_import.add(domain="f", version=1)
    return made.SerializeToString()


def _bomb(declared: int, packed: bool) -> bytes:
    """A repeated field of zeros: one byte in the file for each element, four to eight in memory."""
    tensor = TensorProto(name="w", data_type=TensorProto.INT64 if packed else TensorProto.FLOAT, dims=[declared])
    body = tensor.SerializeToString() + _field(7 if packed else 4, bytes(declared))
    proto = _model([helper.make_node("Relu", ["x"], ["y"])])
    return proto.SerializeToString() + _field(7, _field(5, body))


def _small(name: str, data: Callable[[], bytes]) -> tuple[str, Attack]:
    return name, lambda folder: data()


def attacks() -> list[tuple[str, Attack]]:
    """(name, what makes it): every attack once."""
    big = np.array([2**31 - 1, 2**31 - 1, 4], np.int64)
    found = [
        _small("100,000 nodes", lambda: chain(_MANY, "Relu")),
        _small("100,000 nodes, no two alike", lambda: chain(_MANY, "Relu", "Neg", "Transpose", "Softmax", "Abs")),
        _small("100,000 operators of nobody", lambda: chain(_MANY, "Nobody")),
        _small("50,000 readers", lambda: fan(50_000)),
        _small("20,000 sums", lambda: ladder(20_000)),
        _small("10,000 convolutions", lambda: convolutions(10_000)),
        _small("functions calling functions", lambda: _recursive_functions(40)),
        _small("growing concat", lambda: _growing("Concat", axis=0)),
        _small("growing sum of shapes", lambda: _growing("Concat", axis=3)),
        _small("tower of constants", lambda: _tower(200)),
        _small("expanded constants", lambda: _folded("Expand", np.ones(1, np.float32), big)),
        _small("tiled constants", lambda: _folded("Tile", np.ones(4, np.float32), np.array([2**61], np.int64))),
        _small("range without end", lambda: _folded("Range", *(np.array(v, np.int64) for v in (0, 2**62, 1)))),
        _small("range of nothing", lambda: _folded("Range", *(np.array(v, np.float32) for v in (0.0, 1.0, np.nan)))),
        _small("one hot", lambda: _folded("OneHot", np.arange(9), np.array(2**40), np.array([0.0, 1.0], np.float32))),
        _small("power of integers", lambda: _folded("Pow", np.array([2**62]), np.array([2**62]))),
        _small("huge resize", lambda: _folded("Resize", np.ones((1, 1, 2, 2), np.float32), np.zeros(0, np.float32),
                                              np.array([1, 1, 1e9, 1e9], np.float32))),
        _small("huge pad", lambda: _folded("Pad", np.ones(2, np.float32), np.array([2**62, 2**62], np.int64))),
        _small("einsum", lambda: _folded("Einsum", np.ones((2,) * 20, np.float32), equation="..." * 30)),
        _small("regular expression", lambda: _folded("LpPool", np.ones((1, 1, 9, 9), np.float32), kernel_shape=[9, 9])),
        _small("2 GB of zeros, packed", lambda: _bomb(300 << 20, packed=True)),
        _small("200 MB of zeros", lambda: _bomb(200 << 20, packed=False)),
    ]  # fmt: skip
    for depth in (20, 90, 101, 1_000, 20_000):
        found += [
            _small(f"{kind} {depth} deep", lambda d=depth, k=kind: nested(d, k)) for kind in ("If", "Loop", "Own")
        ]
    found += [_small(f"shape {s}", lambda s=s: _shape(*s)) for s in (
        (2**31 - 1,), (2**31,), (2**16, 2**16), (2**32, 2**32), (2**62, 4), (2**63 - 1, 2**63 - 1), (1,) * 64,
        (1,) * 5000, (46341, 46341))]  # fmt: skip
    for key in ("strides", "dilations", "pads", "kernel_shape"):
        for value in INTS:
            many = [value] * (4 if key == "pads" else 2)
            found += [_small(f"{op} {key}={value}", lambda op=op, k=key, m=many: _window(op, **{k: m}))
                      for op in ("Conv", "MaxPool", "ConvTranspose", "AveragePool")]  # fmt: skip
    for value in FLOATS:
        found += [
            _small(f"{op} {key}={value}", lambda op=op, k=key, v=value: _model(
                [helper.make_node(op, ["x"], ["y"], **{k: v})]).SerializeToString())
            for op, key in (("LeakyRelu", "alpha"), ("Elu", "alpha"), ("Celu", "alpha"), ("Selu", "gamma"),
                            ("HardSigmoid", "beta"), ("ThresholdedRelu", "alpha"), ("LRN", "alpha"))
        ]  # fmt: skip
        found.append(
            _small(
                f"weights of {value}",
                lambda v=value: _model(
                    [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Mul", ["c", "k"], ["y"])],
                    weights={"w": np.full((8, 8, 1, 1), v, np.float32), "k": np.full(1, v, np.float32)},
                ).SerializeToString(),
            )
        )
    found += [_small(f"named {name[:20]!r}", lambda n=name: _names(n)) for name in NAMES]
    for in_attribute in (False, True):
        where = " in an attribute" * in_attribute
        found += [
            (f"data at {location}{where}", _external(location, in_attribute=in_attribute))
            for location in ("../x", "/etc/hostname", "/dev/zero", "/proc/self/environ", "missing", "")
        ]
        found += [(f"data behind a link to {link}{where}", _external("link", link, in_attribute))
                  for link in ("/etc/hostname", "/dev/zero", "../", ".", "link", "/proc/self/fd/0")]  # fmt: skip
    found.append(_small("subgraphs beside each other", lambda: _wide_subgraphs(2_000)))
    return found


def _wide_subgraphs(count: int) -> bytes:
    node = onnx.NodeProto(op_type="If", input=["x"], output=["y"], name="wide")
    for i in range(count):
        node.attribute.add(name=f"branch{i}", type=onnx.AttributeProto.GRAPH).g.CopyFrom(subgraph(3))
    return _model([node]).SerializeToString()
