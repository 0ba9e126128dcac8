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
    LAUNCH_US,
    MEMORY_OVERLAP_LOSS,
    PDL_US,
    cluster_slots,
    epilogue_smem,
    mainloop_stages,
    wgmma_clocks,
)  # fmt: skip
from templates.sm90_gemm.space import Point, point_of
from templates.sm90_power import power_us
from templates.workload import GemmWorkload

# Rates and latencies of an H100/H200, in bytes a clock and clocks: those with which the estimates are nearest to [4],
# used for nothing but ranking (tests/templates/test_sm90_ranking.py says how near).
FILL_CLOCKS = 1400.0  # latency of the first loads from memory
EPILOGUE_CLOCKS = 260.0
EPILOGUE_BYTES_PER_CLOCK = 20.0
SM_BYTES_PER_CLOCK = 128.0  # what shared memory takes in, tiles that a cluster shares included
FABRIC_BYTES_PER_CLOCK = 8500.0  # the same into all SMs together: multicast spares L2 reads, not deliveries
STREAM_K_FIXUP_CLOCKS = 9000.0  # partial tiles through memory, and the memset before the kernel
# Barrier round of a k tile: one group releases it, or two do. The other group's products hide it in pingpong, unless a
# CTA has one tile only: there a k tile of 128 halves what nothing hides (49x512x2048).
PINGPONG_STEP_CLOCKS, ALONE_STEP_CLOCKS, COOPERATIVE_STEP_CLOCKS = 4.0, 60.0, 115.0
CLUSTER_LOSS = 0.015  # for each further CTA that a cluster keeps in step
# Tiles of sixteen columns begin and end sooner than those of 32 (3025x16x64, one step: by 0.2 us), but ask for A twice
# as often, which costs as much for each 64 of K where CTAs on all SMs do (196x512x1024), and nothing where few do [4].
NARROW_COLUMNS, NARROW_GAIN_CLOCKS, NARROW_STEP_CLOCKS = 16, 350.0, 145.0
# Where power is the limit, a byte from L2 costs as much as this many operations (4096x4096x4096: the tile of 128x128
# in pairs is 5 % behind that of 128x256), and products alone would run this much faster than they do with their loads.
OPERATIONS_PER_L2_BYTE, BARE_PRODUCTS = 14.0, 1.07


@dataclass(frozen=True)
class Shape:
    """A kernel's tile laid over a workload; M and N are those of the product that is computed (swapped or not)."""

    point: Point
    tiles_m: int
    tiles_n: int
    batch: int
    k_tiles: int
    tile_slots: int  # CTAs that run at once, whole clusters only

    @property
    def tiles(self) -> int:
        """Tiles the grid runs, those that only fill up a cluster included."""
        m = ceil(self.tiles_m / self.point.cluster_m) * self.point.cluster_m
        return m * ceil(self.tiles_n / self.point.cluster_n) * self.point.cluster_n * self.batch

    @property
    def rounds(self) -> int:
        """Tiles the busiest CTA takes."""
        return ceil(self.tiles / self.tile_slots)

    @property
    def active(self) -> int:
        """CTAs that load at the same time."""
        return min(self.tiles, self.tile_slots)


def lay(kernel: Kernel, workload: GemmWorkload, gpu: GpuSpec) -> Shape:
    point = point_of(kernel)
    m, n = (workload.n, workload.m) if point.swap else (workload.m, workload.n)
    return Shape(
        point, ceil(m / point.tile_m), ceil(n / point.tile_n), workload.batch, ceil(workload.k / point.tile_k),
        cluster_slots(gpu, point.cluster_m * point.cluster_n),
    )  # fmt: skip


def stages(kernel: Kernel, gpu: GpuSpec) -> int:
    """Load stages beside the epilogue: what shared memory of this GPU leaves [3]."""
    p = point_of(kernel)
    carveout = epilogue_smem(
        p.tile_m, p.tile_n, p.schedule != "pingpong", kernel.epilogue, kernel.dtype.itemsize, p.swap
    )
    return mainloop_stages(gpu.smem_per_block, carveout, (p.tile_m, p.tile_n, p.tile_k), kernel.dtype.itemsize)


def step_bytes(shape: Shape, itemsize: int) -> float:
    """What a CTA fetches from L2 for a K tile: multicast counts once for the cluster [3]."""
    p = shape.point
    return (p.tile_m / p.cluster_n + p.tile_n / p.cluster_m) * p.tile_k * itemsize


def tile_clocks(shape: Shape, itemsize: int) -> float:
    """Products of one tile: tensor cores against the way from L2, which multicast in a cluster shortens [1][3].

    L2 gives all SMs together less than their tensor cores eat with small tiles, so among tiles that fill the SMs
    equally well the one with the fewest bytes for each product wins [4].
    """
    p = shape.point
    products = p.tile_m / 64 * p.tile_k / 16 * wgmma_clocks(p.tile_n) * itemsize / 2  # a tf32 wgmma takes half the k
    from_l2 = step_bytes(shape, itemsize) * shape.active / L2_BYTES_PER_CLOCK
    into_sm = (p.tile_m + p.tile_n) * p.tile_k * itemsize
    step = max(products, from_l2, into_sm / SM_BYTES_PER_CLOCK, into_sm * shape.active / FABRIC_BYTES_PER_CLOCK)
    if p.schedule != "pingpong":
        step += COOPERATIVE_STEP_CLOCKS
    else:
        step += PINGPONG_STEP_CLOCKS if shape.rounds > 1 else ALONE_STEP_CLOCKS
    if p.tile_n <= NARROW_COLUMNS:
        step += NARROW_STEP_CLOCKS * p.tile_k / 64 * shape.active / shape.tile_slots
    return shape.k_tiles * step


def fill_clocks(shape: Shape, itemsize: int) -> float:
    """Until the first products: a latency and the first stage, so short problems prefer a small k tile [1]."""
    p = shape.point
    gain = NARROW_GAIN_CLOCKS if p.tile_n <= NARROW_COLUMNS else 0.0
    return FILL_CLOCKS + (p.tile_m + p.tile_n) * p.tile_k * itemsize / SM_BYTES_PER_CLOCK - gain


def epilogue_clocks(shape: Shape, workload: GemmWorkload) -> float:
    """Bias, activation, store; twice the bytes with a source; two warp groups share it when they cooperate [2]."""
    p = shape.point
    moved = p.tile_m * p.tile_n * workload.epilogue.output.itemsize * (1 + workload.epilogue.has_source)
    return EPILOGUE_CLOCKS + moved / EPILOGUE_BYTES_PER_CLOCK / (1 if p.schedule == "pingpong" else 2)


def grid_clocks(shape: Shape, workload: GemmWorkload) -> float:
    """Persistent rounds: whole ones (the tail counts in full), pingpong hides all epilogues but the last, cooperative
    none, stream-K has no tail but adds partial tiles [1][2]."""
    tile, epilogue = tile_clocks(shape, workload.dtype.itemsize), epilogue_clocks(shape, workload)
    if shape.point.schedule == "stream_k":
        rounds = max(shape.tiles / shape.tile_slots, 1 / max(1, shape.k_tiles // 4))
        return rounds * (tile + epilogue) + STREAM_K_FIXUP_CLOCKS
    if shape.point.schedule == "cooperative":
        return shape.rounds * (tile + epilogue)
    return shape.rounds * max(tile, epilogue) + epilogue


def depth_penalty(depth: int, shape: Shape) -> float:
    """Fewer than four stages do not cover the latency of memory; more than the k tiles are useless [3]."""
    wanted = min(4, shape.k_tiles)
    return 1.0 + 0.06 * max(0, wanted - depth)


def score(candidate: Candidate, workload: GemmWorkload, gpu: GpuSpec) -> Score:
    kernel = candidate.kernel
    shape = lay(kernel, workload, gpu)
    depth, p, size = stages(kernel, gpu), shape.point, workload.dtype.itemsize
    clocks = grid_clocks(shape, workload) * depth_penalty(depth, shape)
    clocks = clocks * (1.0 + CLUSTER_LOSS * (p.cluster_m * p.cluster_n - 1))
    clocks += fill_clocks(shape, size)
    fetched = step_bytes(shape, size) * shape.k_tiles * shape.tiles
    held_us = power_us(workload.flops * size / 2, fetched, OPERATIONS_PER_L2_BYTE, BARE_PRODUCTS, gpu)
    compute_us = max(clocks / gpu.clock_mhz, held_us)
    memory_us = workload.bytes / (gpu.dram_gbs * 1e3)
    us = max(compute_us, memory_us) + MEMORY_OVERLAP_LOSS * min(compute_us, memory_us)
    us += LAUNCH_US - PDL_US * candidate.launch.pdl
    us *= 1.0 + launch_cost(candidate.launch)
    filled = workload.m * workload.n * workload.batch / (shape.tiles * p.tile_m * p.tile_n)
    rounds = shape.tiles / shape.tile_slots
    limit = "memory" if memory_us > compute_us else "products"
    why = (
        f"{shape.tiles} tiles in {rounds:.2f} rounds of {shape.tile_slots}, {filled:.0%} of them used, "
        f"{depth} stages, bound by {limit}"
    )
    return Score(us, why)


def launch_cost(launch: Launch) -> float:
    """The plain raster first; the others are tried because they moved 4096^3 by 11 % [4]."""
    return 0.002 * (launch.raster != 0) + 0.002 * (launch.swizzle > 1) + 0.001 * (launch.splits > 1)


def launches(kernel: Kernel, workload: GemmWorkload, gpu: GpuSpec) -> list[Launch]:
    """PDL decides short kernels; raster and swizzle only matter beyond one round [1][4]."""
    shape = lay(kernel, workload, gpu)
    if shape.point.schedule == "stream_k":  # never launched programmatically
        splits = [s for s in (2, 4) if shape.tiles * s <= 2 * shape.tile_slots and shape.k_tiles >= 4 * s]
        return [Launch(), *(Launch(splits=s) for s in splits)]
    if shape.rounds <= 1:
        return [Launch(pdl=True), Launch()]
    orders = [(0, 1), (1, 1), (2, 1)]
    if shape.rounds > 2:
        orders += [(1, 2), (2, 2), (1, 8), (2, 8)] if shape.rounds > 8 else [(1, 2), (2, 2)]
    return [Launch(pdl=True), *(Launch(raster=r, swizzle=s) for r, s in orders), Launch(pdl=True, raster=1)]
