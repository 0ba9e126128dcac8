"""What the regions of a plan could become together: chains in one kernel, products of one input in one kernel.

The planner does not make such regions by itself: whether one is faster than its parts is a matter of measuring
(core.fusion.decide).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.fusion.assemble import Draft, Objection
from core.fusion.grow import banned
from core.fusion.parallel import copied, merge
from core.fusion.persistent import join, tower
from core.fusion.plan import FusionPlan, Kind, Refusal, Region
from core.fusion.residence import unserved
from core.graph.ir import Graph
from templates.family import Family
from templates.gpu import GpuSpec
from templates.workload import Chain, ConvWorkload, GemmWorkload, Workload

_LONGEST = 3  # products that one kernel computes


@dataclass(frozen=True)
class Proposal:
    """Regions of a plan that could be one, by their ids. `parts` are the keys of their own workloads."""

    regions: tuple[str, ...]
    kind: Kind
    nodes: tuple[str, ...]
    workload: Workload
    reason: str
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        return "+".join(self.regions)


def propose(
    graph: Graph, plan: FusionPlan, gpu: GpuSpec | None = None, families: Mapping[str, Family] | None = None
) -> list[Proposal]:
    """Everything that one kernel could run, in the plan's order. Proposals may share regions: a chain of three,
    and both pairs of it. With a GPU, only what a family has kernels for on it.
    """
    return [found for found in _considered(graph, plan, gpu, families) if isinstance(found, Proposal)]


def refusals(
    graph: Graph, plan: FusionPlan, gpu: GpuSpec | None = None, families: Mapping[str, Family] | None = None
) -> list[Refusal]:
    """Chains GEMM -> GEMM and convolution -> convolution, and products of one input, that can't be one kernel, with the
    reason.
    """
    return [found for found in _considered(graph, plan, gpu, families) if isinstance(found, Refusal)]


def _considered(
    graph: Graph, plan: FusionPlan, gpu: GpuSpec | None, families: Mapping[str, Family] | None
) -> Iterator[Proposal | Refusal]:
    for last in plan.regions:
        chain: tuple[Region, ...] = (last,)
        while len(chain) < _LONGEST and (before := _before(graph, plan, chain[0])) is not None:
            chain = (before, *chain)
            drafts = [_as_draft(region) for region in chain]
            made = join(graph, drafts[0], drafts[1]) if len(drafts) == 2 else tower(graph, *drafts)
            if len(chain) > 2 and (isinstance(made, Objection) or _held(plan, chain[:2])):
                break  # told of the two in it that stand in the way
            found = _judged(plan, chain, made, gpu, families)
            yield found
            if isinstance(found, Refusal):
                break
    yield from _side_by_side(graph, plan, gpu, families)


def _judged(
    plan: FusionPlan, regions: Sequence[Region], made: Draft | Objection, gpu: GpuSpec | None,
    families: Mapping[str, Family] | None,
) -> Proposal | Refusal:  # fmt: skip
    if isinstance(made, Draft) and made.workload is not None:
        refused = _held(plan, regions) or _unserved(made, gpu, families)
        if not refused:
            parts = tuple(r.workload.key for r in regions if r.workload is not None)
            ids = tuple(r.id for r in regions)
            return Proposal(ids, made.kind, made.nodes, made.workload, made.reason, parts)
    else:
        assert isinstance(made, Objection)
        refused = _held(plan, regions) or made.reason
    return Refusal(regions[0].nodes[0], regions[-1].nodes[0], refused)


def _held(plan: FusionPlan, regions: Sequence[Region]) -> str | None:
    """Why the user wants the regions apart."""
    pinned = next((r.id for r in regions if r.pinned), None)
    nodes = [n for r in regions for n in r.nodes]
    return f"{pinned} is pinned" if pinned else banned(nodes, [*map(frozenset, plan.forbidden)])


def _unserved(made: Draft, gpu: GpuSpec | None, families: Mapping[str, Family] | None) -> str | None:
    if gpu is None or not isinstance(made.workload, Chain):
        return None
    return unserved(made.workload, gpu, families)


def _before(graph: Graph, plan: FusionPlan, second: Region) -> Region | None:
    """The tuned region whose result is the left operand of a tuned region."""
    if second.operands is None or isinstance(second.workload, Chain):
        return None
    producer = graph.producer(second.operands.a)
    first = plan.region_of(producer.name) if producer is not None else None
    if first is None or first.operands is None or first is second or isinstance(first.workload, Chain):
        return None
    return None if first.operands.columns or second.operands.columns else first


def _side_by_side(
    graph: Graph, plan: FusionPlan, gpu: GpuSpec | None, families: Mapping[str, Family] | None
) -> Iterator[Proposal | Refusal]:
    """Regions that read one left operand. Each joins the first group that it fits into."""
    readers: dict[str, list[Region]] = {}
    for region in plan.regions:
        operands = region.operands
        if isinstance(region.workload, GemmWorkload | ConvWorkload) and operands is not None and not operands.columns:
            readers.setdefault(operands.a, []).append(region)
    for regions in readers.values():
        groups: list[list[Region]] = []
        for region in regions:
            refused = _grouped(graph, groups, region)
            if refused is not None:
                yield refused
        for group in groups:
            copies = {r.id: why for r in group for t in r.outputs if (why := copied(graph, plan, t))}
            for region in group if len(group) > 1 else ():
                if region.id in copies:
                    other = next(r for r in group if r is not region)
                    why = f"its result would have to be copied out of the joint one: {copies[region.id]}"
                    yield Refusal(other.nodes[0], region.nodes[0], why)
            fit = [r for r in group if r.id not in copies]
            if len(fit) > 1:
                yield _judged(plan, fit, merge(graph, [_as_draft(r) for r in fit]), gpu, families)


def _grouped(graph: Graph, groups: list[list[Region]], region: Region) -> Refusal | None:
    """Puts the region into a group, or begins one with it; why it is in none that was there."""
    refused: Refusal | None = None
    for group in groups:
        made = merge(graph, [_as_draft(r) for r in (*group, region)])
        if isinstance(made, Draft):
            group.append(region)
            return None
        refused = refused or Refusal(group[0].nodes[0], region.nodes[0], made.reason)
    groups.append([region])
    return refused


def _as_draft(region: Region) -> Draft:
    return Draft(region.kind, region.nodes, region.reason, region.workload, region.operands)
