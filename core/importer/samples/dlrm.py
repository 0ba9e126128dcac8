"""DLRM (Naumov et al. 2019) with 26 sparse features of width 64, bottom MLP 13-512-256-64, top MLP 512-256-1."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

_TABLES, _WIDTH = 26, 64
_BOTTOM = (13, 512, 256, _WIDTH)
# Pairwise dot products of the 27 feature vectors, each pair once, behind the dense features.
_PAIRS = (_TABLES + 1) * _TABLES // 2
_TOP = (_WIDTH + _PAIRS, 512, 256, 1)


def dlrm() -> "ModelProto":
    """Inputs: `dense` (N, 13) and `sparse` (N, 26, 64), rows already looked up. Output (N, 1): click probability."""
    b = Builder("dlrm")
    dense, sparse = b.input("dense", _BOTTOM[0]), b.input("sparse", _TABLES, _WIDTH)
    x = _mlp(b, "bottom", dense, _BOTTOM)
    row = b.node(
        "Reshape", "row", b.relu("bottom.relu3", x), b.weight("row_shape", np.array([-1, 1, _WIDTH], np.int64))
    )
    features = b.node("Concat", "features", row, sparse, axis=1)
    dots = b.node("MatMul", "dots", features, b.node("Transpose", "columns", features, perm=[0, 2, 1]))
    flat = b.node("Reshape", "flat", dots, b.weight("flat_shape", np.array([-1, (_TABLES + 1) ** 2], np.int64)))
    lower = np.ravel_multi_index(np.tril_indices(_TABLES + 1, -1), (_TABLES + 1, _TABLES + 1))
    pairs = b.node("Gather", "pairs", flat, b.weight("lower_triangle", lower.astype(np.int64)), axis=1)
    y = _mlp(b, "top", b.node("Concat", "interaction", "bottom.relu3", pairs, axis=1), _TOP)
    b.node("Sigmoid", "click", y)
    return b.model({"click": [1]})


def _mlp(b: Builder, name: str, x: str, units: tuple[int, ...]) -> str:
    """Linear layers with ReLU between them and none behind the last."""
    for i, (features, out) in enumerate(pairwise(units), 1):
        last = i == len(units) - 1
        x = b.linear(f"{name}.fc{i}", x, features, out, gain=1.0 if last else 2.0)
        x = x if last else b.relu(f"{name}.relu{i}", x)
    return x
