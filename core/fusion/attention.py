"""Attention as one region: softmax(scale Q K^T + mask) V, as exporters spell it or as the operator of opset 23.

A spelled-out one is found from its Softmax: backwards through masks and scales to the product of queries and keys,
forwards to the product with the values. What is absorbed has no other reader, so the region has one way out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.fusion.assemble import Draft
from core.fusion.plan import Kind, Operands, Refusal
from core.fusion.strides import Heads, heads_of, mask_strides, out_strides
from core.fusion.values import attr, many_readers, scalar, shape_text, stored_dtype, uncompilable
from core.graph.ir import Graph, Node
from core.graph.proto import INPUT_SCALE
from templates.attention import AttentionWorkload, MaskKind
from templates.types import DType

_MASKED = -1e4  # a score from here down counts as dropped: exporters write -10000, the type's lowest value or -infinity


@dataclass(frozen=True)
class _Found:
    """The tensors and the arithmetic of an attention, before it is known how they lie. `k` is transposed, (..., D, S),
    unless `keys_as_rows`. `packed`: (batch, row, heads * width), the operator's three-dimensional form."""

    nodes: tuple[Node, ...]
    q: str
    k: str
    v: str
    out: str
    scale: float
    mask: str = ""
    mask_kind: MaskKind = MaskKind.NONE
    causal: bool = False
    keys_as_rows: bool = False
    packed: tuple[int, int] | None = None  # heads of queries and of keys


def attention(graph: Graph, node: Node, dtype: DType, native: DType) -> Draft | Refusal | None:
    """The region around a Softmax or an Attention node; None where nothing looks like one.

    Where there can be none, a Softmax gives a refusal, the operator an unsupported region: nothing else runs it.
    """
    if node.domain or node.op not in ("Attention", "Softmax"):
        return None
    if uncompilable(graph, node):
        return None
    behind = [node] if node.op == "Attention" else _to_values(graph, node)
    if behind is None:
        return None
    found = _operator(graph, node) if node.op == "Attention" else _spelled_out(graph, node, behind)
    made = _draft(graph, found, dtype, native) if isinstance(found, _Found) else found
    if not isinstance(made, str):
        return made
    if node.op == "Attention":
        return Draft(Kind.OTHER, (node.name,), made, supported=False)
    return Refusal(behind[-1].name, node.name, f"no fused attention: {made}")


def attention_of(graph: Graph, nodes: Sequence[Node], dtype: DType, native: DType) -> Draft | None:
    """The attention region that exactly these nodes form; None if they form none."""
    wanted = {n.name for n in nodes}
    for node in nodes:
        made = attention(graph, node, dtype, native)
        if isinstance(made, Draft) and set(made.nodes) == wanted:
            return made
    return None


# --- from what is found to a region --------------------------------------------------------------------------------


def _draft(graph: Graph, found: _Found, dtype: DType, native: DType) -> Draft | str:
    if dtype not in (DType.F16, DType.BF16):
        return f"fused attention computes in f16 or bf16, the plan in {dtype}"
    for tensor in (found.q, found.k, found.v, found.out):
        stored = stored_dtype(graph.types[tensor].dtype, native, dtype)
        if stored != dtype:
            return f"{tensor} is {stored}, the plan computes in {dtype}"
    heads = heads_of(graph, found.q, found.k, found.v, found.keys_as_rows, found.packed)
    if isinstance(heads, str):
        return heads
    mask = _mask_strides(graph, found, heads)
    if isinstance(mask, str):
        return mask
    try:
        workload = AttentionWorkload(
            heads.batch, heads.heads, heads.kv_heads, heads.q_len, heads.kv_len, heads.head_dim, heads.value_dim,
            _exact(found.scale, heads.head_dim), heads.q, heads.k, heads.v,
            out_strides(graph, found.out, heads, found.packed is not None), dtype, causal=found.causal,
            mask=found.mask_kind, mask_strides=mask,
        )  # fmt: skip
    except ValueError as error:
        return f"no kernel computes it: {error}"
    names = tuple(n.name for n in found.nodes)
    seen = " causal" if found.causal else ""
    masked = f" with the mask {found.mask}" if found.mask else ""
    reason = f"{heads.heads} heads of{seen} attention{masked} in one kernel, the scores never in memory"
    return Draft(Kind.ATTENTION, names, reason, workload, Operands(found.q, found.k, source=found.mask, b1=found.v))


def _exact(scale: float, head_dim: int) -> float:
    """The usual scale as it is meant: its roundings in a model's constants make no workload of their own."""
    usual = float(head_dim) ** -0.5
    return usual if abs(scale - usual) <= 1e-6 * usual else scale


def _mask_strides(graph: Graph, found: _Found, heads: Heads) -> tuple[int, int, int] | str:
    if not found.mask:
        return 0, 0, 0
    strides = mask_strides(graph.shape(found.mask), heads, rank=3 if heads.merged else 4)
    if strides is None:
        shape = shape_text(graph.shape(found.mask))
        return f"the mask {found.mask} is {shape}, which is no tensor over batch, heads, queries and keys"
    return strides


# --- spelled out ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scores:
    """What lies between the product of queries and keys and the softmax, from behind: nodes, scale, masks."""

    nodes: tuple[Node, ...] = ()
    scale: float = 1.0
    mask: str = ""
    mask_kind: MaskKind = MaskKind.NONE
    causal: bool = False


def _spelled_out(graph: Graph, softmax: Node, behind: Sequence[Node]) -> _Found | str | None:
    rank = len(graph.shape(softmax.output))
    if int(attr(softmax, "axis", -1)) % rank != rank - 1 or INPUT_SCALE in softmax.attrs or rank not in (2, 3, 4):
        return None
    found = _to_product(graph, softmax.inputs[0], _Scores(), rank)
    if found is None or isinstance(found, str):
        return found
    product, scores = found
    for node in (*scores.nodes, softmax, *behind):
        if (why := uncompilable(graph, node)) is not None:
            return why
    q, q_nodes, q_scale = _unscaled(graph, product, 0)
    k, k_nodes, k_scale = _unscaled(graph, product, 1)
    nodes = (*q_nodes, *k_nodes, product, *scores.nodes, softmax, *behind)
    order = {n.name: i for i, n in enumerate(graph)}
    return _Found(
        tuple(sorted(nodes, key=lambda n: order[n.name])), q, k, behind[-1].inputs[1], behind[-1].output,
        scores.scale * q_scale * k_scale, scores.mask, scores.mask_kind, scores.causal,
    )  # fmt: skip


def _to_values(graph: Graph, softmax: Node) -> list[Node] | None:
    """The nodes from the softmax's result to its product with the values, that one last; None if there is none."""
    nodes: list[Node] = []
    tensor = softmax.output
    while tensor not in graph.outputs:
        readers = graph.consumers(tensor)
        if any(uncompilable(graph, r) for r in readers):
            return None
        guard = _nan_guard(graph, tensor, readers)
        if guard is not None:
            nodes.extend(guard)
        elif len(readers) == 1 and readers[0].op in ("Cast", "Identity", "Dropout") and _stays_float(graph, readers[0]):
            nodes.append(readers[0])
        elif len(readers) == 1 and readers[0].op == "MatMul" and readers[0].inputs[0] == tensor:
            v = readers[0].inputs[1]
            same = v != tensor and graph.shape(v)[:-2] == graph.shape(tensor)[:-2]
            return [*nodes, readers[0]] if same else None
        else:
            return None
        tensor = nodes[-1].output
    return None


def _nan_guard(graph: Graph, tensor: str, readers: Sequence[Node]) -> list[Node] | None:
    """Where(IsNaN(p), 0, p): a row that sees nothing gives zeros, as our kernels do anyway."""
    if len(readers) != 2 or {r.op for r in readers} != {"IsNaN", "Where"}:
        return None
    test, where = sorted(readers, key=lambda r: r.op)
    chosen = where.inputs[0] == test.output and where.inputs[2] == tensor and scalar(graph, where.inputs[1]) == 0.0
    return [test, where] if chosen and many_readers(graph, test, test.output) is None else None


def _to_product(graph: Graph, tensor: str, scores: _Scores, rank: int) -> tuple[Node, _Scores] | str | None:
    """From a tensor of scores back to the MatMul that made them, collecting what was done to them."""
    node = graph.producer(tensor)
    if node is None or node.domain or many_readers(graph, node, tensor) is not None:
        return None
    scores = replace(scores, nodes=(node, *scores.nodes))
    if node.op == "MatMul":
        return (node, replace(scores, nodes=scores.nodes[1:])) if len(graph.shape(tensor)) == rank else None
    if node.op in ("Cast", "Identity") and _stays_float(graph, node):
        return _to_product(graph, node.inputs[0], scores, rank)
    if node.op in ("Mul", "Div"):
        return _through_scale(graph, node, scores, rank)
    if node.op == "Where":
        return _through_where(graph, node, scores, rank)
    if node.op in ("Add", "Sum") and len(node.inputs) == 2:
        for x, mask in (node.inputs, node.inputs[::-1]):
            if graph.shape(x) != graph.shape(node.output):
                continue
            masked = _masked(graph, scores, mask, MaskKind.ADD)
            found = masked if isinstance(masked, str) else _to_product(graph, x, masked, rank)
            if found is not None:
                return found
    return None


def _through_scale(graph: Graph, node: Node, scores: _Scores, rank: int) -> tuple[Node, _Scores] | str | None:
    factor = _factor(graph, node)
    if factor is None:
        return None
    x, value = factor
    found = _to_product(graph, x, replace(scores, scale=scores.scale * value), rank)
    if isinstance(found, tuple) and found[1].mask_kind is MaskKind.ADD and not scores.mask:
        return f"{node.name} scales the mask {found[1].mask} with the scores"
    return found


def _through_where(graph: Graph, node: Node, scores: _Scores, rank: int) -> tuple[Node, _Scores] | str | None:
    condition, first, second = node.inputs
    keep, drop = (MaskKind.KEEP, MaskKind.KEEP_LOW), (MaskKind.DROP, MaskKind.DROP_LOW)
    for x, constant, kinds in ((first, second, keep), (second, first, drop)):
        value = scalar(graph, constant)
        if value is not None and value <= _MASKED and graph.shape(x) == graph.shape(node.output):
            masked = _masked(graph, scores, condition, kinds[bool(np.isfinite(value))])
            return masked if isinstance(masked, str) else _to_product(graph, x, masked, rank)
    return None


def _masked(graph: Graph, scores: _Scores, mask: str, kind: MaskKind) -> _Scores | str:
    """The scores under one more mask; constants that say "all" or "causal" are no tensors to be read."""
    value = graph.constant(mask)
    if value is not None:
        kept = value > _MASKED if kind is MaskKind.ADD else (value != 0) == kind.keeps
        plain = kind is not MaskKind.ADD or not np.any(value[kept])
        if plain and kept.all():
            return scores
        if plain and _is_causal(kept):
            return replace(scores, causal=True)
    if scores.mask:
        return f"two masks, {mask} and {scores.mask}; a kernel takes one"
    return replace(scores, mask=mask, mask_kind=kind)


def _is_causal(kept: np.ndarray) -> bool:
    """Whether every matrix of the last two axes is the lower triangle, the diagonal included."""
    if kept.ndim < 2 or 1 in kept.shape[-2:]:
        return False
    return bool((kept == np.tril(np.ones(kept.shape[-2:], bool))).all())


def _factor(graph: Graph, node: Node) -> tuple[str, float] | None:
    """(tensor, factor) of a Mul or Div by a positive number."""
    first, second = node.inputs
    number = scalar(graph, second)
    if number is None and node.op == "Mul":
        first, number = second, scalar(graph, first)
    if number is None or not number > 0 or graph.shape(first) != graph.shape(node.output):
        return None
    return first, number if node.op == "Mul" else 1.0 / number


def _unscaled(graph: Graph, product: Node, position: int) -> tuple[str, list[Node], float]:
    """An operand of the product before it was scaled by numbers, for this product alone: (tensor, nodes, factor)."""
    tensor, nodes, scale = product.inputs[position], [], 1.0
    while (node := graph.producer(tensor)) is not None and node.op in ("Mul", "Div") and not node.domain:
        factor = _factor(graph, node) if many_readers(graph, node, tensor) is None else None
        if factor is None:
            break
        tensor, scale = factor[0], scale * factor[1]
        nodes.append(node)
    return tensor, nodes, scale


def _stays_float(graph: Graph, node: Node) -> bool:
    return graph.types[node.output].dtype.is_float and graph.types[node.inputs[0]].dtype.is_float


# --- the operator --------------------------------------------------------------------------------------------------


def _operator(graph: Graph, node: Node) -> _Found | str:
    """ONNX Attention, opset 23: queries, keys and values in four dimensions, or in three with the heads inside."""
    if (why := uncompilable(graph, node)) is not None:
        return why
    if any(node.inputs[4:]):
        return "Attention with past keys and values has no kernel"
    if any(node.outputs[1:]):
        return "Attention's further outputs have no kernel"
    if float(attr(node, "softcap", 0.0)) != 0.0:
        return "Attention with a softcap has no kernel"
    q, k, v = node.inputs[:3]
    packed = None
    if len(graph.shape(q)) == 3:
        packed = int(attr(node, "q_num_heads", 0)), int(attr(node, "kv_num_heads", 0))
        if 0 in packed:
            return "Attention on three-dimensional inputs names no numbers of heads"
    width = graph.shape(q)[-1] // (packed[0] if packed else 1)
    scale = float(attr(node, "scale", 0.0)) or float(width) ** -0.5
    scores = _Scores(causal=bool(attr(node, "is_causal", 0)))
    if len(node.inputs) > 3 and node.inputs[3]:
        mask = node.inputs[3]
        kind = MaskKind.KEEP if graph.types[mask].dtype == DType.BOOL else MaskKind.ADD
        masked = _masked(graph, scores, mask, kind)
        if isinstance(masked, str):
            return masked
        scores = masked
    return _Found(
        (node,), q, k, v, node.output, scale, scores.mask, scores.mask_kind, scores.causal, True, packed
    )  # fmt: skip
