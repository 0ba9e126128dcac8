"""Lowers products of one input that run as one kernel: weights side by side, results as slices of one matrix."""

import numpy as np

from core.errors import ExportError
from core.export import layout as L
from core.export.forms import Builder
from core.export.pack import Slices, as_kn, krsc, nk, output_layout, rows_and_columns, rows_of_a
from core.export.program import TemplateStep
from core.export.vendor import VendorGemm
from core.fusion.parallel import parts_of
from core.fusion.plan import Region
from core.tuner.choice import Choice
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload


def lower_parallel(builder: Builder, region: Region, choice: Choice, vendor: VendorGemm | None) -> None:
    """Append the step. Raises ExportError where only a kernel of the vendor's that no library carries is chosen."""
    operands, work, graph = region.operands, region.workload, builder.graph
    assert operands is not None and isinstance(work, GemmWorkload | ConvWorkload)
    if choice.candidate is None and vendor is None:
        raise ExportError(f"no kernel for {work.key} ({region.nodes[0]!r})", "tune the model, or take the region apart")
    shape = graph.shape(operands.a)
    anchors = [graph.node(part.node) for part in operands.columns]
    weights = [graph.constants[part.b] for part in operands.columns]
    slices: Slices = ()
    if anchors[0].op == "Conv":
        channels = work.c if isinstance(work, ConvWorkload) else work.k
        lies, order = L.channels_last(shape), np.arange(channels)
        if isinstance(work, ConvWorkload) or channels != shape[1]:
            a = builder.need(operands.a, lies, channels=channels if channels != shape[1] else 0)
        else:
            a, slices = rows_of_a(builder, operands.a, lies, work, vendor is not None)
        targets = [L.channels_last(graph.shape(part.output)) for part in operands.columns]
    else:
        assert isinstance(work, GemmWorkload)
        order, lies = rows_and_columns(builder, operands.a, work, True)
        a, slices = rows_of_a(builder, operands.a, lies, work, vendor is not None)
        targets = [output_layout(lies, shape, graph.shape(part.output)) for part in operands.columns]
    packed = []
    for weight, anchor, part in zip(weights, anchors, parts_of(region), strict=True):
        if isinstance(part, ConvWorkload):
            packed.append(krsc(weight, part))
        else:
            packed.append(nk(weight, part) if anchor.op == "Conv" else as_kn(weight, anchor, part)[order, :].T)
    names = tuple(part.b for part in operands.columns)
    b = builder.constant(np.concatenate(packed), builder.dtype, operands.b, "parallel", names, lies)
    bias = _bias(builder, region) if work.epilogue.has_bias else None
    output = work.epilogue.output
    tensors = list(zip((part.output for part in operands.columns), targets, strict=True))
    widths = [part.width for part in operands.columns]
    d = builder.side_by_side(tensors, widths, DType.F32 if output == DType.TF32 else output)
    builder.steps.append(
        TemplateStep(region.nodes, region.id, work, choice, a, b, d, bias, vendor=vendor, slices=slices)
    )


def _bias(builder: Builder, region: Region) -> int:
    """The biases side by side, zeros where a product has none."""
    assert region.operands is not None
    columns, constants = region.operands.columns, builder.graph.constants
    values = [
        np.broadcast_to(constants[part.bias].reshape(-1), (part.width,)) if part.bias else np.zeros(part.width)
        for part in columns
    ]
    names = tuple((part.bias, part.width) for part in columns)
    return builder.constant(np.concatenate(values), builder.dtype, names[0][0], "parallel bias", names)
