"""The light models of the onnx package: imported, simplified, and still the same function."""

from pathlib import Path

import onnx
import pytest

from core.graph.to_onnx import to_model
from core.importer.load import load_graph
from tests.core.graph.equivalence import assert_same, feeds_for, run_model

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
         "vgg19", "zfnet512")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_loads_with_every_type_known(name: str) -> None:
    graph = load_graph(FOLDER / f"light_{name}.onnx")
    assert not graph.untyped
    for node in graph:
        assert all(t in graph.types for t in (*node.inputs, *node.outputs) if t), node.name
    left = {n.op for n in graph}
    assert not left & {"BatchNormalization", "Dropout", "Identity", "ConstantOfShape", "Unsqueeze", "Constant", "Sum"}


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_computes_the_same(name: str) -> None:
    path = FOLDER / f"light_{name}.onnx"
    assert_same(onnx.load(path), load_graph(path), rtol=1e-3, atol=1e-6)


def test_to_model_runs() -> None:
    graph = load_graph("mlp", batch=3)
    out = run_model(to_model(graph), feeds_for(graph))
    assert out["softmax"].shape == (3, 10)
