"""Ranking of sm80_b2b candidates. The estimate orders candidates; it is never shown as a measurement."""

from math import ceil

from templates.family import Candidate, Score
from templates.gpu import GpuSpec
from templates.sm80_b2b.space import Instance
from templates.tensorop import LAUNCH_US, PDL_GAIN_US, estimate
from templates.workload import GemmWorkload, Pair

_SHARED_TRIP = 1.08  # the intermediate through shared memory and back, and a barrier between the products


def score(i: Instance, candidate: Candidate, pair: Pair, gpu: GpuSpec) -> Score:
    """The first product as templates.tensorop.estimate sees it, with the pair's bytes; the second adds its share of the
    arithmetic at the same rate where arithmetic bounds the kernel, since it reads B1 only."""
    first, m, n0 = pair.first, pair.second.m, pair.second.k
    if isinstance(first, GemmWorkload):
        k_steps, depth = ceil(first.k / i.k), first.k
    else:
        k_steps, depth = first.r * first.s * ceil(first.c / i.k), first.implicit_gemm[2]
    useful_k = depth / (k_steps * i.k)
    cost = estimate(i.first, m, n0, k_steps, 1, useful_k, pair.bytes, pair.dtype, 8, gpu)
    us = cost.us
    if cost.bound != "memory":
        us += (us - LAUNCH_US) * n0 * pair.n1 / (n0 * depth)
        us *= _SHARED_TRIP if i.residence == "smem" else 1.0
    us -= PDL_GAIN_US if candidate.launch.pdl else 0.0
    where = "registers" if i.residence == "rf" else "shared memory"
    return Score(us, f"intermediate in {where}, {cost.why}, {i.stages} stages over {k_steps} K steps")
