"""Edits of the plan as undo steps, and what a selection allows, with the reason where it does not."""

from dataclasses import dataclass

from PySide6.QtGui import QUndoCommand

from app.document import Document
from app.format import micros
from core.errors import PlanError
from core.fusion import edit
from core.fusion.plan import FusionPlan
from templates.workload import Workload


class PlanEdit(QUndoCommand):
    """One change of the plan."""

    def __init__(self, document: Document, text: str, plan: FusionPlan) -> None:
        super().__init__(text)
        self.document, self.before, self.after = document, document.plan, plan

    def redo(self) -> None:
        self.document.set_plan(self.after)

    def undo(self) -> None:
        self.document.set_plan(self.before)


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
    verdict = edit.check(document.graph, document.plan, names)
    kind = verdict.kind.replace("_", " ") if verdict.kind else ""
    price = _price(document, verdict.workload, names) if verdict.legal else ""
    return Offer(verdict.legal, verdict.reason, verdict.offending_node, kind, price)


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
    if len(region.nodes) < 2:
        return Offer(False, f"{region.id} is a single node.")
    return Offer(True, f"Run the {len(region.nodes)} nodes of {region.id} one by one.")


def reset_offer(document: Document) -> Offer:
    return Offer(True, "Plan every region automatically again.")


def fuse(document: Document) -> None:
    """Raises PlanError if the selection can't be one region."""
    names = document.selected_nodes()
    _push(document, f"fuse {len(names)} nodes", edit.fuse(document.plan, document.graph, names))


def split(document: Document) -> None:
    """Raises PlanError if the selection lies in no region."""
    region = document.selected_region()
    if region is None:
        raise PlanError("the selection lies in more than one region", "select nodes of one region")
    _push(document, f"split {region.id}", edit.split(document.plan, document.graph, region.id))


def reset(document: Document) -> None:
    _push(document, "reset the plan", edit.reset(document.plan, document.graph))


def replace(document: Document, plan: FusionPlan, text: str) -> None:
    """A plan that was loaded from a file."""
    _push(document, text, plan)


def _push(document: Document, text: str, plan: FusionPlan) -> None:
    if plan != document.plan:
        document.undo.push(PlanEdit(document, text, plan))
