"""Ranking rules of the sm90 GEMM. Each is named with the guideline it comes from; times are estimates for ranking.

Sources: [1] CUTLASS docs, "Efficient GEMM in CUTLASS" (threadblock rasterisation, warp specialisation, stream-K).
[2] CUTLASS examples 48 and 49 (pingpong against cooperative). [3] CUDA tuning guide for Hopper (clusters, TMA
multicast, shared memory). [4] Own measurements on an H200 (resources/records).
"""

from dataclasses import dataclass
from math import ceil

from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import (
    L2_BYTES_PER_CLOCK,
    cluster_factor,
    epilogue_smem,
    mainloop_stages,
    overlapped,
    step_clocks,
    sustained_hz,
    wgmma_clocks,
)  # fmt: skip
from templates.workload import GemmWorkload

# Rates and latencies of an H100/H200 SM, in bytes a clock and clocks; fitted to [4], used for nothing but ranking.
FILL_CLOCKS = 1200.0  # latency of the first loads from memory
EPILOGUE_CLOCKS = 500.0
EPILOGUE_BYTES_PER_CLOCK = 32.0
STREAM_K_FIXUP_CLOCKS = 9000.0  # partial tiles through memory, and the memset before the kernel
LAUNCH_US, PDL_US = 2.2, 1.0
# A cluster lies in one GPC of 16 or 18 SMs, some of which are fused off: clusters of four reach this share of the SMs.
WIDE_CLUSTER_SHARE = 0.92


@dataclass(frozen=True)
class Shape:
    """A kernel's tile laid over a workload."""

    tile_m: int
    tile_n: int
    tile_k: int
    cluster_m: int
    cluster_n: int
    schedule: str
    tiles_m: int
    tiles_n: int
    batch: int
    k_tiles: int
    tile_slots: int  # CTAs that run at once, whole clusters only

    @property
    def tiles(self) -> int:
        """Tiles the grid runs, those that only fill up a cluster included."""
        m = ceil(self.tiles_m / self.cluster_m) * self.cluster_m
        return m * ceil(self.tiles_n / self.cluster_n) * self.cluster_n * self.batch

    @property
    def rounds(self) -> int:
        """Tiles the busiest CTA takes."""
        return ceil(self.tiles / self.tile_slots)


def lay(kernel: Kernel, workload: GemmWorkload, gpu: GpuSpec) -> Shape:
    m, n, k = kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k")
    cluster_m, cluster_n = kernel.int("cluster_m"), kernel.int("cluster_n")
    cluster = cluster_m * cluster_n
    reached = gpu.sm_count * WIDE_CLUSTER_SHARE if cluster >= 4 else gpu.sm_count
    return Shape(
        m, n, k, cluster_m, cluster_n, str(kernel["schedule"]),
        ceil(workload.m / m), ceil(workload.n / n), workload.batch, ceil(workload.k / k),
        int(reached) // cluster * cluster,
    )  # fmt: skip


def stages(kernel: Kernel, gpu: GpuSpec) -> int:
    """Load stages beside the epilogue: what shared memory of this GPU leaves [3]."""
    m, n, k = kernel.int("tile_m"), kernel.int("tile_n"), kernel.int("tile_k")
    carveout = epilogue_smem(m, n, kernel["schedule"] != "pingpong", kernel.epilogue, kernel.dtype.itemsize)
    return mainloop_stages(gpu.smem_per_block, carveout, (m, n, k), kernel.dtype.itemsize)


def tile_clocks(shape: Shape, itemsize: int) -> float:
    """Products of one tile: tensor cores against the way from L2, which multicast in a cluster shortens [1][3]."""
    scale = itemsize / 2  # a tf32 wgmma takes half the k
    products = shape.tile_m / 64 * shape.tile_k / 16 * wgmma_clocks(shape.tile_n) * scale
    loaded = (shape.tile_m / shape.cluster_n + shape.tile_n / shape.cluster_m) * shape.tile_k * itemsize
    return shape.k_tiles * (
        overlapped(products, loaded / L2_BYTES_PER_CLOCK) + step_clocks(shape.schedule != "pingpong")
    )


def fill_clocks(shape: Shape, itemsize: int) -> float:
    """Until the first products: a latency and the first stage, so short problems prefer a small k tile [1]."""
    return FILL_CLOCKS + (shape.tile_m + shape.tile_n) * shape.tile_k * itemsize / L2_BYTES_PER_CLOCK


def epilogue_clocks(shape: Shape, workload: GemmWorkload) -> float:
    """Bias, activation, store; twice the bytes with a source; two warp groups share it when they cooperate [2]."""
    moved = shape.tile_m * shape.tile_n * workload.epilogue.output.itemsize * (1 + workload.epilogue.has_source)
    return EPILOGUE_CLOCKS + moved / EPILOGUE_BYTES_PER_CLOCK / (1 if shape.schedule == "pingpong" else 2)


def grid_clocks(shape: Shape, workload: GemmWorkload) -> float:
    """Persistent rounds: whole ones (the tail counts in full), pingpong hides all epilogues but the last, cooperative
    none, stream-K has no tail but adds partial tiles [1][2]."""
    tile, epilogue = tile_clocks(shape, workload.dtype.itemsize), epilogue_clocks(shape, workload)
    if shape.schedule == "stream_k":
        rounds = max(shape.tiles / shape.tile_slots, 1 / max(1, shape.k_tiles // 4))
        return rounds * (tile + epilogue) + STREAM_K_FIXUP_CLOCKS
    if shape.schedule == "cooperative":
        return shape.rounds * (tile + epilogue)
    return shape.rounds * max(tile, epilogue) + epilogue


def depth_penalty(depth: int, shape: Shape) -> float:
    """Fewer than four stages do not cover the latency of memory; more than the k tiles are useless [3]."""
    wanted = min(4, shape.k_tiles)
    return 1.0 + 0.06 * max(0, wanted - depth)


def score(candidate: Candidate, workload: GemmWorkload, gpu: GpuSpec) -> Score:
    kernel = candidate.kernel
    shape = lay(kernel, workload, gpu)
    clocks = grid_clocks(shape, workload) * depth_penalty(stages(kernel, gpu), shape)
    clocks = clocks * cluster_factor(shape.cluster_m * shape.cluster_n) + fill_clocks(shape, workload.dtype.itemsize)
    compute_us = clocks / sustained_hz(gpu) * 1e6
    memory_us = workload.bytes / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * candidate.launch.pdl
    us *= 1.0 + launch_cost(candidate.launch)
    filled = workload.m * workload.n * workload.batch / (shape.tiles * shape.tile_m * shape.tile_n)
    rounds = shape.tiles / shape.tile_slots
    limit = "memory" if memory_us > compute_us else "products"
    why = (
        f"{shape.tiles} tiles in {rounds:.2f} rounds of {shape.tile_slots}, {filled:.0%} of them used, "
        f"{stages(kernel, gpu)} stages, bound by {limit}"
    )
    return Score(us, why)


def launch_cost(launch: Launch) -> float:
    """The plain raster first; the others are tried because they moved 4096^3 by 11 % [4]."""
    return 0.002 * (launch.raster != 0) + 0.002 * (launch.swizzle > 1) + 0.001 * (launch.splits > 1)


def launches(kernel: Kernel, workload: GemmWorkload, gpu: GpuSpec) -> list[Launch]:
    """PDL decides short kernels; raster and swizzle only matter beyond one round [1][4]."""
    shape = lay(kernel, workload, gpu)
    if shape.schedule == "stream_k":  # never launched programmatically
        splits = [s for s in (2, 4) if shape.tiles * s <= 2 * shape.tile_slots and shape.k_tiles >= 4 * s]
        return [Launch(), *(Launch(splits=s) for s in splits)]
    if shape.rounds <= 1:
        return [Launch(pdl=True), Launch()]
    orders = [(0, 1), (1, 1), (2, 1)]
    if shape.rounds > 2:
        orders += [(1, 2), (2, 2), (1, 8), (2, 8)] if shape.rounds > 8 else [(1, 2), (2, 2)]
    return [Launch(pdl=True), *(Launch(raster=r, swizzle=s) for r, s in orders), Launch(pdl=True, raster=1)]
