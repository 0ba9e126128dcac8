"""Ranking rules of the Hopper pair kernel; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_b2b.hpp). [2] CUDA tuning guide for Hopper (TMA, shared
memory). [3] Own measurements on an H200 (resources/records).
"""

from math import ceil

from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_b2b.geometry import ACTIVATION_REGISTERS, Layout, lay, rings
from templates.sm90_b2b.space import Instance
from templates.sm90_common import cluster_factor, overlapped, sustained_hz, wgmma_clocks
from templates.workload import Pair

L2_BYTES_PER_CLOCK = 80.0
IM2COL_BYTES_PER_CLOCK = 64.0  # what the im2col engine of one SM delivers
BLOCK_CLOCKS = 20.0  # barrier round of a K block
FILL_CLOCKS = 1800.0  # first weights and rows from memory until the first wgmma
STORE_CLOCKS = 200.0  # stmatrix, fence, the store's issue
LANES = 128.0  # fp32 operations of an SM in a clock
PLAIN_OPS, HEAVY_OPS = 3.0, 14.0  # of an element: bias and conversion; with an exponential or an error function
LAUNCH_US, PDL_US = 2.2, 1.0


def product_clocks(i: Instance, layout: Layout) -> float:
    """Both products of 64 rows: the first reads A and B0 from shared memory, the second only B1 [1]."""
    steps = layout.k_blocks * i.chunks * i.block_k / 16
    second = i.chunks * i.n0 / 16 * max(64 * i.n1 * 16 / 2048, i.n1 * 16 * 2 / 128)
    return steps * wgmma_clocks(i.n0) + second


def epilogue_clocks(i: Instance, pair: Pair) -> float:
    """Both chains of 64 rows, and the store [1]."""
    inner, outer = pair.first.epilogue, pair.epilogue
    ops = [HEAVY_OPS if any(o.op in ACTIVATION_REGISTERS for o in e.ops) else PLAIN_OPS for e in (inner, outer)]
    source = 64.0 * i.n1 * 2 / 32 * outer.has_source
    elements = 64.0 * (i.n0 * i.chunks * ops[0] + i.n1 * ops[1])
    return elements / LANES + STORE_CLOCKS / i.store_buffers + source


def row_clocks(i: Instance, layout: Layout, pair: Pair) -> float:
    """One 64-row tile when the SM is full: tensor cores against the way from L2; of its epilogue what other groups and
    CTAs don't cover with products of theirs [1][2]."""
    blocks = layout.k_blocks * i.chunks
    row_bytes = 64.0 * i.block_k * 2 * blocks
    weights = i.n0 * i.block_k * 2.0 * blocks / (layout.rows / 64 * i.cluster) if i.stream else 0.0
    loads = max((row_bytes + weights) / L2_BYTES_PER_CLOCK, i.conv * row_bytes / IM2COL_BYTES_PER_CLOCK)
    barriers = blocks * BLOCK_CLOCKS / (i.subtiles * (i.groups if not i.stream else 1))
    independent = (i.groups if not i.stream else 1.5 if i.groups > 1 else 1.0) * i.blocks_per_sm
    exposed = epilogue_clocks(i, pair) / independent
    return overlapped(product_clocks(i, layout) + barriers, loads) + exposed


def weight_clocks(i: Instance, layout: Layout) -> float:
    """Resident weights before the first tiles can end; the first block is enough to start [1]."""
    b0 = 0.0 if i.stream else i.n0 * i.block_k * 2.0 * layout.k_blocks * i.chunks / i.cluster
    return 0.5 * (b0 + i.n1 * i.n0 * i.chunks * 2.0) / L2_BYTES_PER_CLOCK


def score(i: Instance, launch: Launch, pair: Pair, gpu: GpuSpec) -> Score:
    """Whole rounds of a persistent grid, against the time of the bytes alone."""
    layout = lay(i, pair)
    if isinstance(layout, str):
        raise ValueError(layout)
    slots = gpu.sm_count * i.blocks_per_sm // i.cluster * i.cluster
    # Resident: warp groups take tiles on their own, so the last round is as full as groups allow.
    rounds = ceil(layout.tiles / slots) if i.stream else ceil(layout.tiles / (slots * rings(i))) * rings(i)
    subtiles = layout.rows / 64 * i.blocks_per_sm
    filled = min(rings(i), ceil(layout.tiles / slots))
    clocks = rounds * subtiles * row_clocks(i, layout, pair) * (0.5 + 0.5 * filled / rings(i))
    clocks = clocks * cluster_factor(i.cluster) + FILL_CLOCKS + weight_clocks(i, layout)
    depth = (
        min(layout.stages, launch.variant or layout.stages) * rings(i) * layout.rows * i.block_k * 2 * i.blocks_per_sm
    )
    clocks *= 1.0 + 0.15 * max(0.0, 1.0 - depth / 49152.0)  # bytes in flight cover the latency of memory [2]
    compute_us = clocks / sustained_hz(gpu) * 1e6
    memory_us = pair.bytes / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * launch.pdl
    why = (
        f"{layout.tiles} tiles of {layout.rows} rows in {layout.tiles / (slots * rings(i)):.2f} rounds, B0 "
        f"{'streamed' if i.stream else 'resident'}, intermediate in registers, {layout.stages} stages, "
        f"{layout.smem // 1024} KB of shared memory, bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)


def launches(i: Instance, pair: Pair) -> list[Launch]:
    """With and without PDL; fewer stages leave room for a dependent grid to start beside this one [3]."""
    layout = lay(i, pair)
    shallow = [Launch(variant=v, pdl=True) for v in (4, 3) if not isinstance(layout, str) and v < layout.stages]
    return [Launch(pdl=True), Launch(), *shallow]
