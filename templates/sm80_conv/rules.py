"""Ranking of sm80_conv candidates. The estimate orders candidates; it is never shown as a measurement."""

from templates.family import Candidate, Score
from templates.gpu import GpuSpec
from templates.sm80_conv import iterators
from templates.tensorop import PDL_GAIN_US, Tile, epilogue_bytes, estimate
from templates.workload import ConvWorkload

# On an H200 the main loop of this family's convolutions takes 60 % longer than the estimate: the iterators wait for L2
# where TMA would not; launch and fill are as short as elsewhere, so small images are not held back by it
# (resources/records, tests/templates/test_sm90_ranking.py). It decides who gets a place beside the natives.
HOPPER_SLOWDOWN = 1.6


def score(tile: Tile, candidate: Candidate, workload: ConvWorkload, gpu: GpuSpec) -> Score:
    """The GEMM rules of templates.tensorop.estimate on the implicit GEMM, with the K steps of the iterators.

    - K depth: the general iterators step through C for each tap, so C below the K tile is padded in every tap, and
      the few-channel ones pack taps together (CUTLASS implicit_gemm_convolution.md);
    - iterators: those that compute addresses by division cost more instructions a step.
    """
    walk = iterators.BY_NAME[str(candidate.kernel["iterator"])]
    m, n, k = workload.implicit_gemm
    k_steps = walk.k_steps(workload, tile.k)
    alignment = candidate.kernel.alignment[0]
    slow = HOPPER_SLOWDOWN if gpu.sm == 90 else 1.0
    cost = estimate(
        tile, m, n, k_steps, 1, k / (k_steps * tile.k), workload.bytes, workload.dtype, alignment, gpu,
        walk.slowdown * slow, candidate.launch.splits, epilogue_bytes(workload.epilogue),
    )  # fmt: skip
    launches = 2 if candidate.launch.splits > 1 else 1
    us = cost.us - (PDL_GAIN_US * launches if candidate.launch.pdl else 0.0)
    split = f" in {candidate.launch.splits} slices" if candidate.launch.splits > 1 else ""
    return Score(us, f"{cost.why}, {tile.stages} stages over {k_steps} K steps{split}, {walk.name} iterators")
