"""Planning again without losing what the user decided: forbidden fusions, pins, and where intermediates stay."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from core.errors import PlanError
from core.fusion.plan import FusionPlan, Region
from core.fusion.planner import plan as make_plan
from core.fusion.residence import no_pair
from core.graph.ir import Graph
from templates.types import DType, Residence
from templates.workload import Pair


@dataclass(frozen=True)
class Mark:
    """What the user decided of one region beside its nodes."""

    pinned: bool = False
    residence: Residence | None = None


def replan(
    plan: FusionPlan,
    graph: Graph,
    groups: Iterable[Sequence[str]],
    dtype: DType | None = None,
    forbidden: Sequence[Sequence[str]] | None = None,
) -> FusionPlan:
    """The plan of these groups (see planner.plan); regions of the same nodes as before keep their marks.

    `forbidden` None: what the plan forbids. Raises PlanError as the planner does.
    """
    bans = plan.forbidden if forbidden is None else forbidden
    made = make_plan(graph, dtype or plan.dtype, list(groups), bans)
    return with_marks(made, {r.nodes: mark for r in plan.regions if (mark := Mark(r.pinned, r.residence)) != Mark()})


def with_marks(plan: FusionPlan, marks: Mapping[tuple[str, ...], Mark]) -> FusionPlan:
    """The plan with the marks of the regions that have exactly these nodes, in graph order.

    Raises PlanError if a region that is no pair is told where to keep its intermediate.
    """
    if not marks:
        return plan
    return replace(plan, regions=tuple(_marked(r, marks[r.nodes]) if r.nodes in marks else r for r in plan.regions))


def _marked(region: Region, mark: Mark) -> Region:
    if isinstance(region.workload, Pair):
        workload = replace(region.workload, residence=mark.residence)
        return replace(region, pinned=mark.pinned, workload=workload)
    if mark.residence is not None:
        raise PlanError(no_pair(region))
    return replace(region, pinned=mark.pinned)
