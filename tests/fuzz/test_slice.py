"""A slice of the fuzzer (tests/fuzz/run.py is the whole), and the smallest inputs of what it found behind import."""

import random
from pathlib import Path

import pytest
from onnx import helper

from tests.core.importer.models import load, model, node, weights
from tests.fuzz.hostile import attacks
from tests.fuzz.mutate import mutant
from tests.fuzz.target import attempt

_HEAVY = ("100,000", "50,000", "20,000", "10,000", "growing", "tower", "GB", "MB", "many")


@pytest.mark.parametrize("part", range(4))
def test_mutated_models_are_exported_or_refused_in_one_line(part: int) -> None:
    for number in range(part, 240, 4):
        rng = random.Random(f"slice:{number}")
        data, how = mutant(rng)
        answer = attempt(data, rng)
        assert answer.kind != "fault", (number, how, answer.said)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_attacks_by_hand(tmp_path: Path) -> None:
    light = [(name, make) for name, make in attacks() if not any(word in name for word in _HEAVY)]
    for number, (name, make) in enumerate(light[::2]):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = attempt(make(folder), random.Random(0))
        assert answer.kind != "fault", (name, answer.said)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "before",
    [
        helper.make_node("Own", ["x"], ["a"], "own", domain="nobody"),  # no type is known behind it
        node("Unsqueeze", ["x", "axes"], ["a"]),
        node("Shape", ["x"], ["a"], start=2**62),  # no element
    ],
)
@pytest.mark.parametrize("op", ["MaxPool", "ReduceMean", "LRN", "Relu", "Softmax"])
def test_readers_of_tensors_without_a_type_or_an_element(before: object, op: str) -> None:
    attrs: dict[str, object] = {"MaxPool": {"kernel_shape": [2, 2]}, "LRN": {"size": 3}}.get(op, {})
    nodes = [before, node("Neg", ["x"], ["b"]), node(op, ["a"], ["y"], "reader", **attrs)]
    made = model(nodes, {"x": [1, 8, 6, 6], "axes": [1]}, ["y", "b"], opset=18)  # type: ignore[list-item]
    made.graph.input[1].type.tensor_type.elem_type = 7
    answer = attempt(made.SerializeToString(), random.Random(0))
    assert answer.kind != "fault", answer.said


def test_attributes_that_are_no_text() -> None:
    pads = helper.make_tensor("p", 7, [8], [0] * 8)
    made = model([node("Pad", ["x", "p"], ["y"], mode=b"\xff\xfe")], {"x": [1, 8, 6, 6]}, ["y"])
    made.graph.initializer.append(pads)
    assert attempt(made.SerializeToString(), random.Random(0)).kind == "refused"


def test_constants_that_would_take_hours_or_all_memory_stay_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = weights(1, 8, 64, 64)
    conv = [node("Conv", ["k", "w"], ["c"]), node("Add", ["x", "c"], ["y"])]
    assert "Conv" in [n.op for n in load(model(conv, {"x": [1]}, ["y"], {"k": wide, "w": weights(8, 8, 3, 3)}))]
    monkeypatch.setattr("core.graph.walk.FOLDED_IN_ALL_BYTES", 3 * wide.nbytes)
    tower = [node("Cos", [f"t{i}"], [f"t{i + 1}"]) for i in range(9)]
    graph = load(model([*tower, node("Add", ["x", "t9"], ["y"])], {"x": [1]}, ["y"], {"t0": wide}))
    assert [n.op for n in graph].count("Cos") == 6
