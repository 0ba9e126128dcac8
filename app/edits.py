"""Edits of the plan as undo steps, and what a selection allows, with the reason where it does not."""

from dataclasses import dataclass, replace

from PySide6.QtGui import QUndoCommand

from app.document import Document, Plans
from app.format import micros
from app.graph.model import box_line
from core.errors import PlanError
from core.fusion import edit
from core.fusion.files import plan_data
from core.fusion.plan import FusionPlan, Region
from core.fusion.residence import NAMES, no_pair, refused
from templates.types import Residence
from templates.workload import Pair, Workload


class PlanEdit(QUndoCommand):
    """One change of the plans."""

    def __init__(self, document: Document, text: str, plans: Plans) -> None:
        super().__init__(text)
        self.document, self.before, self.after = document, document.plans, plans

    def redo(self) -> None:
        self.document.set_plans(self.after)

    def undo(self) -> None:
        self.document.set_plans(self.before)


@dataclass(frozen=True)
class Offer:
    """An action and whether it can be done now; `reason` says why not, `offending` is the node in the way.

    `kind` is what a fusion would be, `price` what is known of its time and of its parts'.
    """

    possible: bool
    reason: str
    offending: str = ""
    kind: str = ""
    price: str = ""


def fuse_offer(document: Document) -> Offer:
    names = document.selected_nodes()
    if len(names) < 2:
        return Offer(False, "Select two or more nodes to fuse them: shift-click, or drag a frame.")
    if (region := document.selected_region()) is not None and set(names) == set(region.nodes):
        return Offer(False, f"These nodes already are the region {region.id}.")
    verdict = _verdict(document, names)
    kind = verdict.kind.replace("_", " ") if verdict.kind else ""
    price = _price(document, verdict.workload, names) if verdict.legal else ""
    return Offer(verdict.legal, verdict.reason, verdict.offending_node, kind, price)


def _verdict(document: Document, names: list[str]) -> edit.Verdict:
    """Judged once for each selection, though the actions and the details both ask."""
    asked = (document.plan, names, document.gpu)
    if document.judged is None or document.judged[0][0] is not document.plan or document.judged[0][1:] != asked[1:]:
        document.judged = (asked, edit.check(document.graph, document.plan, names, document.gpu))
    return document.judged[1]


def _price(document: Document, workload: Workload | None, names: list[str]) -> str:
    """The time of the fused region and of what runs in its place now, each with where it comes from."""
    whole = _known(document, workload) if workload is not None else None
    if whole is None:
        return "Not measured."
    parts = list(dict.fromkeys(r for n in names if (r := document.plan.region_of(n)) is not None))
    tuned = [r.workload for r in parts if r.workload is not None]
    times = [t for w in tuned if (t := _known(document, w)) is not None and t[1] == whole[1]]
    said = f"{micros(whole[0])} ({whole[1]})"
    if tuned and len(times) == len(tuned):
        others = len(parts) - len(tuned)
        besides = f", and {others} more that nobody timed" if others else ""
        said += f"; what runs in its place now takes {micros(sum(us for us, _ in times))}{besides}"
    return f"{said}."


def _known(document: Document, workload: Workload) -> tuple[float, str] | None:
    run, estimate = document.run.workloads.get(workload.key), document.estimates.get(workload.key)
    if run is not None and run.best is not None:
        return run.best.us, document.run.provenance
    return (estimate.us, "estimated") if estimate is not None else None


def split_offer(document: Document) -> Offer:
    region = document.selected_region()
    if region is None:
        return Offer(False, "Select nodes of one region to split it.")
    if region.pinned:
        return Offer(False, f"{region.id} is pinned; unpin it first.")
    if len(region.nodes) < 2:
        return Offer(False, f"{region.id} is a single node.")
    return Offer(True, f"Run the {len(region.nodes)} nodes of {region.id} one by one.")


def reset_offer(document: Document) -> Offer:
    if document.plan == document.automatic:
        return Offer(False, "The plan is the automatic one.")
    pins, bans = sum(r.pinned for r in document.plan.regions), len(document.plan.forbidden)
    held = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((pins, "pinned region"), (bans, "forbidden fusion")) if n]
    stay = f" {' and '.join(held)} stay{'s' * (pins + bans == 1)}." if held else ""
    return Offer(True, f"Plan every region automatically again.{stay}")


def pin_offer(document: Document) -> Offer:
    regions = document.selected_regions()
    if not regions:
        return Offer(False, "Select the nodes of a region to pin it.")
    ids = box_line([r.id for r in regions])
    if all(r.pinned for r in regions):
        return Offer(True, f"Let planning change {ids} again.")
    return Offer(True, f"Keep {ids} as it is: no planning and no other fusion changes it.")


def forbid_offer(document: Document) -> Offer:
    names = document.selected_nodes()
    if len(names) < 2:
        return Offer(False, "Select a region, or two or more nodes, that may not be fused.")
    if tuple(names) in document.plan.forbidden:
        return Offer(False, f"Fusing {box_line(names, 3)} is forbidden already.")
    region = document.selected_region()
    if region is not None and region.pinned and set(region.nodes) == set(names):
        return Offer(False, f"{region.id} is pinned; unpin it first.")
    return Offer(True, f"No region may hold all of {box_line(names, 3)}; planning never fuses them again.")


def allow_offer(document: Document) -> Offer:
    bans = edit.bans_at(document.plan, document.selected_nodes())
    if not bans:
        return Offer(False, "No forbidden fusion names a selected node.")
    return Offer(True, "Allow again: " + "; ".join(" + ".join(ban) for ban in bans))


def place_offer(document: Document, residence: Residence | None) -> Offer:
    region = document.selected_region()
    if region is None:
        return Offer(False, "Select a persistent region: a pair of products in one kernel.")
    if not isinstance(region.workload, Pair):
        return Offer(False, f"{no_pair(region)}.")
    if residence is None:
        return Offer(True, f"Let tuning find where the intermediate of {region.id} is fastest.")
    reason = refused(region, residence, document.gpu)
    if reason is not None:
        return Offer(False, f"{reason}.")
    return Offer(True, f"Only kernels of {region.id} that keep the intermediate in {NAMES[residence]} count.")


def fuse(document: Document) -> None:
    """Raises PlanError if the selection can't be one region."""
    names = document.selected_nodes()
    _push(document, f"fuse {len(names)} nodes", edit.fuse(document.plan, document.graph, names))


def split(document: Document) -> None:
    """Raises PlanError if the selection lies in no region, or in a pinned one."""
    region = _one_region(document)
    _push(document, f"split {region.id}", edit.split(document.plan, document.graph, region.id))


def reset(document: Document) -> None:
    _push(document, "reset the plan", edit.reset(document.plan, document.graph))


def pin(document: Document) -> None:
    """Pin the regions of the selection; unpin them if all are pinned."""
    regions = document.selected_regions()
    wanted = not all(r.pinned for r in regions)
    plan = document.plan
    for region in regions:
        plan = edit.pin(plan, region.id, wanted)
    _push(document, f"{'pin' if wanted else 'unpin'} {box_line([r.id for r in regions])}", plan)


def forbid(document: Document) -> None:
    """Raises PlanError if the selection is less than two nodes, or a pinned region."""
    names = document.selected_nodes()
    _push(document, f"forbid fusing {len(names)} nodes", edit.forbid(document.plan, document.graph, names))


def allow(document: Document) -> None:
    names = document.selected_nodes()
    _push(document, "allow a forbidden fusion", edit.allow(document.plan, document.graph, names))


def place(document: Document, residence: Residence | None) -> None:
    """Raises PlanError if no kernel keeps the intermediate there."""
    region = _one_region(document)
    where = f"in {residence}" if residence else "where it is fastest"
    _push(document, f"keep {region.id} {where}", edit.place(document.plan, region.id, residence, document.gpu))


def replace_plan(document: Document, plan: FusionPlan, text: str) -> None:
    """A plan that was loaded from a file."""
    _push(document, text, plan)


# Plans that the user keeps -------------------------------------------------------------------------------------------


def keep(document: Document, name: str) -> None:
    """Keep the plan as it stands by this name; one that is kept by it already is replaced."""
    kept = document.plans.kept | {name: document.plan}
    _push_plans(document, f"keep the plan as {name}", replace(document.plans, kept=kept, name=name))


def switch(document: Document, name: str) -> None:
    """Take a kept plan; "" is the automatic one."""
    plan = document.plans.kept[name] if name else document.automatic
    _push_plans(document, f"switch to {name or 'the automatic plan'}", replace(document.plans, current=plan, name=name))


def rename(document: Document, old: str, new: str) -> None:
    kept = {new if name == old else name: plan for name, plan in document.plans.kept.items()}
    name = new if document.plans.name == old else document.plans.name
    _push_plans(document, f"rename {old}", replace(document.plans, kept=kept, name=name))


def drop(document: Document, name: str) -> None:
    """Forget a kept plan; the plan as it stands stays."""
    kept = {n: plan for n, plan in document.plans.kept.items() if n != name}
    now = "" if document.plans.name == name else document.plans.name
    _push_plans(document, f"delete the plan {name}", replace(document.plans, kept=kept, name=now))


def _one_region(document: Document) -> Region:
    region = document.selected_region()
    if region is None:
        raise PlanError("the selection lies in more than one region", "select nodes of one region")
    return region


def _push(document: Document, text: str, plan: FusionPlan) -> None:
    if plan_data(plan) != plan_data(document.plan):  # other reasons for the same regions are no edit
        _push_plans(document, text, replace(document.plans, current=plan))


def _push_plans(document: Document, text: str, plans: Plans) -> None:
    if plans != document.plans:
        document.undo.push(PlanEdit(document, text, plans))
