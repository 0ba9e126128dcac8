"""Edits of a plan: what the window and plan files do to it. Each gives a new plan and leaves the rest as it was."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import PlanError
from core.fusion.derive import Objection, derive
from core.fusion.grow import banned
from core.fusion.plan import FusionPlan, Kind, Region
from core.fusion.replan import Mark, replan, with_marks
from core.fusion.residence import refused, unserved
from core.fusion.rows import waits_for_itself
from core.fusion.values import listed, native_dtype
from core.graph.ir import Graph
from templates.gpu import GpuSpec
from templates.types import Residence
from templates.workload import Chain, Workload


@dataclass(frozen=True)
class Verdict:
    """Whether nodes could be one region: its kind and what it would be, or why not and the node in the way.

    `workload` is what would be tuned, where the region is of a tuned kind.
    """

    legal: bool
    kind: Kind | None
    reason: str
    offending_node: str = ""
    workload: Workload | None = None


def check(graph: Graph, plan: FusionPlan, nodes: Sequence[str], gpu: GpuSpec | None = None) -> Verdict:
    """Whether exactly these nodes could run as one kernel, and the plan lets them; on the GPU, if one is given.

    Never raises: unknown names are a reason too.
    """
    made = derive(graph, nodes, plan.dtype, native_dtype(graph))
    if isinstance(made, Objection):
        return Verdict(False, None, made.reason, made.node)
    held = next(((r, n) for n in nodes if (r := plan.region_of(n)) is not None and r.pinned), None)
    if held is not None and set(held[0].nodes) != set(nodes):
        return Verdict(False, None, f"{held[0].id} is pinned; unpin it first", held[1])
    ban = banned(made.nodes, [frozenset(b) for b in plan.forbidden])
    if ban is not None:
        return Verdict(False, None, f"{ban}; allow it first", made.nodes[-1])
    circle = _circle(graph, plan, made.nodes)
    if circle is not None:
        return Verdict(False, None, circle, made.nodes[0])
    if gpu is not None and isinstance(made.workload, Chain) and (lacking := unserved(made.workload, gpu)) is not None:
        return Verdict(False, None, f"no kernel for this chain on {gpu.name}: {lacking}", made.nodes[-1])
    return Verdict(True, made.kind, made.reason, workload=made.workload)


def fuse(plan: FusionPlan, graph: Graph, nodes: Sequence[str]) -> FusionPlan:
    """The plan with these nodes as one region. Regions that lose a node are planned anew; the others stay.

    Raises PlanError with the reason and the node if the nodes can't be one region.
    """
    verdict = check(graph, plan, nodes)
    if not verdict.legal:
        raise PlanError(f"{' + '.join(nodes)} can't be one region: {verdict.reason}")
    return replan(plan, graph, [tuple(nodes), *_untouched(plan, nodes)])


def split(plan: FusionPlan, graph: Graph, region_id: str) -> FusionPlan:
    """The plan with every node of the region kept alone. Raises PlanError if there is none, or it is pinned."""
    region = _unpinned(plan, region_id)
    return replan(plan, graph, [*((n,) for n in region.nodes), *_untouched(plan, region.nodes)])


def reset(plan: FusionPlan, graph: Graph) -> FusionPlan:
    """Planned automatically again, but for pinned regions; what is forbidden stays so."""
    return replan(plan, graph, [r.nodes for r in plan.regions if r.pinned])


def pin(plan: FusionPlan, region_id: str, pinned: bool = True) -> FusionPlan:
    """The plan with the region pinned, or no longer. Raises PlanError if there is no such region."""
    region = _region(plan, region_id)
    return with_marks(plan, {region.nodes: Mark(pinned, region.residence)})


def forbid(plan: FusionPlan, graph: Graph, nodes: Sequence[str]) -> FusionPlan:
    """The plan in which no region holds all these nodes; one that does is planned anew.

    Raises PlanError if that one is pinned, if there are fewer than two nodes, or if a node is not in the model.
    """
    wanted = frozenset(nodes)
    holder = next((r for r in plan.regions if wanted <= set(r.nodes)), None)
    if holder is not None:
        _unpinned(plan, holder.id)
    kept = [r.nodes for r in plan.regions if r is not holder]
    return replan(plan, graph, kept, forbidden=[*plan.forbidden, tuple(wanted)])


def bans_at(plan: FusionPlan, nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """The forbidden fusions that name one of these nodes."""
    return [ban for ban in plan.forbidden if not set(nodes).isdisjoint(ban)]


def allow(plan: FusionPlan, graph: Graph, nodes: Sequence[str]) -> FusionPlan:
    """The plan without the forbidden fusions that name one of these nodes; what they kept apart is planned anew."""
    lifted = bans_at(plan, nodes)
    apart = {n for ban in lifted for n in ban}
    kept = [r.nodes for r in plan.regions if r.pinned or apart.isdisjoint(r.nodes)]
    return replan(plan, graph, kept, forbidden=[ban for ban in plan.forbidden if ban not in lifted])


def place(plan: FusionPlan, region_id: str, residence: Residence | None, gpu: GpuSpec | None = None) -> FusionPlan:
    """The plan with the region's intermediate in registers or shared memory; None: wherever it is fastest.

    Raises PlanError with the reason if no kernel keeps it there on the GPU, or on any GPU if none is given.
    """
    region = _region(plan, region_id)
    reason = refused(region, residence, gpu) if residence is not None else None
    if reason is not None:
        raise PlanError(reason)
    return with_marks(plan, {region.nodes: Mark(region.pinned, residence)})


def _region(plan: FusionPlan, region_id: str) -> Region:
    region = next((r for r in plan.regions if r.id == region_id), None)
    if region is None:
        raise PlanError(f"the plan has no region {region_id}")
    return region


def _unpinned(plan: FusionPlan, region_id: str) -> Region:
    region = _region(plan, region_id)
    if region.pinned:
        raise PlanError(f"{region_id} is pinned", "unpin it first")
    return region


def _circle(graph: Graph, plan: FusionPlan, nodes: Sequence[str]) -> str | None:
    """Why the nodes would wait for a region that stays and waits for them: possible where both have several results."""
    others = _untouched(plan, nodes)
    owner = {n: region for region in others for n in region}
    if not waits_for_itself(graph, nodes, owner):
        return None
    for region in others:
        if not waits_for_itself(graph, nodes, {n: r for n, r in owner.items() if r is not region}):
            return (
                f"{listed(region)} run together, need one of its results and make what it reads; take them apart first"
            )
    return "regions that stay need one of its results and make what it reads; take them apart first"


def _untouched(plan: FusionPlan, nodes: Sequence[str]) -> list[tuple[str, ...]]:
    return [r.nodes for r in plan.regions if set(nodes).isdisjoint(r.nodes)]
