"""The parts that the sample transformers share: dense layers, normalisation, multi-head attention, GELU.

Attention is written as exporters write it: projections, Reshape, Transpose, MatMul, scale, mask, Softmax.
"""

import numpy as np

from core.importer.samples.builder import Builder

HIDDEN, HEADS, INNER = 768, 12, 3072


def constants(b: Builder, *, erf: bool = True) -> None:
    """The shapes and factors that `attention` and the GELUs name; `erf` for `gelu`, else for `gelu_tanh`."""
    b.weight("heads", np.array([0, 0, HEADS, HIDDEN // HEADS], np.int64))
    b.weight("joined", np.array([0, 0, HIDDEN], np.int64))
    values = {"sqrt_depth": (HIDDEN / HEADS) ** 0.5, "one": 1.0, "half": 0.5}
    values |= {"sqrt_2": 2**0.5} if erf else {"cube": 3.0, "cubic": 0.044715, "sqrt_2_pi": (2 / np.pi) ** 0.5}
    for name, value in values.items():
        b.scalar(name, value)


def attention(b: Builder, name: str, x: str, mask: str = "") -> str:
    """Self-attention of (N, S, 768) without its output projection; `mask` is added to the scaled scores."""
    q, k, v = (
        b.node(
            "Transpose",
            f"{name}.{part}.heads",
            b.node("Reshape", f"{name}.{part}.split", dense(b, f"{name}.{part}", x, HIDDEN, HIDDEN), "heads"),
            perm=perm,
        )
        for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
    )
    scores = b.node("Div", f"{name}.scaled", b.node("MatMul", f"{name}.scores", q, k), "sqrt_depth")
    if mask:
        scores = b.node("Add", f"{name}.masked", scores, mask)
    weights = b.node("Softmax", f"{name}.softmax", scores, axis=-1)
    context = b.node("Transpose", f"{name}.rows", b.node("MatMul", f"{name}.context", weights, v), perm=[0, 2, 1, 3])
    return b.node("Reshape", f"{name}.joined", context, "joined")


def dense(b: Builder, name: str, x: str, features: int, units: int, gain: float = 1.0) -> str:
    """x W + b on the last dimension, as exporters write torch.nn.Linear for more than two dimensions."""
    weight = b.spread(f"{name}.weight", (features, units), (gain / features) ** 0.5)
    product = b.node("MatMul", f"{name}.matmul", x, weight)
    return b.node("Add", f"{name}.bias", product, b.uniform(f"{name}.bias_value", units, -0.1, 0.1))


def norm(b: Builder, name: str, x: str, epsilon: float) -> str:
    scale = b.uniform(f"{name}.weight", HIDDEN, 0.8, 1.2)
    bias = b.uniform(f"{name}.bias", HIDDEN, -0.1, 0.1)
    return b.node("LayerNormalization", name, x, scale, bias, axis=-1, epsilon=epsilon)


def gelu(b: Builder, name: str, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) / 2 in the five nodes that exporters write before opset 20."""
    erf = b.node("Erf", f"{name}.erf", b.node("Div", f"{name}.div", x, "sqrt_2"))
    y = b.node("Mul", f"{name}.mul", x, b.node("Add", f"{name}.add", erf, "one"))
    return b.node("Mul", name, y, "half")


def gelu_tanh(b: Builder, name: str, x: str) -> str:
    """GPT-2's approximation, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, in the nodes that exporters write."""
    cubic = b.node("Mul", f"{name}.cubic", b.node("Pow", f"{name}.cube", x, "cube"), "cubic")
    inner = b.node("Mul", f"{name}.inner", b.node("Add", f"{name}.sum", x, cubic), "sqrt_2_pi")
    tanh = b.node("Add", f"{name}.add", b.node("Tanh", f"{name}.tanh", inner), "one")
    return b.node("Mul", name, b.node("Mul", f"{name}.half", x, "half"), tanh)
