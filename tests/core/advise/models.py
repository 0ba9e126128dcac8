"""Small models as files: what the advice is given on, in the spellings that files have."""

from pathlib import Path

import numpy as np
import onnx

from core.importer.samples.builder import Builder


def convnet(path: Path, width: int = 12, batch_norm: bool = True) -> Path:
    """conv1 - [bn] - relu - conv2 - relu - add(relu of conv1) - pool - flatten - fc - softmax; fc has 10 classes."""
    b = Builder("convnet")
    x = b.input("data", 8, 10, 10)
    x = b.conv("conv1", x, 8, width, 3, bias=not batch_norm)
    if batch_norm:
        x = b.batch_norm("bn1", x, width)
    skip = x = b.relu("relu1", x)
    x = b.relu("relu2", b.conv("conv2", x, width, width, 3, bias=True))
    x = b.node("Add", "add", x, skip)
    x = b.node("Flatten", "flat", b.node("GlobalAveragePool", "pool", x))
    b.node("Softmax", "probabilities", b.linear("fc", x, width, 10), axis=1)
    return saved(b.model({"probabilities": [10]}), path)


def spelled_out(path: Path, opset: int = 17) -> Path:
    """fc1 - GELU in five nodes - fc2 - SiLU in two - fc3, nodes without names."""
    b = Builder("spelled", opset)
    x = b.linear("fc1", b.input("data", 16), 16, 32)
    half, one, root = b.scalar("half", 0.5), b.scalar("one", 1.0), b.scalar("root", 2**0.5)
    erf = b.node("Erf", "erf", b.node("Div", "scaled", x, root))
    x = b.node("Mul", "gelu", b.node("Mul", "twice", x, b.node("Add", "shifted", erf, one)), half)
    x = b.linear("fc2", x, 32, 32)
    x = b.node("Mul", "silu", x, b.node("Sigmoid", "gate", x))
    b.linear("fc3", x, 32, 8)
    model = b.model({"fc3": [8]})
    for node in model.graph.node:
        node.name = ""
    return saved(model, path)


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def feeds(model: onnx.ModelProto, batch: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    constant = {t.name for t in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in constant:
            shape = [d.dim_value or batch for d in value.type.tensor_type.shape.dim]
            found[value.name] = random.uniform(-1, 1, shape).astype(np.float32)
    return found
