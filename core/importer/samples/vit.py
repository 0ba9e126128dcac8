"""ViT-B/16 (Dosovitskiy et al. 2020, table 1): 12 pre-norm layers, hidden 768, 12 heads, MLP 3072, 16x16 patches."""

from typing import TYPE_CHECKING

import numpy as np

from core.importer.samples.builder import Builder
from core.importer.samples.transformer import HIDDEN, INNER, attention, constants, dense, gelu, norm

if TYPE_CHECKING:
    from onnx import ModelProto

_LAYERS, _PATCH, _EPSILON = 12, 16, 1e-6
_PATCHES = (224 // _PATCH) ** 2
# Of the projections that end a residual branch: small, so that the sum over the layers does not grow with depth.
_RESIDUAL = 0.1


def vit_b16() -> "ModelProto":
    """Input (N, 3, 224, 224), output (N, 1000) logits, from the class token."""
    b = Builder("vit-b16")
    x = b.input("input", 3, 224, 224)
    constants(b)
    x = _embedded(b, x)
    for i in range(_LAYERS):
        x = _layer(b, f"layer{i}", x)
    token = b.node("Gather", "token", norm(b, "norm", x, _EPSILON), b.weight("zero", np.array(0, np.int64)), axis=1)
    b.linear("head", token, HIDDEN, 1000, gain=1.0)
    return b.model({"head": [1000]})


def _embedded(b: Builder, image: str) -> str:
    """(N, 197, 768): the class token and the patches, with position embeddings."""
    weight = b.spread("patches.weight", (HIDDEN, 3, _PATCH, _PATCH), (3 * _PATCH**2) ** -0.5)
    x = b.node(
        "Conv", "patches", image, weight, b.uniform("patches.bias", HIDDEN, -0.1, 0.1), kernel_shape=[_PATCH] * 2,
        strides=[_PATCH] * 2,
    )  # fmt: skip
    flat = b.node("Reshape", "flat", x, b.weight("flat_shape", np.array([0, HIDDEN, _PATCHES], np.int64)))
    rows = b.node("Transpose", "rows", flat, perm=[0, 2, 1])
    batch = b.node("Gather", "batch", b.node("Shape", "shape", image), b.weight("first", np.array([0], np.int64)))
    shape = b.node("Concat", "token_shape", batch, b.weight("token_extents", np.array([1, HIDDEN], np.int64)), axis=0)
    token = b.node("Expand", "tokens", b.spread("class_token", (1, 1, HIDDEN), 0.5), shape)
    joined = b.node("Concat", "joined_tokens", token, rows, axis=1)
    return b.node("Add", "embedded", joined, b.spread("positions", (1, _PATCHES + 1, HIDDEN), 0.5))


def _layer(b: Builder, name: str, x: str) -> str:
    y = attention(b, f"{name}.attention", norm(b, f"{name}.norm1", x, _EPSILON))
    x = b.node("Add", f"{name}.add1", dense(b, f"{name}.output", y, HIDDEN, HIDDEN, _RESIDUAL), x)
    y = gelu(b, f"{name}.gelu", dense(b, f"{name}.expand", norm(b, f"{name}.norm2", x, _EPSILON), HIDDEN, INNER))
    return b.node("Add", f"{name}.add2", dense(b, f"{name}.reduce", y, INNER, HIDDEN, _RESIDUAL), x)
