"""Attention problems, their operands in memory, and what the definition gives for them, in numpy."""

import numpy as np

from templates.attention import AttentionWorkload, MaskKind, Strides, heads_inside, heads_outside, span

NO_MASK: Strides = (0, 0, 0)


def attention(
    batch: int, heads: int, q_len: int, kv_len: int, width: int, value: int = 0, kv_heads: int = 0,
    mask: MaskKind = MaskKind.NONE, mask_strides: Strides | None = None, inside: bool = True, **more: object,
) -> AttentionWorkload:  # fmt: skip
    """Dense operands, heads inside the rows as a projection leaves them, or outside. A mask is whole by default."""
    value, kv_heads = value or width, kv_heads or heads
    lay = heads_inside if inside else heads_outside
    whole = NO_MASK if mask is MaskKind.NONE else (heads * q_len * kv_len, q_len * kv_len, kv_len)
    return AttentionWorkload(
        batch, heads, kv_heads, q_len, kv_len, width, value, more.pop("scale", width**-0.5),  # type: ignore[arg-type]
        lay(heads, q_len, width), lay(kv_heads, kv_len, width), lay(kv_heads, kv_len, value),
        lay(heads, q_len, value), mask=mask, mask_strides=whole if mask_strides is None else mask_strides, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def strided(memory: np.ndarray, strides: Strides, counts: tuple[int, int, int], width: int) -> np.ndarray:
    """(batch, head, row, element) view of flat memory."""
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory, (*counts, width), (*(s * size for s in strides), size))


def operands(work: AttentionWorkload, seed: int = 0) -> dict[str, np.ndarray]:
    """Flat memory of q, k, v and the mask, random; f16 values (bf16 has no numpy type)."""
    random = np.random.default_rng(seed)
    queries, keys = (work.batch, work.heads, work.q_len), (work.batch, work.kv_heads, work.kv_len)
    made = {
        "q": random.uniform(-4, 4, span(work.q, queries, work.head_dim)),
        "k": random.uniform(-1, 1, span(work.k, keys, work.head_dim)),
        "v": random.uniform(-1, 1, span(work.v, keys, work.value_dim)),
    }
    found = {name: value.astype(np.float16) for name, value in made.items()}
    mask = span(work.mask_strides, queries, work.kv_len)
    if work.mask is MaskKind.ADD:
        values = random.uniform(-2, 2, mask)
        values[random.random(mask) < 0.1] = -np.inf
        found["mask"] = values.astype(np.float16)
    elif work.mask is not MaskKind.NONE:
        found["mask"] = (random.random(mask) < 0.6).astype(np.uint8) * 3
    return found


def defined(work: AttentionWorkload, memory: dict[str, np.ndarray]) -> np.ndarray:
    """The result as flat memory of the output, in float64."""
    queries, keys = (work.batch, work.heads, work.q_len), (work.batch, work.kv_heads, work.kv_len)
    group = work.heads // work.kv_heads
    q = strided(memory["q"], work.q, queries, work.head_dim).astype(np.float64)
    k = np.repeat(strided(memory["k"], work.k, keys, work.head_dim), group, axis=1).astype(np.float64)
    v = np.repeat(strided(memory["v"], work.v, keys, work.value_dim), group, axis=1).astype(np.float64)
    scores = work.scale * q @ k.swapaxes(-1, -2)
    if work.mask is not MaskKind.NONE:
        mask = strided(memory["mask"], work.mask_strides, queries, work.kv_len)
        if work.mask is MaskKind.ADD:
            scores = scores + mask
        else:
            scores = np.where((mask != 0) == work.mask.keeps, scores, -1e30 if work.mask.low else -np.inf)
    if work.causal:
        scores = np.where(np.tril(np.ones((work.q_len, work.kv_len), bool)), scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    result = np.where(total == 0, 0, weights / np.where(total == 0, 1, total)) @ v
    out = np.full(work.out_elements, np.nan)
    strided(out, work.out, queries, work.value_dim)[...] = result
    return out
