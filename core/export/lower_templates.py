"""Lowers tuned regions: operands into the layouts their kernels read, weights packed once, here."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from core.errors import ExportError
from core.export import layout as L
from core.export.expressions import attribute
from core.export.forms import Builder
from core.export.lower_attention import lower_attention
from core.export.lower_parallel import lower_parallel
from core.export.operations import DirectConv
from core.export.pack import Slices, as_kn, krsc, nk, output_layout, rows_and_columns, rows_of_a
from core.export.program import OperatorStep, TemplateStep
from core.export.vendor import VendorGemm, vendor_gemm
from core.fusion.operators import ANCHORS
from core.fusion.plan import Region
from core.graph.ir import Node
from core.measure.args import output_shape
from core.tuner.choice import Choice
from templates.attention import AttentionWorkload
from templates.types import DType, MatrixLayout
from templates.workload import Chain, ConvWorkload, GemmWorkload, Single


def lower_template(builder: Builder, region: Region, choices: Mapping[str, Choice]) -> None:
    """Append the step of a tuned region. Raises ExportError when a GEMM has no kernel."""
    anchor = builder.graph.node(region.nodes[0])
    several = region.operands is not None and region.operands.columns
    if isinstance(region.workload, ConvWorkload) and not several:
        _conv(builder, region, anchor, region.workload, choices.get(region.workload.key))
        return
    assert region.workload is not None
    choice = choices.get(region.workload.key)
    vendor = _vendor(builder, region, choice)
    if choice is None or (choice.candidate is None and vendor is None):
        raise ExportError(
            f"no kernel for {region.workload.key} ({anchor.name!r})", "tune the model, or choose another --gpu"
        )
    if several:
        lower_parallel(builder, region, choice, vendor)
    elif isinstance(region.workload, AttentionWorkload):
        lower_attention(builder, region, region.workload, choice)
    elif isinstance(region.workload, Chain):
        _chain(builder, region, anchor, region.workload, choice)
    elif anchor.op == "Conv":
        _conv_as_gemm(builder, region, anchor, choice, vendor)
    else:
        _gemm(builder, region, anchor, choice, vendor)


def _vendor(builder: Builder, region: Region, choice: Choice | None) -> VendorGemm | None:
    """The vendor's kernel, if it is to be used and can be; a note says when it can't."""
    if choice is None or not choice.use_vendor or region.workload is None:
        return None
    found = vendor_gemm(region.workload, choice)
    if isinstance(found, VendorGemm):
        return found
    builder.notes.append(f"region {region.id}: the vendor's kernel was the faster one, but {found}")
    return None


def _conv(builder: Builder, region: Region, anchor: Node, work: ConvWorkload, choice: Choice | None) -> None:
    assert region.operands is not None
    _vendor(builder, region, choice)
    graph = builder.graph
    shape = graph.shape(anchor.inputs[0])
    padded = work.c if work.c != shape[1] else 0
    a = builder.need(region.operands.a, L.channels_last(shape), channels=padded)
    weight = krsc(graph.constants[region.operands.b], work)
    b = builder.constant(weight, builder.dtype, region.operands.b, "krsc", work.c)
    target = L.channels_last(graph.shape(region.outputs[0]))
    bias, source = _epilogue_operands(builder, work, region.operands.bias, region.operands.source, target)
    d = builder.result(region.outputs[0], target, work.epilogue.output)
    if choice is not None and choice.candidate is not None:
        builder.steps.append(TemplateStep(region.nodes, region.id, work, choice, a, b, d, bias, source))
        return
    direct = DirectConv(
        work.n, work.h, work.w, work.c, work.k, work.r, work.s, work.p, work.q, work.pad[:2], work.stride,
        work.dilation, work.groups, work.epilogue,
    )  # fmt: skip
    inputs = tuple(i for i in (a, b, bias, source) if i is not None)
    builder.steps.append(OperatorStep(region.nodes, direct, inputs, (d,)))


def _conv_as_gemm(builder: Builder, region: Region, anchor: Node, choice: Choice, vendor: VendorGemm | None) -> None:
    """A 1x1 conv: channels-last activations are the row-major A, the (K, C) filters the column-major B."""
    work, operands = region.workload, region.operands
    assert isinstance(work, GemmWorkload) and operands is not None
    shape = builder.graph.shape(anchor.inputs[0])
    padded = work.k if work.k != shape[1] else 0
    slices: Slices = ()
    if padded:
        a = builder.need(operands.a, L.channels_last(shape), channels=padded)
    else:
        a, slices = rows_of_a(builder, operands.a, L.channels_last(shape), work, vendor is not None)
    b = builder.constant(nk(builder.graph.constants[operands.b], work), builder.dtype, operands.b, "nk", work.k)
    target = L.channels_last(builder.graph.shape(region.outputs[0]))
    bias, source = _epilogue_operands(builder, work, operands.bias, operands.source, target)
    d = builder.result(region.outputs[0], target, work.epilogue.output)
    builder.steps.append(
        TemplateStep(region.nodes, region.id, work, choice, a, b, d, bias, source, vendor, slices=slices)
    )


def _gemm(builder: Builder, region: Region, anchor: Node, choice: Choice, vendor: VendorGemm | None) -> None:
    work, operands = region.workload, region.operands
    assert isinstance(work, GemmWorkload) and operands is not None
    graph = builder.graph
    shape_a, out = graph.shape(operands.a), graph.shape(region.outputs[0])
    weight = graph.constant(operands.b)
    order, a_layout = rows_and_columns(builder, operands.a, work, weight is not None)
    a, slices = rows_of_a(builder, operands.a, a_layout, work, vendor is not None)
    if weight is not None:
        matrix = as_kn(weight, anchor, work)[..., order, :]
        packed = matrix.swapaxes(-1, -2) if work.layout_b == MatrixLayout.COL else matrix
        b = builder.constant(packed, builder.dtype, operands.b, str(work.layout_b), tuple(order[:2]), a_layout)
    else:
        b = builder.need(operands.b, _activation_b(graph.shape(operands.b), anchor, work))
    target = output_layout(a_layout, shape_a, out) if work.batch == 1 else L.row_major(out)
    bias, source = _epilogue_operands(builder, work, operands.bias, operands.source, target)
    d = builder.result(region.outputs[0], target, work.epilogue.output)
    builder.steps.append(
        TemplateStep(region.nodes, region.id, work, choice, a, b, d, bias, source, vendor, slices=slices)
    )


def _chain(builder: Builder, region: Region, anchor: Node, work: Chain, choice: Choice) -> None:
    """Operators in one kernel: A and B of the first as it would have them alone, B of the later ones as (N, K)."""
    operands, graph, first = region.operands, builder.graph, work.first
    assert operands is not None
    if choice.candidate is None:
        raise ExportError(f"no kernel for {work.key} ({anchor.name!r})", "tune the model, or take the region apart")
    out = graph.shape(region.outputs[0])
    slices: Slices = ()
    if anchor.op == "Conv":
        shape = graph.shape(anchor.inputs[0])
        weight, channels = graph.constants[operands.b], first.c if isinstance(first, ConvWorkload) else first.k
        a = builder.need(operands.a, L.channels_last(shape), channels=channels if channels != shape[1] else 0)
        matrix = krsc(weight, first) if isinstance(first, ConvWorkload) else nk(weight, first)
        b = builder.constant(matrix, builder.dtype, operands.b, "chain", channels)
        target = L.channels_last(out)
    else:
        assert isinstance(first, GemmWorkload)
        depth = graph.shape(operands.a)[-1]
        if first.k == depth:
            order, a_layout = rows_and_columns(builder, operands.a, first, True)
            a, slices = rows_of_a(builder, operands.a, a_layout, first, False)
        else:
            order, a_layout = np.arange(depth), L.row_major(graph.shape(operands.a))
            a = builder.need(operands.a, a_layout, channels=first.k)
        matrix = as_kn(graph.constants[operands.b], anchor, replace(first, k=depth))[order, :]
        matrix = np.pad(matrix, ((0, first.k - depth), (0, 0)))
        b = builder.constant(matrix.T, builder.dtype, operands.b, "chain", first.k, tuple(order[:2]), a_layout)
        target = output_layout(a_layout, graph.shape(operands.a), out)
    bias, _ = _epilogue_operands(builder, first, operands.bias, "", target)
    anchors = [n for n in map(graph.node, region.nodes) if n.op in ANCHORS]
    names = ((operands.b1, operands.bias1), (operands.b2, operands.bias2))
    weights: list[int] = []
    biases: list[int | None] = []
    source1: int | None = None  # of the last operator, the only one with a source
    for part, node, (name, bias_name) in zip(work.parts[1:], anchors[1:], names, strict=False):
        assert isinstance(part, GemmWorkload)
        value = graph.constants[name]
        matrix = nk(value, part) if node.op == "Conv" else as_kn(value, node, part).T
        weights.append(builder.constant(matrix, builder.dtype, name, "chain", part.k))
        own_bias, source1 = _epilogue_operands(builder, part, bias_name, operands.source1, target)
        biases.append(own_bias)
    d = builder.result(region.outputs[0], target, work.epilogue.output)
    b2, bias2 = (weights[1], biases[1]) if len(weights) > 1 else (None, None)
    builder.steps.append(
        TemplateStep(
            region.nodes, region.id, work, choice, a, b, d, bias, b1=weights[0], bias1=biases[0], source1=source1,
            b2=b2, bias2=bias2, slices=slices,
        )
    )  # fmt: skip


def _activation_b(shape: tuple[int, ...], anchor: Node, work: GemmWorkload) -> L.Layout:
    """How a computed B must lie: as the workload's layout says of (..., K, N); transB means it is (N, K) already."""
    stored_nk = anchor.op == "Gemm" and bool(attribute(anchor, "transB", 0))
    if (work.layout_b == MatrixLayout.COL) == stored_nk:
        return L.row_major(shape)
    rank = len(shape)
    return L.layout(shape, (*range(rank - 2), rank - 1, rank - 2))


def _epilogue_operands(
    builder: Builder, work: Single, bias_name: str, source_name: str, target: L.Layout
) -> tuple[int | None, int | None]:
    """Buffers of the bias (N values of the workload's type) and of the source (in D's layout and type)."""
    bias = source = None
    if work.epilogue.has_bias:
        n = output_shape(work)[1]
        value = builder.graph.constant(bias_name)
        if value is not None:
            full = np.broadcast_to(value.reshape(-1), (n,))
            bias = builder.constant(full, builder.dtype, bias_name, "bias", n)
        else:
            bias = builder.need(bias_name, L.row_major(builder.graph.shape(bias_name)), builder.dtype)
    if work.epilogue.has_source:
        dtype = DType.F32 if work.epilogue.output == DType.TF32 else work.epilogue.output
        source = builder.need(source_name, target, dtype)
    return bias, source
