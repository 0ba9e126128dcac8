"""Opening a model: import, plan and layout, all off the GUI thread."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.graph.model import graph_model
from app.graph.placement import Placement, place
from core.errors import ModelError
from core.importer.samples import sample_names
from core.session import Session, open_model
from templates.types import DType


@dataclass(frozen=True)
class Request:
    """Which model, and how. `batch` None is the model's own."""

    source: str
    batch: int | None
    dtype: DType


@dataclass(frozen=True)
class Opened:
    session: Session
    placement: Placement


def load(request: Request, aspect: float, check: Callable[[], None]) -> Opened:
    """`aspect` is the canvas's width over height. Raises ModelError or PlanError, and what `check` raises."""
    source = request.source
    if source not in sample_names() and not Path(source).is_file():
        raise ModelError(
            f"there is no model {source}", f"open an ONNX file, or a built-in sample: {', '.join(sample_names())}"
        )
    session = open_model(source, request.batch, request.dtype)
    check()
    model = graph_model(session.graph)
    region = model.region_index(session.plan)
    bonds = {(a, b) for a, b in model.edges if region[a] == region[b] >= 0}
    return Opened(session, place(model.widths, model.edges, aspect, check=check, bonds=bonds))
