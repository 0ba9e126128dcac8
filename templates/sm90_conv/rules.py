"""Ranking rules of the persistent convolution; times are estimates for ranking only.

Sources: [1] CUTLASS docs, "Implicit GEMM convolution" and "Efficient GEMM in CUTLASS". [2] CUDA tuning guide for Hopper
(clusters, TMA multicast, shared memory). [3] Own measurements on an H200 (resources/records).
"""

from dataclasses import dataclass
from math import ceil

from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import (
    IM2COL_BYTES_PER_CLOCK,
    L2_BYTES_PER_CLOCK,
    LAUNCH_US,
    MEMORY_OVERLAP_LOSS,
    PDL_US,
    SM_BYTES_PER_CLOCK,
    conv_bytes,
    epilogue_smem,
    mainloop_stages,
    wgmma_clocks,
)  # fmt: skip
from templates.sm90_power import power_us
from templates.workload import ConvWorkload

# Clocks and bytes a clock of an H100/H200: those with which the estimates are nearest to [3], used for nothing but
# ranking (tests/templates/test_sm90_ranking.py says how near).
FILL_CLOCKS = 1200.0  # latency of the first pixels and weights from memory
EPILOGUE_CLOCKS = 25.0
EPILOGUE_BYTES_PER_CLOCK = 28.0
PINGPONG_STEP_CLOCKS, COOPERATIVE_STEP_CLOCKS = 2.0, 26.0  # barrier round of a k tile: one group releases it, or two
CLUSTER_LOSS = 0.15  # for each further CTA that a cluster keeps in step: pixels come unevenly
# Where power is the limit, a byte that reaches an SM costs as much as this many operations, and products alone would
# run this much faster than they do with their loads (32x112x112x64: 192x128 87 us, 256x64 102, 128x64 110) [3].
OPERATIONS_PER_BYTE, BARE_PRODUCTS = 17.0, 1.36
# Every CTA reads the same weights at about the same time, pixels are its own: a byte of weights takes as much of L2
# as this share of a byte of pixels (32x7x7x512: 64x128 14.9 us, 128x64 18.8) [3].
WEIGHT_SHARE = 0.85
# Channels that are no multiple of 64 leave pixels across the 128-byte lines of L2: all loads are slower by as much, the
# shallow tiles' too (32x28x28x96 with 32 channels a step, 32x56x56x48) [3].
LINE_CHANNELS, STRADDLE_LOSS = 64, 1.35
BARRIER_BYTES = 256  # kBarrierBytes in include/bolt/sm90_conv.hpp


@dataclass(frozen=True)
class Shape:
    """A kernel's tile laid over the implicit GEMM of a workload."""

    tile_m: int
    tile_n: int
    tile_k: int
    cluster_m: int
    cluster_n: int
    cooperative: bool
    tiles_m: int
    tiles_n: int
    steps: int  # of the mainloop: channel chunks x filter taps
    straddles: bool  # pixels lie across lines of L2
    tile_slots: int

    @property
    def tiles(self) -> int:
        """Tiles the grid runs, those that only fill up a cluster included."""
        m = ceil(self.tiles_m / self.cluster_m) * self.cluster_m
        return m * ceil(self.tiles_n / self.cluster_n) * self.cluster_n

    @property
    def rounds(self) -> int:
        """Tiles the busiest CTA takes."""
        return ceil(self.tiles / self.tile_slots)


def lay(kernel: Kernel, workload: ConvWorkload, gpu: GpuSpec) -> Shape:
    m, n, k = kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k")
    cluster_m, cluster_n = kernel.int("cluster_m"), kernel.int("cluster_n")
    cluster = cluster_m * cluster_n
    gemm_m, gemm_n, _ = workload.implicit_gemm
    return Shape(
        m, n, k, cluster_m, cluster_n, kernel["schedule"] == "cooperative",
        ceil(gemm_m / m), ceil(gemm_n / n), ceil(workload.c / k) * workload.r * workload.s,
        workload.c % LINE_CHANNELS != 0,
        gpu.sm_count // cluster * cluster,
    )  # fmt: skip


def stages(kernel: Kernel, gpu: GpuSpec) -> int:
    """Load stages beside the epilogue: what shared memory of this GPU leaves [2]."""
    m, n, k = kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k")
    carveout = epilogue_smem(m, n, kernel["schedule"] == "cooperative", kernel.epilogue, kernel.dtype.itemsize)
    return mainloop_stages(gpu.smem_per_block, carveout + BARRIER_BYTES, (m, n, k), kernel.dtype.itemsize)


def tile_clocks(shape: Shape) -> float:
    """Products of one tile against the way from L2; pixels come through the im2col engine, which multicast along N
    spares, weights are shared along M [1][2]. The engine is slow: tall narrow tiles wait for it [3]."""
    products = shape.tile_m / 64 * shape.tile_k / 16 * wgmma_clocks(shape.tile_n)
    pixels, weights = shape.tile_m * shape.tile_k * 2, shape.tile_n * shape.tile_k * 2
    own_pixels, own_weights = pixels / shape.cluster_n, weights / shape.cluster_m
    from_l2 = (own_pixels + WEIGHT_SHARE * own_weights) * min(shape.tiles, shape.tile_slots) / L2_BYTES_PER_CLOCK
    loads = max(from_l2, (pixels + weights) / SM_BYTES_PER_CLOCK, own_pixels / IM2COL_BYTES_PER_CLOCK)
    loads *= STRADDLE_LOSS if shape.straddles else 1.0
    return shape.steps * (
        max(products, loads) + (COOPERATIVE_STEP_CLOCKS if shape.cooperative else PINGPONG_STEP_CLOCKS)
    )


def grid_clocks(shape: Shape, workload: ConvWorkload) -> float:
    """Persistent rounds: the tail counts in full, pingpong hides all epilogues but the last, cooperative none [1]."""
    moved = shape.tile_m * shape.tile_n * workload.epilogue.output.itemsize * (1 + workload.epilogue.has_source)
    epilogue = EPILOGUE_CLOCKS + moved / EPILOGUE_BYTES_PER_CLOCK / (2 if shape.cooperative else 1)
    tile = tile_clocks(shape)
    if shape.cooperative:
        return shape.rounds * (tile + epilogue)
    return shape.rounds * max(tile, epilogue) + epilogue


def depth_penalty(depth: int, shape: Shape) -> float:
    """Fewer than four stages do not cover the latency of memory [2]."""
    return 1.0 + 0.06 * max(0, min(4, shape.steps) - depth)


def score(candidate: Candidate, workload: ConvWorkload, gpu: GpuSpec) -> Score:
    kernel = candidate.kernel
    shape = lay(kernel, workload, gpu)
    clocks = grid_clocks(shape, workload) * depth_penalty(stages(kernel, gpu), shape)
    clocks = clocks * (1.0 + CLUSTER_LOSS * (shape.cluster_m * shape.cluster_n - 1)) + FILL_CLOCKS
    fetched = (shape.tile_m + shape.tile_n) * shape.tile_k * 2 * shape.steps * shape.tiles
    held_us = power_us(workload.flops, fetched, OPERATIONS_PER_BYTE, BARE_PRODUCTS, gpu)
    compute_us = max(clocks / gpu.clock_mhz, held_us)
    memory_us = conv_bytes(workload) / (gpu.dram_gbs * 1e3)
    us = max(compute_us, memory_us) + MEMORY_OVERLAP_LOSS * min(compute_us, memory_us)
    us += LAUNCH_US - PDL_US * candidate.launch.pdl
    m, n, _ = workload.implicit_gemm
    used = m * n / (shape.tiles * shape.tile_m * shape.tile_n)
    why = (
        f"{shape.tiles} tiles in {shape.tiles / shape.tile_slots:.2f} rounds of {shape.tile_slots}, {used:.0%} of them "
        f"used, {stages(kernel, gpu)} stages, bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)


def launches() -> list[Launch]:
    """PDL helps short kernels and can slow long ones: measurement chooses [3]."""
    return [Launch(pdl=True), Launch()]
