"""How a tensor lies in memory, as an order of factors of its extents.

A layout cuts the row-major list of a tensor's elements into factors (`extents`, in logical order) and says in which
order those factors lie in memory (`order[i]` is the logical factor at physical position i, outermost first). NCHW held
channels-last is extents (N, C, H, W), order (0, 2, 3, 1). Because factors need not be whole dimensions, a Reshape, a
Flatten of NHWC and both halves of a channel shuffle are changes of description only: nothing moves until a consumer
asks for an order that differs.

Layouts are kept canonical (no factor of 1, neighbours that move together merged), so two layouts are equal exactly when
they place every element at the same address: with H = W = 1 or C = 1, NHWC equals row-major.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np


@dataclass(frozen=True)
class Layout:
    """Canonical when made by the functions of this module; the empty layout is a single element."""

    extents: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_row_major(self) -> bool:
        return len(self.extents) <= 1

    @property
    def size(self) -> int:
        return prod(self.extents)

    @property
    def physical(self) -> tuple[int, ...]:
        """Extents in memory order, outermost first."""
        return tuple(self.extents[i] for i in self.order)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each factor, in logical order."""
        strides, step = [0] * len(self.extents), 1
        for factor in reversed(self.order):
            strides[factor] = step
            step *= self.extents[factor]
        return tuple(strides)


def layout(extents: Iterable[int], order: Iterable[int]) -> Layout:
    """The canonical layout of factors `extents` (logical order) lying in memory in `order`."""
    extents, order = tuple(extents), tuple(order)
    kept = [f for f in order if extents[f] != 1]
    runs: list[list[int]] = []  # physical runs of factors that are neighbours logically too
    logical_rank = {f: i for i, f in enumerate(sorted(kept))}
    for f in kept:
        if runs and logical_rank[f] == logical_rank[runs[-1][-1]] + 1:
            runs[-1].append(f)
        else:
            runs.append([f])
    by_logical = sorted(range(len(runs)), key=lambda r: runs[r][0])
    position = {run: i for i, run in enumerate(by_logical)}
    return Layout(
        tuple(prod(extents[f] for f in runs[r]) for r in by_logical), tuple(position[r] for r in range(len(runs)))
    )


def row_major(shape: Sequence[int]) -> Layout:
    return layout(shape, range(len(shape)))


def channels_last(shape: Sequence[int]) -> Layout:
    """(N, C, spatial...) with the channels innermost."""
    rank = len(shape)
    return layout(shape, (0, *range(2, rank), 1))


def refined(of: Layout, cuts: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(extents, order) of the same placement with factors cut at every element count in `cuts`.

    A cut is a product of trailing extents: cuts of shape (2, 3, 4) are 4 and 12. None when a cut falls inside a factor
    that it does not divide, i.e. when the placement can't be described in those terms.
    """
    wanted = sorted(set(cuts))
    pieces: list[list[int]] = []  # for each factor, its pieces in logical order
    low = of.size
    for extent in of.extents:
        high, low = low, low // extent
        inside = [c for c in wanted if low < c < high]
        edges = [low, *inside, high]
        if any(b % a for a, b in pairwise(edges)):
            return None
        pieces.append([b // a for a, b in pairwise(edges)][::-1])
    first = np.cumsum([0, *(len(p) for p in pieces)])
    order = [int(first[f]) + i for f in of.order for i in range(len(pieces[f]))]
    return tuple(e for p in pieces for e in p), tuple(order)


def cuts_of(shape: Sequence[int]) -> list[int]:
    """The products of trailing extents: where the dimensions of a shape meet, in elements."""
    return [prod(shape[i:]) for i in range(1, len(shape))]


@dataclass(frozen=True)
class Factor:
    """A piece of one dimension: its extent and its stride in memory, in elements."""

    extent: int
    stride: int


def dims(of: Layout, shape: Sequence[int], cuts: Iterable[int] = ()) -> list[list[Factor]] | None:
    """For each dimension of `shape` its factors, outermost first (none for an extent of 1), also cut at `cuts`.

    None when the layout can't be told apart into these dimensions.
    """
    found = refined(of, [*cuts_of(shape), *cuts])
    if found is None:
        return None
    extents, order = found
    strides = Layout(extents, order).strides
    factors = iter([Factor(e, s) for e, s in zip(extents, strides, strict=True) if e != 1])
    result: list[list[Factor]] = []
    for extent in shape:
        mine: list[Factor] = []
        while prod(f.extent for f in mine) != extent:
            mine.append(next(factors))
        result.append(mine)
    return result


def from_dims(pieces: Sequence[Sequence[Factor]]) -> Layout:
    """The layout whose factors these are; strides decide the order in memory only (larger is further out)."""
    flat = [f for dim in pieces for f in dim]
    return layout([f.extent for f in flat], sorted(range(len(flat)), key=lambda i: -flat[i].stride))


def transposed(of: Layout, shape: Sequence[int], perm: Sequence[int]) -> Layout | None:
    """The layout of Transpose(x, perm) that leaves every element where it lies."""
    pieces = dims(of, shape)
    return None if pieces is None else from_dims([pieces[p] for p in perm])


def reshaped(of: Layout, shape: Sequence[int]) -> Layout | None:
    """The layout of Reshape(x, shape) that moves nothing: the same one, if `shape` can be told apart in it."""
    return of if refined(of, cuts_of(shape)) is not None else None


def pack(array: np.ndarray, of: Layout) -> np.ndarray:
    """The elements of a logical array in memory order, flat."""
    return np.ascontiguousarray(array.reshape(of.extents).transpose(of.order)).reshape(-1)


def unpack(memory: np.ndarray, of: Layout, shape: Sequence[int]) -> np.ndarray:
    """The inverse of `pack`."""
    return memory.reshape(of.physical).transpose(np.argsort(of.order)).reshape(shape)
