"""Which kernels share a translation unit, so that all of them are compiled soonest.

A further CUTLASS kernel in a file costs a third of the first one (its headers are parsed already), but files compile
side by side and kernels of one file do not: with few kernels and many cores a file each is best, with many kernels
full files are.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise

from templates.family import Kernel

LARGEST_BATCH = 8  # larger files save little more, delay the first measurement, and cost more when one kernel is bad
Batch = tuple[Kernel, ...]


def plan_batches(
    kernels: Sequence[Kernel],
    flags_of: Callable[[Kernel], tuple[str, ...]],
    seconds_of: Callable[[Kernel], tuple[float, float]],
    jobs: int,
    largest: int = LARGEST_BATCH,
) -> list[Batch]:
    """Batches of kernels with equal flags, in the order in which they should start (the caller's order of promise).

    `seconds_of` gives (first in a file, each further one). Of all time limits for one file, takes the one whose
    schedule on `jobs` compilers ends first.
    """
    groups: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in dict.fromkeys(kernels):
        groups.setdefault(flags_of(kernel), []).append(kernel)
    rank = {kernel: i for i, kernel in enumerate(kernels)}

    def seconds(batch: Sequence[Kernel]) -> float:
        return batch_seconds(batch, seconds_of)

    def split(limit: float) -> list[Batch]:
        batches = [b for group in groups.values() for b in _cut(group, limit, seconds_of, largest)]
        return sorted(batches, key=lambda b: min(rank[k] for k in b))

    limits = {seconds(g[:n]) for g in groups.values() for n in range(1, min(len(g), largest) + 1)}
    plans = [split(limit) for limit in sorted(limits)]
    return min(plans, key=lambda plan: makespan([seconds(b) for b in plan], jobs), default=[])


def _cut(
    group: Sequence[Kernel], limit: float, seconds_of: Callable[[Kernel], tuple[float, float]], largest: int
) -> list[Batch]:
    first, further = seconds_of(group[0])
    size = largest if further <= 0 else min(largest, max(1, 1 + int((limit - first) / further + 1e-9)))
    files = -(-len(group) // size)
    bounds = [round(i * len(group) / files) for i in range(files + 1)]
    return [tuple(group[a:b]) for a, b in pairwise(bounds)]


def batch_seconds(batch: Sequence[Kernel], seconds_of: Callable[[Kernel], tuple[float, float]]) -> float:
    """Estimated seconds of compiling kernels in one file."""
    costs = [seconds_of(k) for k in batch]
    return costs[0][0] + sum(further for _, further in costs[1:])


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """When the last of tasks ends that are started in order on `jobs` workers."""
    ends = [0.0] * max(1, jobs)
    for task in seconds:
        heapq.heappush(ends, heapq.heappop(ends) + task)
    return max(ends)
