"""Opening a model: import, plan and layout, all off the GUI thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.graph.drawing import Drawing, draw
from app.graph.model import GraphModel, graph_model
from app.graph.placement import Placement, place
from core.errors import ModelError
from core.fusion.files import plan_from
from core.fusion.plan import FusionPlan
from core.graph.ir import Graph
from core.graph.repeats import Repeat, find_repeats
from core.importer.samples import sample_names
from core.session import Session, open_model
from templates.types import DType

FOLDED_FROM = 1500  # nodes: a larger model opens with its repeated blocks folded


@dataclass(frozen=True)
class Request:
    """Which model, and how. `batch` None is the model's own; the rest is of a project (core.project)."""

    source: str
    batch: int | None
    dtype: DType
    plan: Mapping[str, Any] | None = None
    view: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plan_name: str = ""


@dataclass(frozen=True)
class Shape:
    """How a graph is drawn: its boxes, where they lie, and what the painter needs."""

    model: GraphModel
    placement: Placement
    drawing: Drawing


@dataclass(frozen=True)
class Opened:
    """`full` has every node a box, `shape` is what is shown first. `plan` is set where it is not the automatic one;
    `kept` are the plans that a project keeps by name.
    """

    session: Session
    full: GraphModel
    repeats: tuple[Repeat, ...]
    shape: Shape
    plan: FusionPlan | None = None
    view: Mapping[str, Any] = field(default_factory=dict)
    kept: dict[str, FusionPlan] = field(default_factory=dict)
    plan_name: str = ""


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
    kept = {n: plan_from(p, session.graph, request.dtype, f"{n} of the project") for n, p in request.kept.items()}
    folded = bool(request.view.get("folded", len(session.graph.nodes) > FOLDED_FROM))
    opened = open_session(session, plan, folded, aspect, check, request.view)
    return replace(opened, kept=kept, plan_name=request.plan_name if request.plan_name in kept else "")


def open_session(
    session: Session,
    plan: FusionPlan | None,
    folded: bool,
    aspect: float,
    check: Callable[[], None],
    view: Mapping[str, Any] | None = None,
) -> Opened:
    """Everything of a session that is worked out before the window shows it. Raises what `check` raises."""
    full, repeats = graph_model(session.graph), find_repeats(session.graph)
    check()
    made = shape(session.graph, plan or session.plan, repeats if folded else (), aspect, check, full)
    return Opened(session, full, repeats, made, plan, view or {})


def shape(
    graph: Graph,
    plan: FusionPlan,
    folds: tuple[Repeat, ...],
    aspect: float,
    check: Callable[[], None],
    full: GraphModel | None = None,
) -> Shape:
    """The boxes, with the `folds` folded, and where they lie. Raises what `check` raises."""
    model = full if full is not None and not folds else graph_model(graph, folds)
    region = model.region_index(plan)
    bonds = {(a, b) for a, b in model.edges if region[a] == region[b] >= 0}
    placement = place(model.widths, model.edges, aspect, check=check, bonds=bonds)
    return Shape(model, placement, draw(placement))


def warm_up() -> None:
    """Import what opening a model needs: half of the time of the first one.

    What is imported then lives as long as the window. The collector looks at it no more: each look stalls the loop.
    """
    import gc

    import numpy.random  # noqa: F401
    import onnx  # noqa: F401

    import core.importer.load
    import core.importer.samples.builder  # noqa: F401

    gc.freeze()
