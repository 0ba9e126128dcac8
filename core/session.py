"""A model that is open: its graph and its plan, as every verb and the window start from."""

from dataclasses import dataclass
from pathlib import Path

from core.fusion.files import load_plan
from core.fusion.plan import FusionPlan
from core.fusion.planner import plan as make_plan
from core.fusion.prepare import prepare
from core.graph.ir import Graph
from templates.types import DType


@dataclass(frozen=True)
class Session:
    """`graph` is the prepared graph that `plan` covers. `source` is the path or built-in name as the user gave it.

    `batch` is the batch size asked for, None for the model's own.
    """

    graph: Graph
    plan: FusionPlan
    name: str
    source: str
    batch: int | None
    dtype: DType


def open_model(
    model: str | Path, batch: int | None = None, dtype: DType = DType.F16, plan_path: str | Path | None = None
) -> Session:
    """Import, prepare and plan a model (a path or a built-in name).

    Raises ModelError if the model can't be read, PlanError if the plan file is not legal for it.
    """
    from core.importer.load import load_graph

    graph = prepare(load_graph(model, batch))
    plan = load_plan(plan_path, graph, dtype) if plan_path is not None else make_plan(graph, dtype)
    return Session(graph, plan, graph.name, str(model), batch, dtype)
