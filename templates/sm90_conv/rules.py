"""Ranking rules of the persistent convolution; times are estimates for ranking only.

Sources: [1] CUTLASS docs, "Implicit GEMM convolution" and "Efficient GEMM in CUTLASS". [2] CUDA tuning guide for Hopper
(clusters, TMA multicast, shared memory). [3] Own measurements on an H200 (resources/records).
"""

from dataclasses import dataclass
from math import ceil

from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import (
    L2_BYTES_PER_CLOCK,
    cluster_factor,
    conv_bytes,
    epilogue_smem,
    mainloop_stages,
    overlapped,
    step_clocks,
    sustained_hz,
    wgmma_clocks,
)  # fmt: skip
from templates.workload import ConvWorkload

# Rates and latencies of an H100/H200 SM, in bytes a clock and clocks; fitted to [3], used for nothing but ranking.
IM2COL_BYTES_PER_CLOCK = 64.0  # what the im2col engine of one SM delivers
FILL_CLOCKS = 2400.0  # latency of the first pixels and weights from memory
EPILOGUE_CLOCKS = 500.0
EPILOGUE_BYTES_PER_CLOCK = 32.0
BARRIER_BYTES = 256  # kBarrierBytes in include/bolt/sm90_conv.hpp
LAUNCH_US, PDL_US = 2.2, 1.0


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
        gpu.sm_count // cluster * cluster,
    )  # fmt: skip


def stages(kernel: Kernel, gpu: GpuSpec) -> int:
    """Load stages beside the epilogue: what shared memory of this GPU leaves [2]."""
    m, n, k = kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k")
    carveout = epilogue_smem(m, n, kernel["schedule"] == "cooperative", kernel.epilogue, kernel.dtype.itemsize)
    return mainloop_stages(gpu.smem_per_block, carveout + BARRIER_BYTES, (m, n, k), kernel.dtype.itemsize)


def tile_clocks(shape: Shape) -> float:
    """Products of one tile against the way from L2; pixels come through the im2col engine, which multicast along N
    spares, weights are shared along M [1][2]."""
    products = shape.tile_m / 64 * shape.tile_k / 16 * wgmma_clocks(shape.tile_n)
    pixels = shape.tile_m * shape.tile_k * 2 / shape.cluster_n
    weights = shape.tile_n * shape.tile_k * 2 / shape.cluster_m
    loads = max((pixels + weights) / L2_BYTES_PER_CLOCK, pixels / IM2COL_BYTES_PER_CLOCK)
    return shape.steps * (overlapped(products, loads) + step_clocks(shape.cooperative))


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
    clocks = clocks * cluster_factor(shape.cluster_m * shape.cluster_n) + FILL_CLOCKS
    compute_us = clocks / sustained_hz(gpu) * 1e6
    memory_us = conv_bytes(workload) / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * candidate.launch.pdl
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
