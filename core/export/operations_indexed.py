"""Operations whose reads or writes are decided by data or by tables, in terms of memory only (see `operations`)."""

from dataclasses import dataclass
from enum import StrEnum


class Combine(StrEnum):
    """What a scatter makes of an element and its update."""

    NONE = "none"  # the update
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True)
class GatherElements:
    """Row-major over `extents`: data (`sizes`) at the same place, along `axis` at the index. Inputs data, indices."""

    extents: tuple[int, ...]
    sizes: tuple[int, ...]
    axis: int


@dataclass(frozen=True)
class GatherNd:
    """(batch, tuples, inner) <- data (batch, *sizes, inner) at indices (batch, tuples, len(sizes))."""

    batch: int
    tuples: int
    sizes: tuple[int, ...]
    inner: int


@dataclass(frozen=True)
class ScatterElements:
    """The data (`sizes`) with updates (`extents`) put in, along `axis` at the index. Inputs data, indices, updates."""

    sizes: tuple[int, ...]
    extents: tuple[int, ...]
    axis: int
    combine: Combine


@dataclass(frozen=True)
class ScatterNd:
    """The data (*sizes, inner) with updates (tuples, inner) put in at the slices that indices (tuples, depth) name."""

    sizes: tuple[int, ...]
    tuples: int
    inner: int
    combine: Combine


@dataclass(frozen=True)
class CumSum:
    """Running sums down the middle of (outer, axis, inner)."""

    outer: int
    axis: int
    inner: int
    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class TopK:
    """The k largest (or least) of each row, best first, and their positions (int64): two outputs (rows, k)."""

    rows: int
    columns: int
    k: int
    largest: bool


@dataclass(frozen=True)
class Resize:
    """Row-major over `extents` from `sizes`; inputs data, places (int32) and weights (float32).

    Dimension d has taps[d] entries for each output index in both tables, from starts[d] on; -1: it is not resized.
    """

    extents: tuple[int, ...]
    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    starts: tuple[int, ...]
