"""The static memory plan: every intermediate gets an offset in one arena, and those never alive together share it.

Safe under programmatic dependent launch: every kernel of ours waits for the kernels before it (griddepcontrol.wait)
before it reads or writes an activation, so what a step overwrites has been read by then, as in plain stream order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from core.export.program import Program, Space

ALIGNMENT = 256  # bytes: what cudaMalloc guarantees, more than any kernel's widest access


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `nbytes` that is alive from the step that first writes it to the one that last touches it."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in bytes of each arena buffer by index. No plan is smaller than `lower_bound`."""

    offsets: Mapping[int, int]
    nbytes: int
    lower_bound: int


def lifetimes(program: Program) -> dict[int, Lifetime]:
    """Lifetimes of the arena buffers, by index, sizes rounded up to the alignment."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in enumerate(program.steps):
        for index in (*step.reads, *step.writes):
            first.setdefault(index, position)
            last[index] = position
    return {
        b.index: Lifetime(_aligned(b.nbytes), first[b.index], last[b.index])
        for b in program.buffers
        if b.space is Space.ARENA and b.index in first
    }


def plan_memory(lives: Mapping[int, Lifetime]) -> MemoryPlan:
    """Greedy by size, best fit: the largest buffer first, each into the tightest gap among those it meets.

    The offset-calculation strategy of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
    (arXiv 2001.03288), section 5. What is placed is kept in order of its offset, so a plan of tens of thousands of
    buffers takes seconds.
    """
    order = sorted(lives, key=lambda i: (-lives[i].nbytes, lives[i].first, i))
    placed = np.zeros((4, len(order)), np.int64)  # offset, end, first and last step
    offsets: dict[int, int] = {}
    for count, index in enumerate(order):
        mine = lives[index]
        low, high, first, last = placed[:, :count]
        taken = (first <= mine.last) & (mine.first <= last)
        offset = offsets[index] = _best_gap(low[taken], high[taken], mine.nbytes)
        at = int(np.searchsorted(low, offset))
        placed[:, at + 1 : count + 1] = placed[:, at:count].copy()
        placed[:, at] = offset, offset + mine.nbytes, mine.first, mine.last
    return MemoryPlan(offsets, int(placed[1].max(initial=0)), _lower_bound(lives))


def _best_gap(low: np.ndarray, high: np.ndarray, size: int) -> int:
    """The start of the tightest gap between the ranges (by offset) that holds `size`, else the end of them all."""
    if not len(low):
        return 0
    ends = np.concatenate(([0], np.maximum.accumulate(high)))
    gaps = low - ends[:-1]
    fitting = np.flatnonzero(gaps >= size)
    return int(ends[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ends[-1])


def _lower_bound(lives: Mapping[int, Lifetime]) -> int:
    """The most bytes alive at one step."""
    change = np.zeros(max((v.last for v in lives.values()), default=0) + 2, np.int64)
    for life in lives.values():
        change[life.first] += life.nbytes
        change[life.last + 1] -= life.nbytes
    return int(np.cumsum(change).max(initial=0))


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
