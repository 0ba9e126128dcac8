"""1x1 convolutions that deepen a model for little, because they run in the kernel before them (paper section 4.3)."""

from dataclasses import replace
from math import inf

from core.advise.activations import lone, sites
from core.advise.advice import Advice, Deepen, Kind, Term, priced
from core.advise.subject import Subject
from core.fusion.plan import Region
from core.fusion.residence import unserved
from core.fusion.values import counted
from templates.epilogue import Epilogue, EpilogueOp
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Pair


def advise_deepening(subject: Subject) -> list[Advice]:
    """A piece of advice for each distinct convolution that a 1x1 of its width can follow in one kernel."""
    found = []
    for _, regions in subject.groups():
        pair = _pair(subject, regions[0])
        if pair is not None and unserved(pair, subject.gpu) is None:
            found.append(_advice(subject, regions, pair))
    return found


def _pair(subject: Subject, region: Region) -> Pair | None:
    """The convolution and a 1x1 behind it as one workload; None where the region can't be the first of a pair."""
    one, graph = region.workload, subject.graph
    if graph.node(region.nodes[0]).op != "Conv" or region.operands is None or region.operands.source:
        return None
    if len(region.outputs) != 1 or not lone(graph, region):
        return None
    ops = (EpilogueOp("bias"), *((EpilogueOp("relu"),) if _relu(subject, region) else ()))
    try:
        if isinstance(one, ConvWorkload) and one.groups == 1:
            stem = one.c != graph.shape(region.operands.a)[1]  # its copy is filled up anyway, to the eight pairs read
            first = replace(one, c=-(-one.c // 8) * 8) if stem else one
            return B2bConvWorkload(first, one.k, Epilogue(ops, one.epilogue.output))
        if isinstance(one, GemmWorkload) and one.batch == 1:
            return B2bGemmWorkload(one, one.n, Epilogue(ops, one.epilogue.output))
    except ValueError:  # the intermediate has another type than the operands
        return None
    return None


def _relu(subject: Subject, region: Region) -> bool:
    """Whether the region ends in a ReLU: only behind one does another ReLU change nothing."""
    found = sites(subject.graph, subject.plan, region)
    return bool(found) and found[-1].op == "relu" and found[-1].nodes[-1] == region.nodes[-1]


def _advice(subject: Subject, regions: list[Region], pair: Pair) -> Advice:
    one, second, count = regions[0].workload, pair.second, len(regions)
    assert one is not None
    relu = _relu(subject, regions[0])
    channels = second.n
    persistent = priced("in one kernel (persistent)", [Term(count, (one,), (pair,))], subject.history, subject.estimate)
    apart = priced("as a kernel of its own", [Term(count, (one,), (one, second))], subject.history, subject.estimate)
    parameters = channels * channels + channels
    return Advice(
        id=f"deepen-{regions[0].id}",
        kind=Kind.DEEPEN,
        what=f"a 1x1 convolution, {channels} to {channels}{' with ReLU' if relu else ''}, behind "
        f"{counted(count, 'convolution')} like {regions[0].nodes[0]}",
        why="the 1x1 reads what the kernel before it has just made, so it can run there without a trip through memory",
        regions=tuple(r.id for r in regions),
        nodes=tuple(r.nodes[0] for r in regions),
        ways=tuple(sorted((persistent, apart), key=lambda w: -(w.price.gain_us or -inf))),
        change=Deepen(tuple((r.outputs[0], channels) for r in regions), relu),
        facts=(
            ("parameters added", f"{count * parameters:,}"),
            ("FLOPs added", f"{count * second.flops / 1e9:,.3g} GFLOP a run"),
        ),
    )
