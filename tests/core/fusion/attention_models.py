"""Attention as exporters write it, in small: what each model is, and what of its workload's key must be there."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from tests.core.export.models import Model

B, S, H, D = 2, 6, 3, 8
WIDTH = H * D
LOWEST = float(np.finfo(np.float32).min)


def dense(m: Model, x: str, width: int = WIDTH, units: int = WIDTH) -> str:
    return m.op("Add", m.op("MatMul", x, m.weight(width, units, scale=2 * width**-0.5)), m.weight(units, scale=0.1))


def split_heads(m: Model, x: str, perm: tuple[int, ...] = (0, 2, 1, 3), heads: int = H) -> str:
    return m.op("Transpose", m.op("Reshape", x, m.const(np.array([0, 0, heads, -1]))), perm=perm)


def join_heads(m: Model, x: str) -> str:
    joined = m.op("Reshape", m.op("Transpose", x, perm=(0, 2, 1, 3)), m.const(np.array([0, 0, -1])))
    return dense(m, joined)


def projections(m: Model, x: str, key_perm: tuple[int, ...] = (0, 2, 3, 1)) -> tuple[str, str, str]:
    return split_heads(m, dense(m, x)), split_heads(m, dense(m, x), key_perm), split_heads(m, dense(m, x))


def scalar(m: Model, value: float) -> str:
    return m.const(np.array(value, np.float32))


def bert() -> onnx.ModelProto:
    """Scores divided, a mask over the keys added."""
    m = Model()
    x, mask = m.input(B, S, WIDTH), m.input(B, 1, 1, S)
    q, k, v = projections(m, x)
    scores = m.op("Add", m.op("Div", m.op("MatMul", q, k), scalar(m, D**0.5)), mask)
    return m.build(join_heads(m, m.op("MatMul", m.op("Softmax", scores, axis=-1), v)))


def torch_script() -> onnx.ModelProto:
    """torch.onnx's symbolic of scaled_dot_product_attention with is_causal: both operands scaled by the root of the
    scale, a constant triangle of -infinity added."""
    m = Model()
    q, k, v = projections(m, m.input(B, S, WIDTH), (0, 2, 1, 3))
    root = scalar(m, D**-0.25)
    scores = m.op("MatMul", m.op("Mul", q, root), m.op("Mul", m.op("Transpose", k, perm=(0, 1, 3, 2)), root))
    above = m.const(np.triu(np.full((S, S), -np.inf, np.float32), 1))
    return m.build(join_heads(m, m.op("MatMul", m.op("Softmax", m.op("Add", scores, above), axis=-1), v)))


def torch_dynamo() -> onnx.ModelProto:
    """The newer exporter: a boolean mask chosen into a float one, and rows of NaN made zero."""
    m = Model()
    x, kept = m.input(B, S, WIDTH), m.input(B, 1, S, S, dtype=TensorProto.BOOL)
    q, k, v = projections(m, x, (0, 2, 1, 3))
    root = scalar(m, D**-0.25)
    scores = m.op("MatMul", m.op("Mul", q, root), m.op("Mul", m.op("Transpose", k, perm=(0, 1, 3, 2)), root))
    mask = m.op("Where", kept, scalar(m, 0.0), scalar(m, float("-inf")))
    p = m.op("Softmax", m.op("Add", scores, mask), axis=-1)
    p = m.op("Where", m.op("IsNaN", p), scalar(m, 0.0), p)
    return m.build(join_heads(m, m.op("MatMul", p, v)))


def tf2onnx() -> onnx.ModelProto:
    """Queries scaled before the product; the mask is -10000 (1 - m), made at run time."""
    m = Model()
    x, given = m.input(B, S, WIDTH), m.input(B, S)
    q, k, v = projections(m, x)
    mask = m.op("Unsqueeze", given, m.const(np.array([1, 2])))
    mask = m.op("Mul", m.op("Sub", scalar(m, 1.0), mask), scalar(m, -10000.0))
    scores = m.op("Add", m.op("MatMul", m.op("Mul", q, scalar(m, D**-0.5)), k), mask)
    return m.build(join_heads(m, m.op("MatMul", m.op("Softmax", scores, axis=3), v)))


def multihead() -> onnx.ModelProto:
    """torch.nn.MultiheadAttention with the sequence first: batch and heads are one dimension."""
    m = Model()
    x = m.input(S, B, WIDTH)

    def heads() -> str:
        return m.op("Transpose", m.op("Reshape", dense(m, x), m.const(np.array([S, B * H, D]))), perm=(1, 0, 2))

    q, k, v = m.op("Mul", heads(), scalar(m, D**-0.5)), m.op("Transpose", heads(), perm=(0, 2, 1)), heads()
    y = m.op("MatMul", m.op("Softmax", m.op("MatMul", q, k), axis=-1), v)
    y = m.op("Reshape", m.op("Transpose", y, perm=(1, 0, 2)), m.const(np.array([S, B, WIDTH])))
    return m.build(dense(m, y))


def batch_in_heads() -> onnx.ModelProto:
    """Heads split off a batch-first projection, then merged with the batch."""
    m = Model()
    q, k, v = projections(m, m.input(B, S, WIDTH))
    q = m.op("Reshape", q, m.const(np.array([B * H, S, D])))
    k, v = m.op("Reshape", k, m.const(np.array([B * H, D, S]))), m.op("Reshape", v, m.const(np.array([B * H, S, D])))
    y = m.op("MatMul", m.op("Softmax", m.op("Mul", m.op("MatMul", q, k), scalar(m, 0.25)), axis=-1), v)
    return m.build(join_heads(m, m.op("Reshape", y, m.const(np.array([B, H, S, D])))))


def gpt2() -> onnx.ModelProto:
    """One projection split in three; a constant triangle chosen into the scores, a padding mask added."""
    m = Model()
    x, mask = m.input(B, S, WIDTH), m.input(B, 1, 1, S)
    parts = m.op("Split", dense(m, x, WIDTH, 3 * WIDTH), m.const(np.array([WIDTH] * 3)), outputs=3, axis=2)
    q, k, v = (
        split_heads(m, p, perm) for p, perm in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scores = m.op("Div", m.op("MatMul", q, k), scalar(m, D**0.5))
    scores = m.op("Where", m.const(np.tril(np.ones((1, 1, S, S), bool))), scores, scalar(m, LOWEST))
    return m.build(join_heads(m, m.op("MatMul", m.op("Softmax", m.op("Add", scores, mask), axis=-1), v)))


def masked_fill() -> onnx.ModelProto:
    """Scores dropped where a mask is set, for each head another one."""
    m = Model()
    x, dropped = m.input(B, S, WIDTH), m.input(1, H, S, S, dtype=TensorProto.BOOL)
    q, k, v = projections(m, x)
    scores = m.op("Where", dropped, scalar(m, -1e9), m.op("MatMul", q, k))
    return m.build(join_heads(m, m.op("MatMul", m.op("Softmax", scores, axis=-1), v)))


def cross() -> onnx.ModelProto:
    """Keys and values of another sequence; values of another width; queries a constant."""
    m = Model()
    memory = m.input(B, 9, WIDTH)
    q = m.weight(B, H, S, D)
    k, v = split_heads(m, dense(m, memory), (0, 2, 3, 1)), split_heads(m, dense(m, memory, WIDTH, 4 * H))
    y = m.op("MatMul", m.op("Softmax", m.op("MatMul", q, k), axis=-1), v)
    return m.build(m.op("Reshape", m.op("Transpose", y, perm=(0, 2, 1, 3)), m.const(np.array([B, S, 4 * H]))))


def operator_packed() -> onnx.ModelProto:
    """The operator of opset 23 on projections as they are, with a boolean mask."""
    m = Model()
    x, mask = m.input(B, S, WIDTH), m.input(S, S, dtype=TensorProto.BOOL)
    y = m.op("Attention", dense(m, x), dense(m, x), dense(m, x), mask, q_num_heads=H, kv_num_heads=H)
    return m.build(dense(m, y), opset=23)


def operator_grouped() -> onnx.ModelProto:
    """Four-dimensional, causal, three heads of queries to one of keys, a scale of its own."""
    m = Model()
    x = m.input(B, S, WIDTH)
    k, v = split_heads(m, dense(m, x, WIDTH, D), heads=1), split_heads(m, dense(m, x, WIDTH, D), heads=1)
    y = m.op("Attention", split_heads(m, dense(m, x)), k, v, is_causal=1, scale=0.5)
    return m.build(join_heads(m, y), opset=23)


INSIDE = f"{S * WIDTH}.{D}.{WIDTH}"
HALF = D**-0.5
Builder = Callable[[], onnx.ModelProto]
# model, how its attention's key begins and ends, copies that the exporter makes around it
FORMS: dict[str, tuple[Builder, str, str, int]] = {
    "bert": (bert, f"b2 h3/3 s6/6 d8/8 f16.f32 x{HALF:.9g} q{INSIDE}", f"o{INSIDE} add6.0.0", 0),
    "torch_script": (torch_script, f"b2 h3/3 s6/6 d8/8 f16.f32 x{HALF:.9g}", f"o{INSIDE} causal", 0),
    "torch_dynamo": (torch_dynamo, "b2 h3/3 s6/6 d8/8", f"o{INSIDE} add36.0.6", 0),
    "tf2onnx": (tf2onnx, "b2 h3/3 s6/6 d8/8", f"o{INSIDE} add6.0.0", 0),
    "multihead": (multihead, f"b1 h6/6 s6/6 d8/8 f16.f32 x{HALF:.9g} q0.8.48", "o0.8.48", 0),
    "batch_in_heads": (batch_in_heads, f"b2 h3/3 s6/6 d8/8 f16.f32 x0.25 q{INSIDE}", f"o{INSIDE}", 0),
    "gpt2": (gpt2, f"b2 h3/3 s6/6 d8/8 f16.f32 x{HALF:.9g} q{INSIDE}", f"o{INSIDE} causal add6.0.0", 0),
    "masked_fill": (masked_fill, "b2 h3/3 s6/6 d8/8 f16.f32 x1 ", f"o{INSIDE} drop_low0.36.6", 0),
    "cross": (cross, "b2 h3/3 s6/9 d8/4 f16.f32 x1 q144.48.8", "o72.4.12", 0),
    "operator_packed": (operator_packed, f"b2 h3/3 s6/6 d8/8 f16.f32 x{HALF:.9g} q{INSIDE}", "keep0.0.6", 0),
    "operator_grouped": (operator_grouped, "b2 h3/1 s6/6 d8/8 f16.f32 x0.5 ", f"o{INSIDE} causal", 0),
}
