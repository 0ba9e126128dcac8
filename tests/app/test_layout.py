"""Properties of the layout, on arbitrary graphs: they are what a user sees at once when they break."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.graph.layout import LONG, Spacing, layered
from app.graph.placement import Placement, place

SPACING = Spacing()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    n = draw(st.integers(1, 60))
    widths = draw(st.lists(st.sampled_from([60.0, 96.0, 140.0, 188.0]), min_size=n, max_size=n))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])
    edges = [(min(e), max(e)) for e in draw(st.lists(pairs, max_size=2 * n))]
    chain = [(i, i + 1) for i in range(n - 1)] if draw(st.booleans()) else []
    return widths, [*chain, *edges]


def overlapping(p: Placement) -> list[tuple[int, int]]:
    boxes = list(zip(p.x, p.y, p.widths, strict=True))
    return [
        (i, j)
        for i, (xi, yi, wi) in enumerate(boxes)
        for j, (xj, yj, wj) in enumerate(boxes[:i])
        if abs(yi - yj) < p.height and abs(xi - xj) < (wi + wj) / 2
    ]


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from([None, 0.5, 1.5, 3.0]))
def test_boxes_never_overlap(graph: tuple[list[float], list[tuple[int, int]]], aspect: float | None) -> None:
    assert overlapping(place(*graph, aspect)) == []


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_edges_go_down_in_one_strip(graph: tuple[list[float], list[tuple[int, int]]]) -> None:
    placed = place(*graph, None)
    for (a, b), path, rail in zip(placed.edges, placed.paths, placed.rail, strict=True):
        assert placed.y[a] < placed.y[b]
        assert path[0] == (placed.x[a], placed.y[a] + placed.height / 2)
        assert path[-1] == (placed.x[b], placed.y[b] - placed.height / 2)
        if not rail:
            heights = [y for _, y in path]
            assert heights == sorted(heights)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.sampled_from([None, 1.5]))
def test_no_edge_runs_through_a_box(graph: tuple[list[float], list[tuple[int, int]]], aspect: float | None) -> None:
    """Rails are checked by their straight runs, curves by the places where they pass a row."""
    p = place(*graph, aspect)
    half = p.height / 2
    for (a, b), path, rail in zip(p.edges, p.paths, p.rail, strict=True):
        others = [i for i in range(p.nodes) if i not in (a, b)]
        for (x0, y0), (x1, y1) in pairwise(path) if rail else ():
            for i in others:
                beside = max(x0, x1) <= p.x[i] - p.widths[i] / 2 or min(x0, x1) >= p.x[i] + p.widths[i] / 2
                apart = max(y0, y1) <= p.y[i] - half or min(y0, y1) >= p.y[i] + half
                assert beside or apart
        for x, y in path[1:-1] if not rail else []:
            for i in others:
                assert not (abs(x - p.x[i]) < p.widths[i] / 2 and abs(y - p.y[i]) < half)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_the_same_graph_is_laid_out_the_same(graph: tuple[list[float], list[tuple[int, int]]]) -> None:
    first, second = place(*graph), place(*graph)
    assert first.paths == second.paths
    assert (first.x == second.x).all() and (first.y == second.y).all()


def test_a_chain_is_straight() -> None:
    placed = place([100.0] * 9, [(i, i + 1) for i in range(8)], None)
    assert set(placed.x) == {placed.x[0]}


def test_a_long_edge_becomes_a_rail() -> None:
    n = LONG + 3
    result = layered([100.0] * n, [*((i, i + 1) for i in range(n - 1)), (0, n - 1)], SPACING)
    assert result.rails == ((0, n - 1),)
    assert result.bends == {}


def test_a_tall_strip_is_folded_towards_the_wanted_page() -> None:
    placed = place([100.0] * 400, [(i, i + 1) for i in range(399)], 1.5)
    left, top, right, bottom = placed.bounds
    assert placed.columns > 5
    assert 0.8 < (right - left) / (bottom - top) < 2.6


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        layered([100.0, 100.0], [(0, 1), (1, 0)], SPACING)


def test_nothing_to_lay_out() -> None:
    assert place([], []).nodes == 0


def test_layout_stops_when_asked() -> None:
    class Stopped(Exception):
        pass

    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Stopped

    with pytest.raises(Stopped):
        place([100.0] * 300, [(i, j) for i in range(299) for j in (i + 1, i + 2) if j < 300], check=check)


def test_a_fold_leaves_bonds_whole() -> None:
    """Pairs of a chain belong together: a page of any shape breaks between the pairs."""
    chain = [(i, i + 1) for i in range(199)]
    bonds = chain[::2]
    for aspect in (0.7, 1.5, 2.2):
        placed = place([100.0] * 200, chain, aspect, bonds=bonds)
        assert placed.columns > 2
        assert all(placed.y[a] < placed.y[b] for a, b in bonds)
