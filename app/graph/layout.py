"""Layered layout of a directed acyclic graph, top to bottom. No Qt, no numpy: it runs in any thread.

Ranks by longest path, order by barycentre sweeps, x by Brandes and Koepf (Fast and Simple Horizontal Coordinate
Assignment, Graph Drawing 2001). An edge that spans more than LONG ranks takes no part: it becomes a rail, drawn beside
the nodes. fast-sugiyama was measured against this: it knows one width for all nodes, drops the rank of components that
come apart when rails are removed, and holds the interpreter lock throughout.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

LONG = 24
Edge = tuple[int, int]
Check = Callable[[], None]  # called often; raises to stop the work


def never() -> None:
    """The check of work that nobody stops."""


@dataclass(frozen=True)
class Spacing:
    """Distances in scene units (pixels at 100 %)."""

    height: float = 44.0
    row_gap: float = 34.0
    column_gap: float = 24.0
    bend_width: float = 6.0

    @property
    def row(self) -> float:
        return self.height + self.row_gap


@dataclass(frozen=True)
class Layered:
    """Centres of the nodes, their ranks, the bends of edges that pass ranks in between, and the rails."""

    x: list[float]
    rank: list[int]
    bends: dict[Edge, list[tuple[float, int]]]  # edge -> (x, rank) of each bend, downwards
    rails: tuple[Edge, ...]
    crossings: int


def layered(widths: Sequence[float], edges: Sequence[Edge], spacing: Spacing, check: Check = never) -> Layered:
    """Lay out a DAG of len(widths) nodes. Deterministic. Raises ValueError on a cycle, and what `check` raises."""
    edges = list(dict.fromkeys(e for e in edges if e[0] != e[1]))
    rank, order = _ranks(len(widths), edges)
    layers = _Layers(len(widths), edges, rank, order)
    if not widths:
        return Layered([], [], {}, (), 0)
    crossings = _reduce_crossings(layers, check)
    x = _Coordinates(layers, widths, spacing, check).solve()
    bends = {e: [(x[d], layers.rank[d]) for d in chain] for e, chain in layers.chains.items()}
    return Layered(x[: len(widths)], rank, bends, tuple(layers.rails), crossings)


def _ranks(n: int, edges: Sequence[Edge]) -> tuple[list[int], list[int]]:
    """Longest-path ranks, with nodes that have more readers than inputs pulled down to their readers."""
    after: list[list[int]] = [[] for _ in range(n)]
    inputs = [0] * n
    for a, b in edges:
        after[a].append(b)
        inputs[b] += 1
    waiting = inputs[:]
    ready = [v for v in range(n - 1, -1, -1) if not waiting[v]]
    order: list[int] = []
    rank = [0] * n
    while ready:
        v = ready.pop()
        order.append(v)
        for w in after[v]:
            rank[w] = max(rank[w], rank[v] + 1)
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    if len(order) < n:
        raise ValueError("the graph has a cycle")
    for v in reversed(order):
        if after[v] and inputs[v] < len(after[v]):
            rank[v] = max(rank[v], min(rank[w] for w in after[v]) - 1)
    return rank, order


class _Layers:
    """The proper layering: a bend vertex (index >= n) wherever an edge passes a rank."""

    def __init__(self, n: int, edges: Sequence[Edge], rank: Sequence[int], order: Sequence[int]) -> None:
        self.n = n
        self.rank = list(rank)
        self.up: list[list[int]] = [[] for _ in range(n)]
        self.down: list[list[int]] = [[] for _ in range(n)]
        self.chains: dict[Edge, list[int]] = {}
        self.rails = [(a, b) for a, b in edges if rank[b] - rank[a] > LONG]
        for a, b in edges:
            if rank[b] - rank[a] <= LONG:
                self._connect(a, b)
        self.rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
        self._initial_order(order)
        self.place = [0] * len(self.rank)
        self.renumber(range(len(self.rows)))

    def _connect(self, a: int, b: int) -> None:
        previous = a
        chain = []
        for r in range(self.rank[a] + 1, self.rank[b]):
            bend = len(self.rank)
            self.rank.append(r)
            self.up.append([previous])
            self.down.append([])
            self.down[previous].append(bend)
            chain.append(bend)
            previous = bend
        self.down[previous].append(b)
        self.up[b].append(previous)
        if chain:
            self.chains[a, b] = chain

    def _initial_order(self, order: Sequence[int]) -> None:
        """Depth first from the sources, so that chains stay together."""
        seen = [False] * len(self.rank)
        for source in order:
            stack = [source]
            while stack:
                v = stack.pop()
                if not seen[v]:
                    seen[v] = True
                    self.rows[self.rank[v]].append(v)
                    stack.extend(reversed(self.down[v]))

    def renumber(self, rows: "range | list[int]") -> None:
        for i in rows:
            for j, v in enumerate(self.rows[i]):
                self.place[v] = j


def _crossings(row: Sequence[int], up: Sequence[Sequence[int]], place: Sequence[int]) -> int:
    """Crossings between a row and the one above it."""
    seen: list[int] = []
    count = 0
    for v in row:
        above = sorted(place[u] for u in up[v])
        for p in above:
            count += len(seen) - bisect_right(seen, p)
        for p in above:
            insort(seen, p)
    return count


def _reduce_crossings(layers: _Layers, check: Check, sweeps: int = 8) -> int:
    wide = [i for i, row in enumerate(layers.rows) if len(row) > 1]

    def total() -> int:
        check()
        return sum(_crossings(layers.rows[i], layers.up, layers.place) for i in wide)

    best, kept = total(), {i: layers.rows[i][:] for i in wide}
    for sweep in range(sweeps):
        if not best:
            break
        downwards = sweep % 2 == 0
        near = layers.up if downwards else layers.down
        for i in wide if downwards else reversed(wide):
            row = layers.rows[i]
            key = {v: sum(layers.place[u] for u in near[v]) / len(near[v]) if near[v] else j for j, v in enumerate(row)}
            row.sort(key=key.__getitem__)
            layers.renumber([i])
        count = total()
        if count < best:
            best, kept = count, {i: layers.rows[i][:] for i in wide}
        elif sweep > 3:
            break
    for i, row in kept.items():
        layers.rows[i] = row
    layers.renumber(wide)
    return best


class _Coordinates:
    """x by Brandes and Koepf: four extreme alignments, then the mean of the two middle ones for each vertex."""

    def __init__(self, layers: _Layers, widths: Sequence[float], spacing: Spacing, check: Check) -> None:
        self.layers = layers
        self.gap = spacing.column_gap
        self.width = [*widths, *([spacing.bend_width] * (len(layers.rank) - len(widths)))]
        self.check = check
        self.conflicts = self._mark_conflicts()

    def solve(self) -> list[float]:
        runs = [self._aligned(upside, mirrored) for upside in (False, True) for mirrored in (False, True)]
        spans = [max(r) - min(r) for r in runs]
        narrowest = runs[spans.index(min(spans))]
        low, high = min(narrowest), max(narrowest)
        for i, run in enumerate(runs):
            shift = low - min(run) if i % 2 == 0 else high - max(run)
            runs[i] = [x + shift for x in run]
        return [(sum(c) - min(c) - max(c)) / 2 for c in zip(*runs, strict=True)]

    def _mark_conflicts(self) -> set[Edge]:
        """Segments that cross an inner segment (one between two bends): these must not be aligned."""
        layers, marked = self.layers, set()
        for above, row in pairwise(layers.rows):
            if len(above) < 2 or len(row) < 2:
                continue
            left, scan = 0, 0
            for j, v in enumerate(row):
                inner = next((u for u in layers.up[v] if u >= layers.n), None) if v >= layers.n else None
                if inner is None and j < len(row) - 1:
                    continue
                right = len(above) - 1 if inner is None else layers.place[inner]
                while scan <= j:
                    w = row[scan]
                    for u in layers.up[w]:
                        both_bends = u >= layers.n and w >= layers.n
                        if not left <= layers.place[u] <= right and not both_bends:
                            marked.add((u, w))
                    scan += 1
                left = right
        return marked

    def _aligned(self, upside: bool, mirrored: bool) -> list[float]:
        self.check()
        rows = list(reversed(self.layers.rows)) if upside else self.layers.rows
        if mirrored:
            rows = [row[::-1] for row in rows]
        x = self._compact(rows, self._blocks(rows, upside))
        return [-v for v in x] if mirrored else x

    def _blocks(self, rows: Sequence[Sequence[int]], upside: bool) -> list[int]:
        """Vertical alignment: the root of each vertex's block."""
        near = self.layers.down if upside else self.layers.up
        count = len(self.layers.rank)
        place = [0] * count
        for row in rows:
            for j, v in enumerate(row):
                place[v] = j
        root, align = list(range(count)), list(range(count))
        for row in rows:
            taken = -1
            for v in row:
                medians = sorted(near[v], key=place.__getitem__)
                if not medians:
                    continue
                for u in dict.fromkeys((medians[(len(medians) - 1) // 2], medians[len(medians) // 2])):
                    segment = (v, u) if upside else (u, v)
                    if align[v] == v and place[u] > taken and segment not in self.conflicts:
                        align[u] = v
                        root[v] = align[v] = root[u]
                        taken = place[u]
        return root

    def _compact(self, rows: Sequence[Sequence[int]], root: Sequence[int]) -> list[float]:
        """Leftmost place of each block by a longest path, then each pulled right to its neighbours."""
        after: dict[int, dict[int, float]] = {}
        waiting: dict[int, int] = {}
        for row in rows:
            for u, v in pairwise(row):
                a, b = root[u], root[v]
                apart = (self.width[u] + self.width[v]) / 2 + self.gap
                following = after.setdefault(a, {})
                if b not in following:
                    waiting[b] = waiting.get(b, 0) + 1
                following[b] = max(following.get(b, 0.0), apart)
        x = {v: 0.0 for v, r in enumerate(root) if v == r}
        ready = [v for v in x if v not in waiting]
        done = []
        while ready:
            a = ready.pop()
            done.append(a)
            for b, apart in after.get(a, {}).items():
                x[b] = max(x[b], x[a] + apart)
                waiting[b] -= 1
                if not waiting[b]:
                    ready.append(b)
        for a in reversed(done):
            if a in after:
                x[a] = max(x[a], min(x[b] - apart for b, apart in after[a].items()))
        return [x[r] for r in root]
