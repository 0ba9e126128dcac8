"""A multilayer perceptron for 28x28 images: 784-512-256-10."""

from itertools import pairwise
from typing import TYPE_CHECKING

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

_UNITS = (784, 512, 256, 10)


def mlp() -> "ModelProto":
    """Input (N, 784), output (N, 10) class probabilities; ReLU between the layers, Softmax behind the last."""
    b = Builder("mlp")
    x = b.input("input", _UNITS[0])
    for i, (features, units) in enumerate(pairwise(_UNITS), 1):
        last = i == len(_UNITS) - 1
        x = b.linear(f"fc{i}", x, features, units, gain=1.0 if last else 2.0)
        x = b.node("Softmax", "softmax", x, axis=-1) if last else b.relu(f"relu{i}", x)
    return b.model({x: [_UNITS[-1]]})
