"""From ranks to the page: the layered strip folded into columns, every edge as a path. No Qt.

A deep network is a strip hundreds of times taller than wide. It is cut at ranks that few edges cross and set in
columns, as a newspaper is; edges across a cut, and rails, run in the gutters between the columns.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from app.graph.layout import Check, Edge, Layered, Spacing, layered, never

BOND = 5  # so many other edges are rather cut than one inside a region
LANE = 7.0
GUTTER = 36.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Placement:
    """Where everything lies, in scene units. `x`, `y` are centres.

    `paths` has the points of each edge: a smooth curve through them for a flow edge, right angles for a rail.
    """

    x: np.ndarray
    y: np.ndarray
    widths: np.ndarray
    height: float
    edges: tuple[Edge, ...]
    paths: tuple[tuple[Point, ...], ...]
    rail: np.ndarray  # per edge: runs in a gutter
    columns: int
    bounds: tuple[float, float, float, float]  # left, top, right, bottom

    @property
    def nodes(self) -> int:
        return len(self.x)


def place(
    widths: Sequence[float],
    edges: Sequence[Edge],
    aspect: float | None = 1.5,
    spacing: Spacing | None = None,
    check: Check = never,
    bonds: Collection[Edge] = (),
) -> Placement:
    """Lay out and fold to about `aspect` (width over height); None keeps one strip. Raises what `check` raises.

    `bonds` are edges that a fold should rather not cut: those inside a region.
    """
    spacing = spacing or Spacing()
    edges = tuple(dict.fromkeys(e for e in edges if e[0] != e[1]))
    strip = layered(widths, edges, spacing, check)
    if not len(widths):
        empty = np.zeros(0)
        return Placement(empty, empty, empty, spacing.height, (), (), np.zeros(0, bool), 0, (0.0, 0.0, 0.0, 0.0))
    starts = _column_starts(strip, widths, edges, aspect, spacing, set(bonds))
    return _Page(strip, widths, edges, starts, spacing, check).placement()


def _column_starts(
    strip: Layered,
    widths: Sequence[float],
    edges: Sequence[Edge],
    aspect: float | None,
    spacing: Spacing,
    bonds: set[Edge],
) -> list[int]:
    """First rank of each column, with the number of columns that fills a page of that aspect best.

    A cut is moved by up to an eighth of a column to where the fewest edges cross it.
    """
    ranks = max(strip.rank) + 1
    if aspect is None:
        return [0]
    crossing, left, right = _profile(strip, widths, edges, ranks, bonds)
    typical = float(np.partition(right - left, ranks // 2)[ranks // 2]) + 2 * GUTTER  # np.median imports numpy.ma
    guess = max(1, round(sqrt(ranks * spacing.row * aspect / typical)))
    best: tuple[float, list[int]] = (0.0, [0])
    for count in range(max(1, guess // 2), min(ranks, guess * 2 + 1) + 1):
        starts = _cut(ranks, count, crossing)
        ends = [*starts[1:], ranks]
        wide = sum(right[a:b].max() - left[a:b].min() + GUTTER for a, b in zip(starts, ends, strict=True))
        tall = max(b - a for a, b in zip(starts, ends, strict=True)) * spacing.row
        scale = min(aspect / wide, 1 / tall)
        if scale > best[0]:
            best = scale, starts
    return best[1]


def _profile(
    strip: Layered, widths: Sequence[float], edges: Sequence[Edge], ranks: int, bonds: set[Edge]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each rank: the edges that enter it or pass it from above (a bond counts more), its left and its right end."""
    rank = np.asarray(strip.rank)
    crossing = np.zeros(ranks + 1, dtype=np.int64)
    if edges:
        ends = np.asarray(edges)
        cost = np.asarray([BOND if e in bonds else 1 for e in edges])
        np.add.at(crossing, rank[ends[:, 0]] + 1, cost)
        np.add.at(crossing, rank[ends[:, 1]] + 1, -cost)
    x, half = np.asarray(strip.x), np.asarray(widths) / 2
    left, right = np.full(ranks, np.inf), np.full(ranks, -np.inf)
    np.minimum.at(left, rank, x - half)
    np.maximum.at(right, rank, x + half)
    for bends in strip.bends.values():
        for bx, r in bends:
            left[r], right[r] = min(left[r], bx), max(right[r], bx)
    return np.cumsum(crossing), left, right


def _cut(ranks: int, count: int, crossing: np.ndarray) -> list[int]:
    tall = ceil(ranks / count)
    slack = max(2, tall // 8)
    starts = [0]
    for i in range(1, count):
        ideal = i * tall
        low, high = max(starts[-1] + 1, ideal - slack), min(ranks - 1, ideal + slack)
        if low <= high:
            starts.append(min((int(crossing[r]), abs(r - ideal), r) for r in range(low, high + 1))[2])
    return starts


class _Page:
    """Columns side by side, and the gutters between them with their lanes."""

    def __init__(
        self,
        strip: Layered,
        widths: Sequence[float],
        edges: Sequence[Edge],
        starts: list[int],
        spacing: Spacing,
        check: Check,
    ) -> None:
        self.strip, self.widths, self.edges, self.starts = strip, widths, edges, starts
        self.spacing, self.check = spacing, check
        self.column = [self._column(r) for r in strip.rank]
        rails = set(strip.rails)
        self.is_rail = [e in rails or self.column[e[0]] != self.column[e[1]] for e in edges]
        self.lanes = self._assign_lanes()
        self.offset, self.gutter_x, self.right = self._offsets()

    def _column(self, rank: int) -> int:
        return bisect_right(self.starts, rank) - 1

    def _y(self, rank: int) -> float:
        return (rank - self.starts[self._column(rank)]) * self.spacing.row

    def _assign_lanes(self) -> dict[tuple[int, int], int]:
        """(gutter, source node) -> lane. Rails of one source share a lane: a bus. Gutter i is right of column i."""
        spans: dict[tuple[int, int], tuple[float, float]] = {}
        top = -self.spacing.row
        for (a, b), rail in zip(self.edges, self.is_rail, strict=True):
            if not rail:
                continue
            ya, yb = self._y(self.strip.rank[a]), self._y(self.strip.rank[b])
            here, there = self.column[a], max(self.column[b] - 1, self.column[a])
            if here == there:
                self._widen(spans, (here, a), ya, yb)
            else:
                self._widen(spans, (here, a), ya, top)
                self._widen(spans, (there, a), top, yb)
        lanes: dict[tuple[int, int], int] = {}
        ends: dict[int, list[float]] = {}
        for (gutter, source), (low, high) in sorted(spans.items(), key=lambda s: (s[0][0], s[1], s[0][1])):
            free = ends.setdefault(gutter, [])
            lane = next((i for i, end in enumerate(free) if end < low - 1), len(free))
            free[lane : lane + 1] = [high]
            lanes[gutter, source] = lane
        return lanes

    @staticmethod
    def _widen(spans: dict[tuple[int, int], tuple[float, float]], key: tuple[int, int], a: float, b: float) -> None:
        low, high = spans.get(key, (a, a))
        spans[key] = min(low, a, b), max(high, a, b)

    def _offsets(self) -> tuple[list[float], list[float], float]:
        """x shift of each column, left edge of the lanes of each gutter, right edge of the page."""
        count = len(self.starts)
        left, right = [float("inf")] * count, [float("-inf")] * count
        extents = [(c, x - w / 2, x + w / 2) for c, x, w in zip(self.column, self.strip.x, self.widths, strict=True)]
        extents += [(self._column(r), x, x) for bends in self.strip.bends.values() for x, r in bends]
        for c, low, high in extents:
            left[c], right[c] = min(left[c], low), max(right[c], high)
        lane_count = [0] * count
        for (gutter, _), lane in self.lanes.items():
            lane_count[gutter] = max(lane_count[gutter], lane + 1)
        shifts, gutters, cursor = [], [], 0.0
        for c in range(count):
            shifts.append(cursor - left[c])
            cursor += right[c] - left[c] + GUTTER / 2
            gutters.append(cursor)
            cursor += lane_count[c] * LANE + GUTTER / 2
        return shifts, gutters, cursor

    def _lane_x(self, gutter: int, source: int) -> float:
        return self.gutter_x[gutter] + self.lanes[gutter, source] * LANE

    def placement(self) -> Placement:
        strip, half = self.strip, self.spacing.height / 2
        x = [v + self.offset[c] for v, c in zip(strip.x, self.column, strict=True)]
        y = [self._y(r) for r in strip.rank]
        paths = []
        for i, ((a, b), rail) in enumerate(zip(self.edges, self.is_rail, strict=True)):
            if i % 256 == 0:
                self.check()
            start, end = (x[a], y[a] + half), (x[b], y[b] - half)
            if rail:
                paths.append(self._rail_path(a, b, start, end))
            else:
                shift = self.offset[self.column[a]]
                bends = [(bx + shift, self._y(r)) for bx, r in strip.bends.get((a, b), ())]
                paths.append((start, *bends, end))
        points = [p for path in paths for p in path]
        bounds = (
            min([*(v - w / 2 for v, w in zip(x, self.widths, strict=True)), *(p[0] for p in points)]),
            min([*(v - half for v in y), *(p[1] for p in points)]),
            max([*(v + w / 2 for v, w in zip(x, self.widths, strict=True)), *(p[0] for p in points)]),
            max([*(v + half for v in y), *(p[1] for p in points)]),
        )
        return Placement(
            np.asarray(x), np.asarray(y), np.asarray(self.widths, dtype=float), self.spacing.height, tuple(self.edges),
            tuple(paths), np.asarray(self.is_rail, dtype=bool), len(self.starts), bounds,
        )  # fmt: skip

    def _rail_path(self, a: int, b: int, start: Point, end: Point) -> tuple[Point, ...]:
        """Down out of the source, along the gutter's lane, into the target from above; far columns over the top."""
        out_y = start[1] + self.spacing.row_gap * 0.32
        in_y = end[1] - self.spacing.row_gap * 0.7
        here, there = self.column[a], max(self.column[b] - 1, self.column[a])
        first = self._lane_x(here, a)
        if here == there:
            middle: tuple[Point, ...] = ((first, out_y), (first, in_y))
        else:
            top = -self.spacing.row - self.lanes[here, a] * LANE
            second = self._lane_x(there, a)
            middle = ((first, out_y), (first, top), (second, top), (second, in_y))
        return (start, (start[0], out_y), *middle, (end[0], in_y), end)
