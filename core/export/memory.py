"""The static memory plan: every intermediate gets an offset in one arena, and those never alive together share it.

Safe under programmatic dependent launch: every kernel of ours waits for the kernels before it (griddepcontrol.wait)
before it reads or writes an activation, so what a step overwrites has been read by then, as in plain stream order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
    (arXiv 2001.03288), section 5.
    """
    offsets: dict[int, int] = {}
    for index in sorted(lives, key=lambda i: (-lives[i].nbytes, lives[i].first, i)):
        mine = lives[index]
        taken = sorted((offsets[i], offsets[i] + lives[i].nbytes) for i in offsets if lives[i].meets(mine))
        offsets[index] = _best_gap(taken, mine.nbytes)
    peak = max((offsets[i] + lives[i].nbytes for i in offsets), default=0)
    return MemoryPlan(offsets, peak, _lower_bound(lives))


def _best_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the tightest gap between the taken ranges that holds `size`, else the end of them all."""
    best: tuple[int, int] | None = None
    end = 0
    for low, high in taken:
        if low - end >= size and (best is None or low - end < best[0]):
            best = (low - end, end)
        end = max(end, high)
    return best[1] if best else end


def _lower_bound(lives: Mapping[int, Lifetime]) -> int:
    """The most bytes alive at one step."""
    steps = {life.first for life in lives.values()}
    return max((sum(v.nbytes for v in lives.values() if v.first <= s <= v.last) for s in steps), default=0)


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
