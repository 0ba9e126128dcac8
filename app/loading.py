"""Opening a model: import, plan and layout, all off the GUI thread."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.graph.model import graph_model
from app.graph.placement import Placement, place
from core.errors import ModelError
from core.session import Session, open_model
from templates.types import DType


@dataclass(frozen=True)
class Opened:
    session: Session
    placement: Placement


def load(
    source: str, batch: int | None, dtype: DType, plan: str | None, aspect: float, check: Callable[[], None]
) -> Opened:
    """Raises ModelError or PlanError with the file's name, and what `check` raises."""
    if not Path(source).exists() and ("/" in source or "." in source):
        raise ModelError(f"there is no file {source}", "open another file, or name a built-in sample such as resnet18")
    session = open_model(source, batch, dtype, plan)
    check()
    model = graph_model(session.graph)
    return Opened(session, place(model.widths, model.edges, aspect, check=check))
