"""BERT-base (Devlin et al. 2018): 12 layers, hidden 768, 12 heads, intermediate 3072, at sequence length 40."""

from typing import TYPE_CHECKING

import numpy as np

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

_LAYERS, _HIDDEN, _HEADS, _INNER, _SEQUENCE = 12, 768, 12, 3072, 40


def bert_base() -> "ModelProto":
    """Inputs: `embeddings` (N, 40, 768), the sum of word, position and segment embeddings, and `mask` (N, 1, 1, 40),
    added to the attention scores. Outputs: `hidden` (N, 40, 768) and `pooled` (N, 768).
    """
    b = Builder("bert-base")
    x = b.input("embeddings", _SEQUENCE, _HIDDEN)
    mask = b.input("mask", 1, 1, _SEQUENCE)
    b.weight("heads", np.array([0, 0, _HEADS, _HIDDEN // _HEADS], np.int64))
    b.weight("joined", np.array([0, 0, _HIDDEN], np.int64))
    for name, value in (("sqrt_depth", (_HIDDEN / _HEADS) ** 0.5), ("sqrt_2", 2**0.5), ("one", 1.0), ("half", 0.5)):
        b.weight(name, np.array(value, np.float32))
    x = _norm(b, "embeddings.norm", x)
    for i in range(_LAYERS):
        x = _layer(b, f"layer{i}", x, mask)
    hidden = b.node("Identity", "hidden", x)
    first = b.node("Gather", "first_token", x, b.weight("zero", np.array(0, np.int64)), axis=1)
    b.node("Tanh", "pooled", b.linear("pooler", first, _HIDDEN, _HIDDEN, gain=1.0))
    return b.model({hidden: [_SEQUENCE, _HIDDEN], "pooled": [_HIDDEN]})


def _layer(b: Builder, name: str, x: str, mask: str) -> str:
    attention = _dense(b, f"{name}.output", _attention(b, f"{name}.attention", x, mask), _HIDDEN, _HIDDEN)
    x = _norm(b, f"{name}.norm1", b.node("Add", f"{name}.add1", attention, x))
    y = _gelu(b, f"{name}.gelu", _dense(b, f"{name}.intermediate", x, _HIDDEN, _INNER))
    y = _dense(b, f"{name}.reduce", y, _INNER, _HIDDEN)
    return _norm(b, f"{name}.norm2", b.node("Add", f"{name}.add2", y, x))


def _attention(b: Builder, name: str, x: str, mask: str) -> str:
    q, k, v = (
        b.node(
            "Transpose",
            f"{name}.{part}.heads",
            b.node("Reshape", f"{name}.{part}.split", _dense(b, f"{name}.{part}", x, _HIDDEN, _HIDDEN), "heads"),
            perm=perm,
        )
        for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
    )
    scores = b.node("Div", f"{name}.scaled", b.node("MatMul", f"{name}.scores", q, k), "sqrt_depth")
    weights = b.node("Softmax", f"{name}.softmax", b.node("Add", f"{name}.masked", scores, mask), axis=-1)
    context = b.node("Transpose", f"{name}.rows", b.node("MatMul", f"{name}.context", weights, v), perm=[0, 2, 1, 3])
    return b.node("Reshape", f"{name}.joined", context, "joined")


def _dense(b: Builder, name: str, x: str, features: int, units: int) -> str:
    """x W + b on the last dimension, as exporters write torch.nn.Linear for more than two dimensions."""
    product = b.node("MatMul", f"{name}.matmul", x, b.spread(f"{name}.weight", (features, units), features**-0.5))
    return b.node("Add", f"{name}.bias", product, b.uniform(f"{name}.bias_value", units, -0.1, 0.1))


def _norm(b: Builder, name: str, x: str) -> str:
    scale = b.uniform(f"{name}.weight", _HIDDEN, 0.8, 1.2)
    return b.node(
        "LayerNormalization", name, x, scale, b.uniform(f"{name}.bias", _HIDDEN, -0.1, 0.1), axis=-1, epsilon=1e-12
    )


def _gelu(b: Builder, name: str, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) / 2 in the five nodes that exporters write before opset 20."""
    erf = b.node("Erf", f"{name}.erf", b.node("Div", f"{name}.div", x, "sqrt_2"))
    y = b.node("Mul", f"{name}.mul", x, b.node("Add", f"{name}.add", erf, "one"))
    return b.node("Mul", name, y, "half")
