"""A model that is open: its graph and its plan, as every verb and the window start from."""

from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import ModelError
from core.fusion.files import load_plan
from core.fusion.plan import FusionPlan
from core.fusion.planner import plan as make_plan
from core.fusion.prepare import prepare
from core.fusion.replan import replan
from core.graph.ir import Graph
from templates.types import DType


@dataclass(frozen=True)
class Session:
    """`graph` is the prepared graph that `plan` covers. `source` is the path or built-in name as the user gave it.

    `batch` is the batch size asked for, None for the model's own. `notes`: what `fitted` did, a sentence each.
    """

    graph: Graph
    plan: FusionPlan
    name: str
    source: str
    batch: int | None
    dtype: DType
    notes: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What finds the model again from anywhere: a built-in's name, or the file's absolute path."""
        from core.importer.samples import sample_names

        return self.source if self.source in sample_names() else str(Path(self.source).absolute())


def open_model(
    model: str | Path,
    batch: int | None = None,
    dtype: DType = DType.F16,
    plan_path: str | Path | None = None,
    fit_range: bool = False,
) -> Session:
    """Import, prepare and plan a model (a path or a built-in name).

    `fit_range`: see `fitted`. Workloads do not depend on it, so only what runs the model's own weights pays for it.
    Raises ModelError if the model can't be read, PlanError if the plan file is not legal for it.
    """
    from core.importer.load import load_graph

    graph = prepare(load_graph(model, batch))
    plan = load_plan(plan_path, graph, dtype) if plan_path is not None else make_plan(graph, dtype)
    session = Session(graph, plan, graph.name, str(model), batch, dtype)
    return fitted(session) if fit_range else session


def fitted(session: Session) -> Session:
    """The session with activations that leave float16's range scaled by powers of two; the same one if there are none.

    Regions stay as they are. Runs the model once on the CPU (0.1 to 8 s) unless the user's cache knows its range; other
    types than float16 hold every value of float32 models.
    """
    from core.half_range import in_half_range

    if session.dtype != DType.F16:
        return session
    graph, notes = in_half_range(session.graph, lambda: _smallest(session))
    plan = session.plan
    if graph is not session.graph:
        plan = replan(plan, graph, [region.nodes for region in plan.regions])
    return replace(session, graph=graph, plan=plan, notes=notes)


def _smallest(session: Session) -> Graph:
    """The model at batch 1 if its tensors have the same names, else the graph itself."""
    from core.importer.load import load_graph

    try:
        small = prepare(load_graph(session.source, 1))
    except ModelError:  # its batch is fixed, or the file is no longer there: the graph at hand serves as well
        return session.graph
    same = [n.outputs for n in small.nodes] == [n.outputs for n in session.graph.nodes]
    return small if same else session.graph
