"""Products that share their left operand as one kernel: the projections to queries, keys and values, parallel 1x1
convolutions. Their weights lie side by side, each result is a slice of the columns of a joint one.
"""

from collections.abc import Sequence
from dataclasses import replace

from core.fusion.assemble import Draft, Objection
from core.fusion.operators import ANCHORS
from core.fusion.plan import Columns, FusionPlan, Kind, Operands, Region
from core.fusion.strides import VIEWS
from core.fusion.values import counted, native_dtype, stored_dtype
from core.graph.ir import Graph, Node
from templates.epilogue import Epilogue
from templates.types import MatrixLayout
from templates.workload import B2bGemmWorkload, ConvWorkload, GemmWorkload, Single

_ACCESS = 16  # bytes that kernels read at once: where each slice must begin


def merge(graph: Graph, drafts: Sequence[Draft]) -> Draft | Objection:
    """The region of these regions around one anchor each, in the order of their columns; or why it is none."""
    gated = _gated(graph, drafts)
    if gated is not None:
        return gated
    parts: list[Columns] = []
    works: list[Single] = []
    for draft in drafts:
        found = _columns(graph, draft)
        if isinstance(found, Objection):
            return found
        work = draft.workload
        assert isinstance(work, GemmWorkload | ConvWorkload) and draft.operands is not None
        parts.append(found)
        works.append(work)
        differs = _differs(graph, drafts[0], draft, works[0], work)
        if differs:
            return Objection(differs, found.node)
    biased = next((i for i, work in enumerate(works) if work.epilogue.has_bias), 0)
    width = sum(part.width for part in parts)
    model = works[biased]
    whole = replace(model, n=width) if isinstance(model, GemmWorkload) else replace(model, k=width)
    shared = drafts[0].operands
    assert shared is not None
    operands = Operands(shared.a, parts[0].b, parts[0].bias, columns=tuple(parts))
    names = tuple(n for draft in drafts for n in draft.nodes)
    widths = " + ".join(str(part.width) for part in parts)
    reason = (
        f"{counted(len(parts), 'product')} of {shared.a} in one kernel of {widths} columns, epilogue {whole.epilogue}"
    )
    return Draft(Kind.PARALLEL, names, reason, whole, operands)


def _gated(graph: Graph, drafts: Sequence[Draft]) -> Objection | None:
    """A gate and what it scales, act(x W) * (x V). One kernel of both would compute pairs of columns, store one value
    for each: the epilogues of CUTLASS 2.x and 3.x store as many columns as they compute. The joint product with a
    pointwise kernel behind it is none either: it moves five values for each result (two written, two read, one
    written), the two kernels, with the activation and the multiplication in their epilogues, three.
    """
    made = {graph.node(draft.nodes[-1]).output: draft for draft in drafts}
    for draft in drafts:
        gate = made.get(draft.operands.source) if draft.operands is not None else None
        if gate is None or draft.workload is None or not any(o.op == "mul" for o in draft.workload.epilogue.ops):
            continue
        one, two = gate.nodes[0], draft.nodes[0]
        reason = (
            f"{two} is multiplied by the result of {one}: a dual GEMM needs an epilogue that stores one value for two "
            f"columns, which no family has; as two kernels with fused epilogues they move less than one and a "
            "pointwise kernel"
        )
        return Objection(reason, two)
    return None


def _columns(graph: Graph, draft: Draft) -> Columns | Objection:
    """The region as one of several; or why it can't be."""
    name, work, operands = draft.nodes[0], draft.workload, draft.operands
    if not isinstance(work, GemmWorkload | ConvWorkload) or operands is None or operands.columns:
        return Objection(f"{name} is no GEMM or convolution of its own", name)
    batch, groups = (work.batch, 1) if isinstance(work, GemmWorkload) else (1, work.groups)
    if batch > 1 or groups > 1:
        kind = f"a batch of {batch} products" if batch > 1 else f"a convolution of {groups} groups"
        return Objection(f"{name} is {kind}, whose weights can't lie side by side with others", name)
    for tensor in filter(None, (operands.b, operands.bias)):
        if graph.constant(tensor) is None:
            return Objection(f"{tensor} of {name} is computed at run time; only constants are laid side by side", name)
    if isinstance(work, GemmWorkload) and work.layout_a is not MatrixLayout.ROW:
        return Objection(f"{name} reads its input transposed", name)
    if operands.source:
        return Objection(f"the epilogue of {name} reads {operands.source}, which the other products do not", name)
    width = work.n if isinstance(work, GemmWorkload) else work.k
    access = _ACCESS // work.epilogue.output.itemsize
    if width % access:
        return Objection(
            f"{name} makes {width} columns, no multiple of {access}: what lies behind them starts unaligned", name
        )
    last = graph.node(draft.nodes[-1]).output
    return Columns(name, operands.b, operands.bias, last, width)


def _differs(graph: Graph, first: Draft, other: Draft, one: Single, two: Single) -> str | None:
    """Why the two can't share a kernel: it reads one A in one way and does one thing to every column."""
    a, b = first.nodes[0], other.nodes[0]
    assert first.operands is not None and other.operands is not None
    if first.operands.a != other.operands.a:
        return f"{b} reads {other.operands.a}, {a} reads {first.operands.a}"
    if (graph.node(a).op == "Conv") != (graph.node(b).op == "Conv"):
        return f"{b} ({graph.node(b).op}) reads the axes of its input in another order than {a}"
    if _after_bias(one.epilogue) != _after_bias(two.epilogue):
        return f"{b} has the epilogue {two.epilogue}, {a} has {one.epilogue}"
    if _but_width(one) != _but_width(two):
        return f"{b} is another product of its input than {a}"
    return None


def _after_bias(epilogue: Epilogue) -> Epilogue:
    """Without a bias at the beginning: where only some products have one, the others' is zero."""
    begins = bool(epilogue.ops) and epilogue.ops[0].op == "bias"
    return Epilogue(epilogue.ops[1:], epilogue.output) if begins else epilogue


def _but_width(work: Single) -> Single:
    plain = Epilogue((), work.epilogue.output)
    if isinstance(work, GemmWorkload):
        return replace(work, n=1, epilogue=plain)
    return replace(work, k=1, epilogue=plain)


def parts_of(region: Region) -> tuple[Single, ...]:
    """The workloads of a region's products as they would run on their own."""
    work, operands = region.workload, region.operands
    assert isinstance(work, GemmWorkload | ConvWorkload) and operands is not None
    made: list[Single] = []
    for part in operands.columns:
        epilogue = work.epilogue if part.bias or not work.epilogue.has_bias else _after_bias(work.epilogue)
        wide = replace(work, n=part.width) if isinstance(work, GemmWorkload) else replace(work, k=part.width)
        made.append(replace(wide, epilogue=epilogue))
    return tuple(made)


# --- who reads a slice ---------------------------------------------------------------------------------------------


def copied(graph: Graph, plan: FusionPlan, tensor: str) -> str | None:
    """Why a slice of columns would have to be copied for its readers; None if all of them read it where it lies."""
    kind = graph.types[tensor].dtype
    if graph.leaves(tensor) and stored_dtype(kind, native_dtype(graph), plan.dtype) == kind:
        return f"{tensor} is an output of the model, which is dense"
    for reader in graph.consumers(tensor):
        if reader.op in VIEWS and not reader.domain:
            reason = copied(graph, plan, reader.output)
        else:
            reason = _reader_copies(graph, plan, reader, tensor)
        if reason:
            return reason
    return None


def _reader_copies(graph: Graph, plan: FusionPlan, reader: Node, tensor: str) -> str | None:
    region = plan.region_of(reader.name)
    assert region is not None
    if region.kind in (Kind.POINTWISE, Kind.REDUCTION):
        strided = len(region.nodes) > 1 or region.kind is Kind.POINTWISE
        return None if strided else f"{reader.name} ({reader.op}) reads dense rows"
    operands, work = region.operands, region.workload
    if operands is None or work is None:
        return f"{reader.name} ({reader.op}) reads dense tensors"
    if region.kind is Kind.ATTENTION:
        return None if tensor in (operands.a, operands.b, operands.b1) else f"{reader.name} reads it as a mask"
    anchor = next(graph.node(n) for n in region.nodes if graph.node(n).op in ANCHORS)
    first = work.first if isinstance(work, B2bGemmWorkload) else work
    if not isinstance(first, GemmWorkload) or first.batch > 1 or first.layout_a is not MatrixLayout.ROW:
        return f"{anchor.name} ({anchor.op}) reads a dense tensor, its kernels take no step from row to row"
    if tensor != operands.a or reader is not anchor:
        return f"the epilogue of {anchor.name} reads a dense tensor"
    return None
