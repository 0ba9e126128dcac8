"""What a user may choose of a tuning job."""

from dataclasses import dataclass

from core.search.rank import DEFAULT_LIMIT

FINALISTS = 4


@dataclass(frozen=True)
class Options:
    """What a user may choose. `limit`: kernels a workload; `retune`: measure anew what records hold already."""

    budget_minutes: float | None = None
    limit: int = DEFAULT_LIMIT
    vendor: bool = True
    retune: bool = False
    finalists: int = FINALISTS
