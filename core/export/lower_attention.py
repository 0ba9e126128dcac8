"""Lowers attention: every operand where its strides say; it lies there already if the plan foretold it right."""

from collections.abc import Sequence

from core.errors import ExportError
from core.export import layout as L
from core.export.forms import Builder
from core.export.program import Slice, TemplateStep
from core.fusion.plan import Region
from core.fusion.strides import layout_of
from core.tuner.choice import Choice
from templates.attention import AttentionWorkload, MaskKind, Strides

_ROWS, _TRANSPOSED, _INSIDE = (0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3)


def lower_attention(builder: Builder, region: Region, work: AttentionWorkload, choice: Choice) -> None:
    """Append the step. Raises ExportError when only a vendor's kernel is chosen, which no library carries."""
    operands, out = region.operands, region.outputs[0]
    assert operands is not None
    if choice.candidate is None:
        raise ExportError(f"no kernel for {work.key} ({region.nodes[0]!r})", "tune the model, or take the region apart")
    operator = builder.graph.node(region.nodes[-1]).op == "Attention"
    rows = _INSIDE if operator and len(builder.graph.shape(operands.a)) == 3 else _ROWS
    queries, keys = (work.batch, work.heads, work.q_len), (work.batch, work.kv_heads, work.kv_len)
    slices: list[tuple[str, Slice]] = []

    def read(
        field: str, tensor: str, strides: Strides, counts: tuple[int, int, int], width: int, order: Sequence[int]
    ) -> int:  # fmt: skip
        walk = (*zip(counts, strides, strict=True), (width, 1))
        index, part = builder.view(tensor, layout_of(strides, counts, width, order), walk, builder.dtype)
        slices.extend([(field, part)] if part else [])
        return index

    q = read("a", operands.a, work.q, queries, work.head_dim, rows)
    k = read("b", operands.b, work.k, keys, work.head_dim, rows if operator else _TRANSPOSED)
    v = read("b1", operands.b1, work.v, keys, work.value_dim, rows)
    mask = None
    if work.mask is not MaskKind.NONE:
        dtype = work.dtype if work.mask is MaskKind.ADD else None
        mask = builder.need(operands.source, L.row_major(builder.graph.shape(operands.source)), dtype)
    d = builder.result(out, layout_of(work.out, queries, work.value_dim, rows), work.dtype)
    builder.steps.append(
        TemplateStep(region.nodes, region.id, work, choice, q, k, d, source=mask, b1=v, slices=tuple(slices))
    )
