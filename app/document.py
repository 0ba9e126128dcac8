"""One open model: its graph, plan, selection and run. Panels listen to its signals and read; only it changes."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoStack

from app.estimates import Estimate
from app.graph.model import GraphModel, graph_model
from app.run import Changes, Run, WorkloadRun
from core.fusion.plan import FusionPlan, LeftAlone, Region
from core.session import Session
from core.tuner.events import Event


class Document(QObject):
    """The plan changes through the undo stack (app.edits); a changed plan keeps what was tuned for equal workloads."""

    plan_changed = Signal()
    selection_changed = Signal()
    run_changed = Signal(object)  # Changes
    estimates_changed = Signal()

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.session = session
        self.graph = session.graph
        self.model: GraphModel = graph_model(session.graph)
        self.undo = QUndoStack(self)
        self.run = Run()
        self.estimates: dict[str, Estimate] = {}  # by workload key
        self.selection: tuple[int, ...] = ()
        self._set_plan(session.plan)

    @property
    def title(self) -> str:
        return self.session.name

    @property
    def path(self) -> Path | None:
        """The model's file; None for a built-in sample."""
        path = Path(self.session.source)
        return path if path.is_file() else None

    @property
    def edited(self) -> bool:
        return not self.undo.isClean()

    def set_plan(self, plan: FusionPlan) -> None:
        self._set_plan(plan)
        self.plan_changed.emit()

    def _set_plan(self, plan: FusionPlan) -> None:
        self.plan = plan
        self.region_of_box = self.model.region_index(plan)
        self.left_alone: dict[str, LeftAlone] = {a.node: a for a in plan.left_alone}

    def select(self, boxes: "list[int] | tuple[int, ...]") -> None:
        chosen = tuple(dict.fromkeys(boxes))
        if chosen != self.selection:
            self.selection = chosen
            self.selection_changed.emit()

    def select_region(self, region: Region) -> None:
        self.select([self.model.index[n] for n in region.nodes])

    def selected_nodes(self) -> list[str]:
        """Operators of the selection, in graph order."""
        return [self.model.boxes[i].name for i in sorted(self.selection) if self.model.boxes[i].node is not None]

    def selected_region(self) -> Region | None:
        """The one region that all selected operators lie in."""
        found = {self.region_of_box[i] for i in self.selection}
        at = found.pop() if len(found) == 1 else -1
        return self.plan.regions[at] if at >= 0 else None

    def region_at(self, box: int) -> Region | None:
        at = self.region_of_box[box]
        return self.plan.regions[at] if at >= 0 else None

    def workload_run(self, region: Region) -> WorkloadRun | None:
        """What the run knows of the region's workload, by the workload itself: it survives an edited plan."""
        return self.run.workloads.get(region.workload.key) if region.workload else None

    def current_session(self) -> Session:
        """The session with the plan as it stands now."""
        return replace(self.session, plan=self.plan)

    def estimate(self, region: Region) -> Estimate | None:
        """What the rules expect of the region; None where none was made or it is not tuned."""
        return self.estimates.get(region.workload.key) if region.workload else None

    def set_estimates(self, estimates: dict[str, Estimate]) -> None:
        self.estimates = estimates
        self.estimates_changed.emit()

    def start_run(self, replayed: bool) -> None:
        self.run = Run(replayed)
        self.run_changed.emit(Changes(started=True, progress=True, log=True))

    def apply(self, events: "list[Event]") -> None:
        self.run_changed.emit(self.run.apply(events))
