"""BERT-base (Devlin et al. 2018): 12 layers, hidden 768, 12 heads, intermediate 3072."""

from typing import TYPE_CHECKING

import numpy as np

from core.importer.samples.builder import Builder
from core.importer.samples.transformer import HIDDEN, INNER, attention, constants, dense, gelu, norm

if TYPE_CHECKING:
    from onnx import ModelProto

_LAYERS, _EPSILON = 12, 1e-12


def bert_base(sequence: int) -> "ModelProto":
    """Inputs: `embeddings` (N, sequence, 768), the sum of word, position and segment embeddings, and `mask`
    (N, 1, 1, sequence), added to the attention scores. Outputs: `hidden` (N, sequence, 768) and `pooled` (N, 768).
    """
    b = Builder("bert-base")
    x = b.input("embeddings", sequence, HIDDEN)
    mask = b.input("mask", 1, 1, sequence)
    constants(b)
    x = norm(b, "embeddings.norm", x, _EPSILON)
    for i in range(_LAYERS):
        x = _layer(b, f"layer{i}", x, mask)
    hidden = b.node("Identity", "hidden", x)
    first = b.node("Gather", "first_token", x, b.weight("zero", np.array(0, np.int64)), axis=1)
    b.node("Tanh", "pooled", b.linear("pooler", first, HIDDEN, HIDDEN, gain=1.0))
    return b.model({hidden: [sequence, HIDDEN], "pooled": [HIDDEN]})


def _layer(b: Builder, name: str, x: str, mask: str) -> str:
    y = dense(b, f"{name}.output", attention(b, f"{name}.attention", x, mask), HIDDEN, HIDDEN)
    x = norm(b, f"{name}.norm1", b.node("Add", f"{name}.add1", y, x), _EPSILON)
    y = gelu(b, f"{name}.gelu", dense(b, f"{name}.intermediate", x, HIDDEN, INNER))
    y = dense(b, f"{name}.reduce", y, INNER, HIDDEN)
    return norm(b, f"{name}.norm2", b.node("Add", f"{name}.add2", y, x), _EPSILON)
