"""Runs a plan on the CPU as its workloads say it: each tuned region as one GEMM or convolution with its epilogue in
numpy, everything else cut out of the graph and run by ONNX Runtime. A right plan gives what the model gives.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnxruntime as ort

from core.fusion.parallel import parts_of
from core.fusion.plan import FusionPlan, Operands, Region
from core.graph.ir import Graph
from core.graph.to_onnx import to_model
from core.measure.args import output_shape
from templates.attention import AttentionWorkload, MaskKind
from templates.epilogue import Epilogue, EpilogueOp
from templates.types import MatrixLayout
from templates.workload import Chain, ConvWorkload, GemmWorkload

Tensors = dict[str, np.ndarray]


def run_model(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: v for n, v in feeds.items() if n in {i.name for i in session.get_inputs()}})


def run_plan(graph: Graph, plan: FusionPlan, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The model's outputs. Fails if a region runs before what it reads, or if a node is in no or in two regions."""
    names = [n for region in plan.regions for n in region.nodes]
    assert sorted(names) == sorted(n.name for n in graph)
    tensors: Tensors = dict(graph.constants) | dict(feeds)
    for region in plan.regions:
        missing = [t for t in region.inputs if t not in tensors]
        assert not missing, f"{region.id} runs before {missing} are there"
        if region.workload is None:
            part = graph.replaced(
                (graph.node(n) for n in region.nodes),
                inputs=tuple(t for t in region.inputs if t not in graph.constants),
                outputs=region.outputs,
            )
            found = run_model(to_model(part).SerializeToString(), tensors)
            tensors.update(zip(region.outputs, found, strict=True))
        else:
            for part in _parts(graph, region):
                assert len(part.outputs) == 1 and part.operands is not None
                tensors[part.outputs[0]] = _tuned(graph, part, part.operands, tensors)
    return [tensors[t] for t in graph.outputs]


def _parts(graph: Graph, region: Region) -> list[Region]:
    """Of products of one input each as it would run alone; a region of one result as it is."""
    if region.operands is None or region.workload is None or not region.operands.columns:
        return [region]
    columns = region.operands.columns
    assert set(region.outputs) <= {part.output for part in columns}
    works, anchors = parts_of(region), {part.node for part in columns}
    assert sum(output_shape(w)[1] for w in works) == output_shape(region.workload)[1]
    return [
        replace(
            region, workload=work, nodes=(part.node, *(n for n in region.nodes if n not in anchors)),
            outputs=(part.output,), operands=Operands(region.operands.a, part.b, part.bias),
        )
        for part, work in zip(columns, works, strict=True)
    ]  # fmt: skip


def _tuned(graph: Graph, region: Region, operands: Operands, tensors: Tensors) -> np.ndarray:
    """The result in the graph's own shape; inside, matrices (rows, N) as the kernel sees them."""
    if isinstance(region.workload, AttentionWorkload):
        return _attention(graph, region, region.workload, operands, tensors)
    anchors = [graph.node(n) for n in region.nodes if graph.node(n).op in ("Conv", "Gemm", "MatMul")]
    work, shape = region.workload, graph.shape(region.outputs[0])
    channels_second = anchors[0].op == "Conv"
    works = work.parts if isinstance(work, Chain) else (work,)
    first = works[0]
    assert first is not None and len(anchors) == len(works)
    a, b = tensors[operands.a].astype(np.float64), tensors[operands.b].astype(np.float64)
    if isinstance(first, ConvWorkload):
        product = _conv(first, a, b)
    else:
        trans_b = bool(anchors[0].attrs.get("transB", 0))
        product = _gemm(first, a, b, anchors[0].op, trans_b, operands.b in graph.constants)

    def finished(x: np.ndarray, chain: Epilogue, bias_name: str, source_name: str) -> np.ndarray:
        n = x.shape[-1]
        bias = tensors[bias_name].astype(np.float64).reshape(n) if bias_name else None
        source = None
        if source_name:
            given = tensors[source_name].astype(np.float64)
            assert given.shape == shape
            source = (np.moveaxis(given, 1, -1) if channels_second else given).reshape(-1, n)
        return _epilogue(chain, x.reshape(-1, n), bias, source)

    result = finished(product, first.epilogue, operands.bias, operands.source)
    later = ((operands.b1, operands.bias1), (operands.b2, operands.bias2))
    for part, anchor, (weights, bias) in zip(works[1:], anchors[1:], later, strict=False):
        matrix = tensors[weights].astype(np.float64)
        stored_nk = anchor.op == "Conv" or bool(anchor.attrs.get("transB", 0))
        matrix = matrix.reshape(part.n, -1) if stored_nk else matrix
        rows = _gemm(part, result, matrix, "Gemm", stored_nk, constant_b=True)
        result = finished(rows, part.epilogue, bias, operands.source1 if part is works[-1] else "")
    if channels_second:
        moved = (shape[0], *shape[2:], shape[1])
        result = np.moveaxis(result.reshape(moved), -1, 1)
    return result.reshape(shape).astype(np.float32)


def _attention(
    graph: Graph, region: Region, work: AttentionWorkload, operands: Operands, tensors: Tensors
) -> np.ndarray:
    """From the operands' logical shapes: the strides say where they lie and nothing about what is computed."""
    operator = graph.node(region.nodes[0]).op == "Attention"

    def heads(tensor: str, count: int, rows: int, width: int) -> np.ndarray:
        value = tensors[tensor].astype(np.float64)
        if operator and value.ndim == 3:
            return value.reshape(work.batch, rows, count, width).swapaxes(1, 2)
        return value.reshape(work.batch, count, rows, width)

    q = heads(operands.a, work.heads, work.q_len, work.head_dim)
    v = heads(operands.b1, work.kv_heads, work.kv_len, work.value_dim)
    if operator:
        k = heads(operands.b, work.kv_heads, work.kv_len, work.head_dim)
    else:
        k = heads(operands.b, work.kv_heads, work.head_dim, work.kv_len).swapaxes(-1, -2)
    k, v = (np.repeat(x, work.heads // work.kv_heads, axis=1) for x in (k, v))
    scores = work.scale * q @ k.swapaxes(-1, -2)
    if operands.source:
        mask = (
            np.broadcast_to(tensors[operands.source], graph.shape(region.outputs[0])[:-2] + scores.shape[-2:])
            if not operator
            else np.broadcast_to(tensors[operands.source], scores.shape)
        )
        mask = mask.reshape(scores.shape)
        if work.mask is MaskKind.ADD:
            scores = scores + mask
        else:
            scores = np.where(mask == work.mask.keeps, scores, -1e30 if work.mask.low else -np.inf)
    if work.causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), -1e300))
    total = weights.sum(axis=-1, keepdims=True)
    result = (weights / np.where(total == 0, 1, total)) @ v
    shape = graph.shape(region.outputs[0])
    return (result.swapaxes(1, 2) if operator and len(shape) == 3 else result).reshape(shape).astype(np.float32)


def _gemm(work: GemmWorkload, a: np.ndarray, b: np.ndarray, op: str, trans_b: bool, constant_b: bool) -> np.ndarray:
    if op == "Conv":
        a = _pad_last(np.moveaxis(a, 1, -1), work.k)
        b = _pad_last(b.reshape(work.n, -1), work.k).T
    elif trans_b:
        b = b.T
    if constant_b:
        assert work.layout_b is MatrixLayout.COL
    else:
        assert work.layout_b is (MatrixLayout.COL if trans_b else MatrixLayout.ROW)
    if work.layout_a is MatrixLayout.COL:
        a = a.T
    if a.shape[-1] < work.k and work.batch == 1:  # a model input filled up with zeros
        a, b = _pad_last(a, work.k), _pad_last(b.T, work.k).T
    return np.matmul(a.reshape(work.batch, work.m, work.k), b.reshape(-1, work.k, work.n))


def _pad_last(x: np.ndarray, extent: int) -> np.ndarray:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extent - x.shape[-1])])


def _conv(work: ConvWorkload, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Direct convolution from the workload alone: NHWC, KRSC, padding of the stem's channels included."""
    x = _pad_last(np.moveaxis(x, 1, -1).reshape(work.n, work.h, work.w, -1), work.c)
    w = np.moveaxis(w, 1, -1).reshape(work.k, work.r, work.s, -1)
    w = _pad_last(w, work.c // work.groups)
    top, left, bottom, right = work.pad
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    out = np.zeros((work.n, work.p, work.q, work.k))
    per_in, per_out = work.c // work.groups, work.k // work.groups
    for g in range(work.groups):
        part, filters = x[..., g * per_in : (g + 1) * per_in], w[g * per_out : (g + 1) * per_out]
        for r in range(work.r):
            for s in range(work.s):
                rows = slice(r * work.dilation[0], None, work.stride[0])
                columns = slice(s * work.dilation[1], None, work.stride[1])
                window = part[:, rows, columns][:, : work.p, : work.q]
                out[..., g * per_out : (g + 1) * per_out] += window @ filters[:, r, s].T
    return out


def _epilogue(chain: Epilogue, x: np.ndarray, bias: np.ndarray | None, source: np.ndarray | None) -> np.ndarray:
    assert chain.has_bias == (bias is not None) and chain.has_source == (source is not None)
    for step in chain.ops:
        x = _step(step, x, bias, source)
    return x


def _step(step: EpilogueOp, x: np.ndarray, bias: np.ndarray | None, source: np.ndarray | None) -> np.ndarray:
    """include/bolt/activations.h, in numpy."""
    p = step.params
    match step.op:
        case "bias" | "add":
            return x + (bias if step.op == "bias" else source)
        case "mul":
            return x * source
        case "scale":
            return x * p[0]
        case "shift":
            return x + p[0]
        case "relu":
            return np.where(x < 0, 0, x)
        case "leaky_relu":
            return np.where(x < 0, p[0] * x, x)
        case "clip":
            return np.where(x < p[0], p[0], np.where(x > p[1], p[1], x))
        case "gelu_erf":
            return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
        case "sigmoid":
            return 1 / (1 + np.exp(-x))
        case "silu":
            return x / (1 + np.exp(-x))
        case "hard_sigmoid":
            return np.clip(p[0] * x + p[1], 0, 1)
        case "hard_swish":
            return x * np.clip(x / 6 + 0.5, 0, 1)
        case "softplus":
            return np.log1p(np.exp(x))
        case "tanh":
            return np.tanh(x)
        case "elu":
            return np.where(x < 0, p[0] * np.expm1(x), x)
    raise AssertionError(step.op)
