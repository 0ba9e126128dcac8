"""Ranking of sm80_gemm candidates. The estimate orders candidates; it is never shown as a measurement."""

from math import ceil

from templates.family import Candidate, Score
from templates.gpu import GpuSpec
from templates.tensorop import PDL_GAIN_US, Tile, epilogue_bytes, estimate
from templates.workload import GemmWorkload


def score(tile: Tile, candidate: Candidate, workload: GemmWorkload, gpu: GpuSpec) -> Score:
    """Waves, tail, tile efficiency, bytes, stages and alignment: see templates.tensorop.estimate for each source.

    A swizzle that walks several N tiles beside each other cuts L2 misses when the operands outgrow L2
    (efficient_gemm.md, threadblock rasterization); PDL takes about a microsecond off the launch (measured).
    """
    k_steps = ceil(workload.k / tile.k)
    useful_k = workload.k / (k_steps * tile.k)
    alignment = min(candidate.kernel.alignment[:2])
    cost = estimate(
        tile, workload.m, workload.n, k_steps, workload.batch, useful_k, workload.bytes, workload.dtype, alignment, gpu,
        slices=candidate.launch.splits, element_bytes=epilogue_bytes(workload.epilogue),
    )  # fmt: skip
    launches = 2 if candidate.launch.splits > 1 else 1
    us = cost.us - (PDL_GAIN_US * launches if candidate.launch.pdl else 0.0)
    if workload.bytes > gpu.l2_bytes and candidate.launch.swizzle == 1 and workload.n > tile.n:
        us *= 1.03
    split = f" in {candidate.launch.splits} slices" if candidate.launch.splits > 1 else ""
    return Score(us, f"{cost.why}, {tile.stages} stages over {k_steps} K steps{split}")
