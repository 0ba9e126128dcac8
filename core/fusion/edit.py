"""Edits of a plan: what the window and plan files do to it. Each gives a new plan and leaves the rest as it was."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import PlanError
from core.fusion.derive import Objection, derive
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan as make_plan
from core.fusion.values import native_dtype
from core.graph.ir import Graph
from templates.workload import Workload


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


def check(graph: Graph, plan: FusionPlan, nodes: Sequence[str]) -> Verdict:
    """Whether exactly these nodes could run as one kernel. Never raises: unknown names are a reason too."""
    made = derive(graph, nodes, plan.dtype, native_dtype(graph))
    if isinstance(made, Objection):
        return Verdict(False, None, made.reason, made.node)
    return Verdict(True, made.kind, made.reason, workload=made.workload)


def fuse(plan: FusionPlan, graph: Graph, nodes: Sequence[str]) -> FusionPlan:
    """The plan with these nodes as one region. Regions that lose a node are planned anew; the others stay.

    Raises PlanError with the reason and the node if the nodes can't be one region.
    """
    wanted = set(nodes)
    kept = [r.nodes for r in plan.regions if wanted.isdisjoint(r.nodes)]
    return make_plan(graph, plan.dtype, [tuple(nodes), *kept])


def split(plan: FusionPlan, graph: Graph, region_id: str) -> FusionPlan:
    """The plan with every node of the region kept alone. Raises PlanError if there is no such region."""
    region = next((r for r in plan.regions if r.id == region_id), None)
    if region is None:
        raise PlanError(f"the plan has no region {region_id}")
    kept = [r.nodes for r in plan.regions if r is not region]
    return make_plan(graph, plan.dtype, [*((n,) for n in region.nodes), *kept])


def reset(plan: FusionPlan, graph: Graph) -> FusionPlan:
    """The automatic plan again."""
    return make_plan(graph, plan.dtype)
