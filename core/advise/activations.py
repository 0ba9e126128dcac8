"""Each activation exchanged for another one: what the epilogue costs (paper section 4.3, figure 9 and table 4)."""

from collections.abc import Iterator
from dataclasses import replace

from core.advise.advice import Advice, Kind, Site, SwapActivations, Term, priced
from core.advise.subject import Subject
from core.fusion.derive import supported_anchor
from core.fusion.operators import ANCHORS
from core.fusion.patterns import activation
from core.fusion.plan import FusionPlan, Region
from core.fusion.steps import Chain, step
from core.fusion.values import counted, native_dtype
from core.fusion.workload_of import Anchor
from core.graph.ir import Graph
from templates.epilogue import Epilogue, EpilogueOp
from templates.workload import ConvWorkload, GemmWorkload, Single

# name of templates.epilogue -> what people call it
TARGETS = {"relu": "ReLU", "gelu_erf": "GELU", "hard_swish": "HardSwish", "softplus": "Softplus", "silu": "SiLU"}
NAMES = {**TARGETS, "gelu_tanh": "GELU (tanh)", "leaky_relu": "LeakyReLU", "elu": "ELU", "clip": "ReLU6"}
_RELU6 = EpilogueOp("clip", (0.0, 6.0))


def exchangeable(op: EpilogueOp) -> bool:
    """Whether the step is an activation that another one can stand for; sigmoid and tanh mean something as gates."""
    return op.op in NAMES and (op.op != "clip" or op == _RELU6)


def lone(graph: Graph, region: Region) -> bool:
    """Whether one operator makes the region's product: several that read one input may run as one product."""
    return sum(graph.node(n).op in ANCHORS for n in region.nodes) == 1


def sites(graph: Graph, plan: FusionPlan, region: Region) -> list[Site]:
    """The exchangeable activations of a region with one product, in order: one for each such step of its epilogue."""
    if not isinstance(region.workload, GemmWorkload | ConvWorkload) or not lone(graph, region):
        return []
    native = native_dtype(graph)
    anchor = supported_anchor(graph, graph.node(region.nodes[0]), plan.dtype, native)
    return list(_walk(graph, plan, region, anchor)) if isinstance(anchor, Anchor) else []


def _walk(graph: Graph, plan: FusionPlan, region: Region, anchor: Anchor) -> Iterator[Site]:
    """Along the epilogue as core.fusion.grow took it."""
    native, inside, x = native_dtype(graph), set(region.nodes), anchor.node.output
    while readers := [n for n in graph.consumers(x) if n.name in inside]:
        link = activation(graph, x, native, lambda node: node.name in inside) or step(
            graph, readers[0], x, Chain(graph.types[x], anchor.axis, native, plan.dtype)
        )
        if isinstance(link, str):
            return
        if len(link.ops) == 1 and exchangeable(link.ops[0]):
            yield Site(tuple(n.name for n in link.nodes), x, link.ops[0].op)
        x = link.output


def exchanged(workload: Single, old: str, new: str) -> Single:
    """The workload with one activation for another."""
    ops = tuple(EpilogueOp(new) if o.op == old and exchangeable(o) else o for o in workload.epilogue.ops)
    return replace(workload, epilogue=Epilogue(ops, workload.epilogue.output))


def advise_activations(subject: Subject) -> list[Advice]:
    """A piece of advice for each activation of the model and each other one that could stand in its place."""
    found: dict[str, list[tuple[Region, Site]]] = {}
    for region in subject.plan.regions:
        for site in sites(subject.graph, subject.plan, region):
            found.setdefault(site.op, []).append((region, site))
    return [_exchange(subject, op, new, places) for op, places in found.items() for new in TARGETS if new != op]


def _exchange(subject: Subject, op: str, new: str, places: list[tuple[Region, Site]]) -> Advice:
    held = {region.id for region, _ in places}
    terms = [
        Term(count, (workload,), (exchanged(workload, op, new),))
        for workload, regions in subject.groups()
        if isinstance(workload, GemmWorkload | ConvWorkload) and (count := sum(r.id in held for r in regions))
    ]
    return Advice(
        id=f"activation-{op}-{new}".replace("_", "-"),
        kind=Kind.ACTIVATION,
        what=f"{NAMES[new]} in place of {NAMES[op]} in {counted(len(places), 'epilogue')}",
        why="an epilogue computes any activation without a pass over memory of its own; this is what it adds",
        regions=tuple(dict.fromkeys(region.id for region, _ in places)),
        nodes=tuple(node for _, site in places for node in site.nodes),
        ways=(priced(f"{NAMES[op]} to {NAMES[new]}", terms, subject.history),),
        change=SwapActivations(tuple(site for _, site in places), new),
    )
