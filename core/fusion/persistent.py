"""Persistent fusion: two regions in one kernel, the intermediate never in memory (paper section 3.1.1).

Here is what can be one, and why a chain can't; what is proposed of it: core.fusion.propose.
"""

from dataclasses import replace

from core.fusion.assemble import Draft, Objection
from core.fusion.plan import Kind, Operands
from core.fusion.values import many_readers
from core.graph.ir import Graph
from templates.types import MatrixLayout
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair, TowerWorkload


def join(graph: Graph, first: Draft, second: Draft) -> Draft | Objection:
    """The region of both, or why they can't be one kernel."""
    objection = (
        _not_a_chain(graph, first, second) or _second_moves(graph, second) or _not_constant(graph, first, second)
    )
    if objection:
        return objection
    one, two = first.workload, second.workload
    assert isinstance(two, GemmWorkload) and first.operands is not None and second.operands is not None
    name = second.nodes[0]
    try:
        if isinstance(one, ConvWorkload):
            pair: Pair = B2bConvWorkload(_filled(graph, one, first.operands.a), two.n, two.epilogue)
        elif isinstance(one, GemmWorkload):
            pair = B2bGemmWorkload(_filled_depth(graph, one, first.operands.a), two.n, two.epilogue)
        else:
            return Objection(f"{first.nodes[0]} is no GEMM or convolution of its own", first.nodes[0])
    except ValueError as error:
        return Objection(f"{first.nodes[0]} and {name}: {error}", name)
    if pair.second != two:
        wanted = f"{pair.second.m}x{pair.second.k}"
        return Objection(f"{name} reads the intermediate as {two.m}x{two.k}, it is made as {wanted}", name)
    kind = Kind.B2B_CONV if isinstance(one, ConvWorkload) else Kind.B2B_GEMM
    a, b = first.operands, second.operands
    operands = Operands(a.a, a.b, a.bias, a.source, b.b, b.bias, b.source)
    stays = f"{kind}: the intermediate of {pair.second.k} columns stays in the kernel"
    reason = f"{stays}, epilogues {one.epilogue}, then {two.epilogue}"
    return Draft(kind, (*first.nodes, *second.nodes), reason, pair, operands)


def _filled(graph: Graph, conv: ConvWorkload, tensor: str) -> ConvWorkload:
    """A stem's channels, which its copy into the kernel's layout fills up anyway, up to the eight that pairs read."""
    return conv if conv.c == graph.shape(tensor)[1] else replace(conv, c=-(-conv.c // 8) * 8)


def _filled_depth(graph: Graph, gemm: GemmWorkload, tensor: str) -> GemmWorkload:
    """The columns of a model input that is converted where it enters anyway, up to the eight that pairs read."""
    enters = tensor in graph.inputs and graph.types[tensor].dtype.itemsize != gemm.dtype.itemsize
    return replace(gemm, k=-(-gemm.k // 8) * 8) if enters and len(graph.shape(tensor)) == 2 else gemm


def tower(graph: Graph, first: Draft, second: Draft, third: Draft) -> Draft | Objection:
    """The region of three products one behind the other, or why they can't be one kernel."""
    pair, behind = join(graph, first, second), join(graph, second, third)
    for made in (pair, behind):
        if isinstance(made, Objection):
            return made
    assert isinstance(pair, Draft) and pair.operands is not None and third.operands is not None
    name, last = third.nodes[0], third.workload
    if not isinstance(pair.workload, B2bGemmWorkload):
        return Objection(f"{name}: a chain of three in one kernel is of GEMMs, {first.nodes[0]} is a convolution", name)
    assert isinstance(last, GemmWorkload)
    try:
        chain = TowerWorkload(pair.workload, last.n, last.epilogue)
    except ValueError as error:
        return Objection(f"{first.nodes[0]}, {second.nodes[0]} and {name}: {error}", name)
    c = third.operands
    operands = replace(pair.operands, b2=c.b, bias2=c.bias, source1=c.source)
    widths = " and ".join(str(part.n) for part in chain.parts[:-1])
    chains = ", then ".join(str(part.epilogue) for part in chain.parts)
    reason = f"{Kind.B2B_GEMM} of three: intermediates of {widths} columns stay in the kernel, epilogues {chains}"
    return Draft(Kind.B2B_GEMM, (*pair.nodes, *third.nodes), reason, chain, operands)


def _not_a_chain(graph: Graph, first: Draft, second: Draft) -> Objection | None:
    one, two = first.nodes[0], second.nodes[0]
    if first.operands is None or second.operands is None:
        return Objection(f"{one} and {two} are not both GEMMs or convolutions", two)
    tensor = second.operands.a
    producer = graph.producer(tensor)
    if producer is None or producer.name not in first.nodes:
        return Objection(f"{two} does not take the result of {one} as its left operand", two)
    readers = many_readers(graph, producer, tensor)
    if readers:
        return Objection(f"{readers}; what stays in the kernel has one reader", producer.name)
    if tensor in (second.operands.bias, second.operands.source, second.operands.b):
        return Objection(f"{two} reads the result of {one} twice", two)
    if (graph.node(one).op == "Conv") != (graph.node(two).op == "Conv"):
        return Objection(f"{two} ({graph.node(two).op}) reads the result of {one} in another order of its axes", two)
    return None


def _second_moves(graph: Graph, second: Draft) -> Objection | None:
    """A second operator that reads more of the intermediate than a block of its own has made."""
    name, work = second.nodes[0], second.workload
    if isinstance(work, ConvWorkload):
        if work.groups > 1:
            return Objection(f"{name} has {work.groups} groups, the second convolution of a pair has one", name)
        if (work.r, work.s) != (1, 1):
            halo = f"its {work.r}x{work.s} filter reads a halo of the intermediate, which other blocks compute"
            return Objection(f"{name}: {halo}", name)
        if any(work.pad):
            return Objection(f"{name} pads the intermediate; the second convolution of a pair has no padding", name)
        if work.stride != (1, 1):
            stride = f"{work.stride[0]}x{work.stride[1]}"
            return Objection(f"{name} has stride {stride}: most of the intermediate would be made for nothing", name)
    if not isinstance(work, GemmWorkload):
        return Objection(f"{name} is no GEMM or 1x1 convolution", name)
    if work.batch > 1:
        return Objection(f"{name} is a batch of {work.batch} products, a pair is one", name)
    return None


def _not_constant(graph: Graph, first: Draft, second: Draft) -> Objection | None:
    """Weights and biases are loaded before the previous kernel has ended, so they must be constants."""
    for draft in (first, second):
        name, operands, work = draft.nodes[0], draft.operands, draft.workload
        assert operands is not None
        if graph.constant(operands.b) is None:
            return Objection(f"{name} multiplies by {operands.b}, which is computed at run time", name)
        if operands.bias and graph.constant(operands.bias) is None:
            return Objection(f"{name} adds the bias {operands.bias}, which is computed at run time", name)
        if isinstance(work, GemmWorkload) and (work.layout_a, work.layout_b) != (MatrixLayout.ROW, MatrixLayout.COL):
            return Objection(f"{name} has its operands in other layouts than a pair's kernel reads", name)
    if first.operands is not None and first.operands.source:
        reason = f"the epilogue of {first.nodes[0]} reads {first.operands.source}, which would have to be loaded"
        return Objection(f"{reason} into the middle of the kernel", first.nodes[0])
    return None
