"""Opening a model: import, plan and layout, all off the GUI thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.graph.model import GraphModel, graph_model
from app.graph.placement import Placement, place
from core.errors import ModelError
from core.fusion.files import plan_from
from core.fusion.plan import FusionPlan
from core.graph.ir import Graph
from core.graph.repeats import find_repeats
from core.importer.samples import sample_names
from core.session import Session, open_model
from templates.types import DType

FOLDED_FROM = 1500  # nodes: a larger model opens with its repeated blocks folded


@dataclass(frozen=True)
class Request:
    """Which model, and how. `batch` None is the model's own; `plan` is a plan file's content, `view` a project's."""

    source: str
    batch: int | None
    dtype: DType
    plan: Mapping[str, Any] | None = None
    view: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Opened:
    """`model` is how the graph is drawn at first; `placement` is of it. `plan` is set where it is not the automatic."""

    session: Session
    model: GraphModel
    placement: Placement
    plan: FusionPlan | None = None
    view: Mapping[str, Any] = field(default_factory=dict)


def load(request: Request, aspect: float, check: Callable[[], None]) -> Opened:
    """`aspect` is the canvas's width over height. Raises ModelError or PlanError, and what `check` raises."""
    source = request.source
    if source not in sample_names() and not Path(source).is_file():
        raise ModelError(
            f"there is no model {source}", f"open an ONNX file, or a built-in sample: {', '.join(sample_names())}"
        )
    session = open_model(source, request.batch, request.dtype)
    check()
    plan = plan_from(request.plan, session.graph, request.dtype, "of the project") if request.plan else None
    folded = bool(request.view.get("folded", len(session.graph.nodes) > FOLDED_FROM))
    model, placement = shape(session.graph, plan or session.plan, folded, aspect, check)
    return Opened(session, model, placement, plan, request.view)


def shape(
    graph: Graph, plan: FusionPlan, folded: bool, aspect: float, check: Callable[[], None]
) -> tuple[GraphModel, Placement]:
    """The boxes, with repeated blocks folded or not, and where they lie. Raises what `check` raises."""
    model = graph_model(graph, find_repeats(graph) if folded else ())
    region = model.region_index(plan)
    bonds = {(a, b) for a, b in model.edges if region[a] == region[b] >= 0}
    return model, place(model.widths, model.edges, aspect, check=check, bonds=bonds)
