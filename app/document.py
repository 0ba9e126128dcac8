"""One open model: its graph, plan, selection and run. Panels listen to its signals and read; only it changes."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoStack

from app.charts.picture import Whole
from app.estimates import Estimate
from app.graph.drawing import Drawing
from app.graph.model import GraphModel, graph_model
from app.graph.placement import Placement
from app.run import Changes, Run, WorkloadRun
from core.fusion.edit import Verdict
from core.fusion.plan import FusionPlan, LeftAlone, Region
from core.graph.repeats import Repeat
from core.session import Session
from core.tuner.events import Event
from templates.gpu import GpuSpec

if TYPE_CHECKING:
    from app.loading import Opened, Shape
    from app.window import MainWindow

MOST_BACK = 100  # selections to go back to


@dataclass(frozen=True)
class Plans:
    """The plan as it stands, the kept plan that it started from ("" for the automatic one), and the kept ones."""

    current: FusionPlan
    name: str = ""
    kept: dict[str, FusionPlan] = field(default_factory=dict)


class Document(QObject):
    """The plan changes through the undo stack (app.edits); a changed plan keeps what was tuned for equal workloads."""

    plan_changed = Signal()
    selection_changed = Signal()
    run_changed = Signal(object)  # Changes
    estimates_changed = Signal()
    exported = Signal()  # `whole` is there
    shape_changed = Signal()  # repeats were folded or unfolded: `model` and `placement` are others

    def __init__(self, session: Session, parent: QObject | None = None, opened: "Opened | None" = None) -> None:
        super().__init__(parent)
        self.session = session
        self.graph = session.graph
        self.full: GraphModel = opened.full if opened is not None else graph_model(session.graph)
        self.repeats: tuple[Repeat, ...] = opened.repeats if opened is not None else ()
        self.model: GraphModel = opened.shape.model if opened is not None else self.full
        self.placement: Placement | None = opened.shape.placement if opened is not None else None
        self.drawing: Drawing | None = opened.shape.drawing if opened is not None else None
        self.undo = QUndoStack(self)
        self.run = Run()
        self.estimates: dict[str, Estimate] = {}  # by workload key
        self.whole: tuple[FusionPlan, Whole] | None = None  # the model as one graph, timed when the plan was exported
        self.baseline: Run | None = None  # the run that this one is compared with
        self._replaced: tuple[Run, Run | None] | None = None  # run and baseline from before the last start
        self.selection: tuple[int, ...] = ()
        self._region: Region | None = None  # chosen as a whole; its nodes may be folded away
        # Of thousands of nodes the names are worked out once for each selection, though every panel asks.
        self._named: tuple[tuple[tuple[int, ...], GraphModel], list[str]] = (self.selection, self.model), []
        self._past: list[tuple[str, ...]] = []
        self._future: list[tuple[str, ...]] = []
        self.automatic = session.plan
        self.project: Path | None = None  # the file that it was opened from or saved to
        self.place: tuple[float, float, float] | None = None  # zoom and centre while another tab is shown
        self.wanted_view: dict[str, Any] = {}  # of the project it came from, until it is first shown
        self.gpu: GpuSpec | None = None  # what is aimed at
        self.judged: tuple[tuple[FusionPlan, list[str], GpuSpec | None], Verdict] | None = None  # see app.edits
        self.plans = Plans(session.plan)
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

    def view_state(self, window: "MainWindow") -> dict[str, Any]:
        """What a project keeps of how it is looked at."""
        view = window.canvas.view
        shown = view.document is self
        return {
            "selection": self.selected_nodes(),
            "place": list(place) if (place := view.place if shown else self.place) else None,
            "mode": str(window.canvas.legend.current),
            "folded": bool(self.model.folds),
        }

    def set_plans(self, plans: Plans) -> None:
        self.plans = plans
        self._set_plan(plans.current)
        self.plan_changed.emit()

    @property
    def plan_title(self) -> str:
        """Which plan this is: "automatic", a kept plan's name, or that with what tells it was changed since."""
        name = self.plans.name
        start = self.plans.kept.get(name) if name else self.automatic
        if self.plan == start:
            return name or "automatic"
        return f"{name}, edited" if name else "edited"

    def _set_plan(self, plan: FusionPlan) -> None:
        self.plan = plan
        self._region = None
        self.region_of_box = self.model.region_index(plan)
        self.left_alone: dict[str, LeftAlone] = {a.node: a for a in plan.left_alone}

    def set_shape(self, shape: "Shape") -> None:
        """Show the graph by another model of it; the selection stays as far as it can."""
        names = self.selected_nodes()
        self.model, self.placement, self.drawing = shape.model, shape.placement, shape.drawing
        self.region_of_box = shape.model.region_index(self.plan)
        self.selection, self._region = (), None
        self.shape_changed.emit()
        self.select_names(names)

    def select(self, boxes: "list[int] | tuple[int, ...]") -> None:
        self._select(tuple(dict.fromkeys(boxes)), None)

    def select_names(self, names: "list[str] | tuple[str, ...]") -> None:
        self.select([self.model.index[n] for n in names if n in self.model.index])

    def select_region(self, region: Region) -> None:
        self._select(tuple(dict.fromkeys(self.model.index[n] for n in region.nodes)), region)

    def _select(self, boxes: tuple[int, ...], region: Region | None) -> None:
        if boxes == self.selection and region == self._region:
            return
        if self.selection:
            self._past = [*self._past[1 - MOST_BACK :], tuple(self.selected_nodes())]
            self._future.clear()
        self.selection, self._region = boxes, region
        self.selection_changed.emit()

    def back(self) -> None:
        """Select what was selected before."""
        self._step(self._past, self._future)

    def forward(self) -> None:
        self._step(self._future, self._past)

    def _step(self, come_from: list[tuple[str, ...]], go_to: list[tuple[str, ...]]) -> None:
        here = tuple(self.selected_nodes())
        while come_from:
            names = come_from.pop()
            if names and names != here:
                go_to.append(here)
                boxes = tuple(dict.fromkeys(self.model.index[n] for n in names if n in self.model.index))
                self.selection, self._region = boxes, None
                self.selection_changed.emit()
                return

    @property
    def can_go_back(self) -> bool:
        return bool(self._past)

    @property
    def can_go_forward(self) -> bool:
        return bool(self._future)

    def neighbours(self, downwards: bool) -> list[int]:
        """Boxes that read what the selection makes, or that make what it reads."""
        chosen = set(self.selection)
        found = [b if downwards else a for a, b in self.model.edges if (a if downwards else b) in chosen]
        return [i for i in dict.fromkeys(found) if i not in chosen]

    def selected_nodes(self) -> list[str]:
        """Operators of the selection, in graph order; of folded repeats all of them."""
        if self._region is not None:
            return list(self._region.nodes)
        asked = (self.selection, self.model)
        if self._named[0][0] is not self.selection or self._named[0][1] is not self.model:
            boxes = [self.model.boxes[i] for i in sorted(self.selection)]
            self._named = asked, [name for b in boxes for name in ((b.name,) if b.node is not None else b.members)]
        return list(self._named[1])

    def selected_region(self) -> Region | None:
        """The one region that was chosen, or that all selected operators lie in."""
        if self._region is not None:
            return self._region
        found = {self.region_of_box[i] for i in self.selection}
        at = found.pop() if len(found) == 1 else -1
        return self.plan.regions[at] if at >= 0 else None

    def selected_regions(self) -> list[Region]:
        """The regions that selected operators lie in, in the plan's order."""
        chosen = {r.id for n in self.selected_nodes() if (r := self.plan.region_of(n)) is not None}
        return [r for r in self.plan.regions if r.id in chosen]

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

    def set_whole(self, plan: FusionPlan, us: float, gpu: str) -> None:
        """An exported library of the plan was verified and timed on a GPU, by the driver's name."""
        self.whole = plan, Whole(us, f"measured on {gpu} by the export")
        self.exported.emit()

    def start_run(self, replayed: bool, only: Collection[str] | None = None) -> None:
        """The run so far becomes the baseline, if it has figures.

        A run that begins `only` some workloads from nothing keeps the figures of the others.
        """
        before = self.run
        self._replaced = (before, self.baseline) if before.workloads else None
        if any(w.best for w in before.workloads.values()):
            self.baseline = before
        self.run = Run(replayed)
        if only is not None and before.replayed == replayed:
            self.run.carry(before, only)
        self.run_changed.emit(Changes(started=True, progress=True, log=True))

    def take_back_run(self) -> None:
        """The run that was started told nothing: the one before is shown again."""
        if self._replaced is not None and not self.run.told:
            self.run, self.baseline = self._replaced
            self.run_changed.emit(Changes(started=True, finished=True, progress=True, log=True))
        self._replaced = None

    def apply(self, events: "list[Event]") -> None:
        self.run_changed.emit(self.run.apply(events))
