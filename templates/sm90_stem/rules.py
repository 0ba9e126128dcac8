"""Ranking rules of the stem convolution; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_conv_stem_kernel.cuh). [2] CUDA tuning guide for Hopper (TMA,
shared memory). [3] Own measurements on an H200 (resources/records, tests/gpu/bench_stem.py): seven stems of one to 32
images, to which the clocks below are fitted; estimates of the best kernels are within 12 % of their times.
"""

from math import ceil

from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import overlapped, sustained_hz, wgmma_clocks
from templates.sm90_stem.geometry import Geometry, lay
from templates.sm90_stem.space import Instance
from templates.workload import ConvWorkload

BLOCK_ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
MAX_LAUNCH_SHAPES = 3
L2_BYTES_PER_CLOCK = 50.0  # an SM's share while all of them load and store
ITEM_CLOCKS = 450.0  # latency from the first product to the last result that no width changes
EPILOGUE_CLOCKS_PER_PIXEL = 3.7
BLOCK_CLOCKS = 210.0  # barrier round of a stage
FILL_CLOCKS = 1300.0  # weights and the first rows from memory until the first wgmma
LAUNCH_US, PDL_US = 2.2, 1.0


def block_clocks(instance: Instance, geometry: Geometry) -> float:
    """One block: the groups' products share the tensor cores, a group's own items follow one another [1]; input rows
    and results pass through L2 [2]."""
    product = geometry.steps * instance.phases * wgmma_clocks(instance.columns)
    item = product + ITEM_CLOCKS + EPILOGUE_CLOCKS_PER_PIXEL * instance.pixels
    # Turns go on from block to block, so a part of an item is as good as a whole one in the mean.
    own = geometry.items_per_block / instance.groups * item
    moved = geometry.stage_bytes + geometry.items_per_block * instance.pixels * 128.0
    if instance.buffers == 1:
        own *= 1.05  # the next result waits until the last one has left
    return overlapped(max(own, geometry.items_per_block * product), moved / L2_BYTES_PER_CLOCK) + BLOCK_CLOCKS


def score(instance: Instance, launch: Launch, workload: ConvWorkload, gpu: GpuSpec) -> Score:
    """Whole rounds of a persistent grid, against the time of the bytes alone."""
    geometry = lay(instance, workload, launch.variant)
    if isinstance(geometry, str):
        raise ValueError(geometry)
    rounds = ceil(geometry.blocks / gpu.sm_count)
    clocks = FILL_CLOCKS + rounds * block_clocks(instance, geometry)
    compute_us = clocks / sustained_hz(gpu) * 1e6
    memory_us = workload.bytes / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * launch.pdl
    used = workload.n * workload.p * workload.q * geometry.channel_tiles / (geometry.items * instance.pixels)
    why = (
        f"{geometry.blocks} blocks of {launch.variant} rows of {instance.pixels} pixels, {used:.0%} of them used, "
        f"{rounds} rounds, {geometry.steps} steps a pixel, {geometry.stages} stages, "
        f"bound by {'memory' if memory_us > compute_us else 'products and results'}"
    )
    return Score(us, why)


def launches(instance: Instance, workload: ConvWorkload, gpu: GpuSpec) -> list[Launch]:
    """The most promising block heights, with and without PDL, the better estimate first."""
    legal = [rows for rows in BLOCK_ROWS if rows == 1 or rows <= workload.p]
    legal = [rows for rows in legal if not isinstance(lay(instance, workload, rows), str)]

    def estimate(launch: Launch) -> float:
        return score(instance, launch, workload, gpu).us

    best = sorted((Launch(variant=rows, pdl=True) for rows in legal), key=estimate)[:MAX_LAUNCH_SHAPES]
    return sorted((Launch(variant=b.variant, pdl=pdl) for b in best for pdl in (True, False)), key=estimate)
