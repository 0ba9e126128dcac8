"""Finds blocks that a model repeats one after another: a transformer's layers, the blocks of a residual stage."""

from dataclasses import dataclass

import numpy as np

from core.graph.ir import Graph, Node

LEAST_NODES = 3  # a smaller block is as quickly read as its count


@dataclass(frozen=True)
class Repeat:
    """`count` equal blocks of `period` nodes each, from place `start` of the graph's order."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    def first(self) -> range:
        return range(self.start, self.start + self.period)

    def others(self) -> range:
        """The places of all blocks but the first: what a folded view leaves out."""
        return range(self.start + self.period, self.end)


def find_repeats(graph: Graph, least_nodes: int = LEAST_NODES) -> tuple[Repeat, ...]:
    """Repeats that do not overlap, in graph order; what leaves out the most nodes is taken first.

    Two blocks are equal when their operators, attributes, shapes and the wiring inside them are. Names, weights'
    values and where their inputs come from do not count.
    """
    kinds = _kinds(graph)
    wiring = _Wiring(graph)
    found: list[Repeat] = []
    for stretch, slack in _tandems(kinds, least_nodes):
        turns = [Repeat(stretch.start + i, stretch.period, stretch.count) for i in range(slack + 1)]
        for repeat in sorted(turns, key=lambda r: (wiring.entering(r.start), -r.start)):
            clear = all(repeat.end <= f.start or repeat.start >= f.end for f in found)
            if clear and (sound := wiring.sound(repeat)) is not None:
                found.append(sound)
                break
    return tuple(sorted(found, key=lambda r: r.start))


def _kinds(graph: Graph) -> np.ndarray:
    """One number for each node; equal for nodes that do the same on the same shapes."""
    known: dict[tuple[object, ...], int] = {}
    return np.asarray([known.setdefault(_kind(graph, n), len(known)) for n in graph.nodes], dtype=np.int64)


def _kind(graph: Graph, node: Node) -> tuple[object, ...]:
    tensors = tuple(
        (graph.types.get(t), t in graph.constants) if t else None for t in (*node.inputs, "", *node.outputs)
    )
    return node.op, node.domain, tuple(sorted((k, _plain(v)) for k, v in node.attrs.items())), tensors


def _plain(value: object) -> str:
    return f"{value.dtype}{value.shape}{value.tobytes().hex()}" if isinstance(value, np.ndarray) else repr(value)


def _tandems(kinds: np.ndarray, least: int) -> list[tuple[Repeat, int]]:
    """Every stretch that equals itself `period` later, as whole blocks, and by how many nodes they can be shifted.

    Those that leave out the most nodes come first, short periods before their multiples.
    """
    found: list[tuple[Repeat, int]] = []
    covered = np.zeros(len(kinds) + 1, dtype=np.int64)  # by place: where the longest shorter repeat from there ends
    for period in range(least, len(kinds) // 2 + 1):
        same = kinds[:-period] == kinds[period:]
        if np.count_nonzero(same) < period:
            continue
        equal = np.concatenate(([False], same, [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for start, end in edges.reshape(-1, 2).tolist():
            # Blocks of shorter blocks say nothing new; in a row of one kind of node there would be one for each period.
            if end - start >= period and covered[start] < end + period:
                found.append((Repeat(start, period, (end - start) // period + 1), (end - start) % period))
                covered[start : end + 1] = np.maximum(covered[start : end + 1], end + period)
    return sorted(found, key=lambda f: (-(f[0].count - 1) * f[0].period, f[0].period, f[0].start))


class _Wiring:
    """Which node reads which, by place in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        place = {t: i for i, n in enumerate(graph.nodes) for t in n.outputs if t}
        self.reads = [[place.get(t, -1) for t in n.inputs] for n in graph.nodes]
        self._crossing = np.zeros(len(graph.nodes) + 1, dtype=np.int64)
        for tensor, maker in place.items():
            last = max((place[n.outputs[0]] for n in graph.consumers(tensor)), default=maker)
            self._crossing[maker + 1] += 1
            self._crossing[last + 1 if last + 1 < len(self._crossing) else -1] -= 1
        self._crossing = np.cumsum(self._crossing)

    def entering(self, place: int) -> int:
        """Tensors made before a place and read from there on: a block begins best where there are fewest."""
        return int(self._crossing[place])

    def sound(self, repeat: Repeat) -> Repeat | None:
        """As many leading blocks as are wired alike inside; None if that leaves one."""
        first = self._inside(repeat, 0)
        count = next((b for b in range(1, repeat.count) if self._inside(repeat, b) != first), repeat.count)
        return Repeat(repeat.start, repeat.period, count) if count > 1 else None

    def _inside(self, repeat: Repeat, block: int) -> list[list[int]]:
        start = repeat.start + block * repeat.period
        inside = range(start, start + repeat.period)
        return [[at - start if at in inside else -1 for at in self.reads[i]] for i in inside]
