"""Repeated blocks: found where they are, nowhere else, and folded without making a cycle."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.graph.ir import Graph, Node, TensorType
from core.graph.repeats import Repeat, _tandems, find_repeats
from core.importer.load import load_graph
from templates.types import DType


def chain(ops: str, skips: dict[int, int] | None = None) -> Graph:
    """One node a letter, each reading the one before, and the node `skips` names besides."""
    nodes = []
    for i, op in enumerate(ops):
        extra = (f"t{skips[i]}",) if skips and i in skips else ()
        nodes.append(Node(f"n{i}", op, (f"t{i - 1}" if i else "x", *extra), (f"t{i}",)))
    kind = TensorType(DType.F16, (4, 8))
    types = {"x": kind} | {f"t{i}": kind for i in range(len(ops))}
    return Graph("chain", tuple(nodes), ("x",), (f"t{len(ops) - 1}",), {}, types)


def test_a_block_three_times_between_others() -> None:
    assert find_repeats(chain("SabcabcabcE")) == (Repeat(1, 3, 3),)


def test_two_different_repeats() -> None:
    assert find_repeats(chain("abcabcXdefgdefg")) == (Repeat(0, 3, 2), Repeat(7, 4, 2))


def test_a_short_block_is_not_worth_folding() -> None:
    assert find_repeats(chain("abababX")) == ()


def test_other_wiring_inside_is_another_block() -> None:
    """The third block reads its first node twice where the others do not."""
    assert find_repeats(chain("abcabcabc", {8: 6})) == (Repeat(0, 3, 2),)


def test_an_input_from_far_away_does_not_matter() -> None:
    """A mask that every layer reads: equally far outside of each block, at another distance each time."""
    assert find_repeats(chain("Mabcabcabc", {2: 0, 5: 0, 8: 0})) == (Repeat(1, 3, 3),)


def test_attributes_and_shapes_tell_blocks_apart() -> None:
    graph = chain("abcabc")
    other = dict(graph.types, t4=TensorType(DType.F16, (4, 9)))
    assert find_repeats(graph.replaced(graph.nodes, types=other)) == ()
    marked = [Node(n.name, n.op, n.inputs, n.outputs, {"k": np.asarray([i // 3])}) for i, n in enumerate(graph.nodes)]
    assert find_repeats(graph.replaced(marked)) == ()


def test_the_layers_of_bert_are_found() -> None:
    graph = load_graph("bert-base")
    repeats = find_repeats(graph)
    assert max(r.count for r in repeats) >= 11
    assert sum(len(r.others()) for r in repeats) > len(graph.nodes) * 0.8


@given(st.text("abcd", max_size=40))
def test_repeats_lie_apart_and_each_block_is_the_first(ops: str) -> None:
    if not ops:
        return
    end = 0
    for repeat in find_repeats(chain(ops)):
        assert repeat.start >= end and repeat.count >= 2 and repeat.end <= len(ops)
        block = ops[repeat.start : repeat.start + repeat.period]
        assert ops[repeat.start : repeat.end] == block * repeat.count
        end = repeat.end


def test_a_row_of_one_kind_is_one_repeat_and_quickly_found() -> None:
    """Every period fits it: without care there are as many stretches as nodes, and each is compared with all others."""
    kinds = np.zeros(5_000, dtype=np.int64)
    assert len(_tandems(kinds, 3)) <= 3
    assert find_repeats(chain("a" * 300)) == (Repeat(0, 3, 100),)
