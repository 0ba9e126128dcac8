"""GPT-2, 124M parameters (Radford et al. 2019): 12 pre-norm layers, hidden 768, 12 heads; the prefill of 512 tokens."""

from typing import TYPE_CHECKING

import numpy as np

from core.importer.samples.builder import Builder
from core.importer.samples.transformer import HIDDEN, INNER, attention, constants, dense, gelu_tanh, norm

if TYPE_CHECKING:
    from onnx import ModelProto

_LAYERS, _TOKENS, _VOCABULARY, _EPSILON = 12, 512, 50257, 1e-5
# What exporters put above the diagonal in half precision's range.
_MASKED = -10000.0
# Of the projections that end a residual branch: small, so that the sum over the layers does not grow with depth.
_RESIDUAL = 0.1


def gpt2() -> "ModelProto":
    """Input `tokens` (N, 512) int64, each below 50257. Output `logits` (N, 50257) of the token after the last.

    The weights of the logits are the token embeddings, as published.
    """
    b = Builder("gpt2")
    tokens = b.input("tokens", _TOKENS, integer=True)
    constants(b, erf=False)
    above = np.triu(np.full((_TOKENS, _TOKENS), _MASKED, np.float32), 1)
    mask = b.weight("causal", above.reshape(1, 1, _TOKENS, _TOKENS))
    embeddings = b.spread("wte", (_VOCABULARY, HIDDEN), 0.5)
    x = b.node("Gather", "embedded", embeddings, tokens, axis=0)
    x = b.node("Add", "positioned", x, b.spread("wpe", (1, _TOKENS, HIDDEN), 0.5))
    for i in range(_LAYERS):
        x = _layer(b, f"layer{i}", x, mask)
    last = b.node("Gather", "last", x, b.weight("last_index", np.array(_TOKENS - 1, np.int64)), axis=1)
    b.node("Gemm", "logits", norm(b, "norm", last, _EPSILON), embeddings, transB=1)
    return b.model({"logits": [_VOCABULARY]})


def _layer(b: Builder, name: str, x: str, mask: str) -> str:
    y = attention(b, f"{name}.attention", norm(b, f"{name}.norm1", x, _EPSILON), mask)
    x = b.node("Add", f"{name}.add1", dense(b, f"{name}.output", y, HIDDEN, HIDDEN, _RESIDUAL), x)
    y = dense(b, f"{name}.expand", norm(b, f"{name}.norm2", x, _EPSILON), HIDDEN, INNER)
    y = dense(b, f"{name}.reduce", gelu_tanh(b, f"{name}.gelu", y), INNER, HIDDEN, _RESIDUAL)
    return b.node("Add", f"{name}.add2", y, x)
