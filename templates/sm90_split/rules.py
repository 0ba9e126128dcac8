"""Ranking rules of the cluster split-K family; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_split.hpp). [2] CUDA programming guide, distributed shared
memory and clusters. [3] CUTLASS docs, "Efficient GEMM in CUTLASS" (split-K). [4] Own measurements on an H200 of the
other Hopper families (resources/records), whose rates are taken over.
"""

from dataclasses import dataclass
from math import ceil

from templates.family import Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import (
    IM2COL_BYTES_PER_CLOCK,
    L2_BYTES_PER_CLOCK,
    LAUNCH_US,
    MEMORY_OVERLAP_LOSS,
    PDL_US,
    SM_BYTES_PER_CLOCK,
    cluster_slots,
    conv_bytes,
    wgmma_clocks,
)  # fmt: skip
from templates.sm90_split.space import MAX_SPLITS, Point
from templates.workload import GemmWorkload, Single

SPLITS = (1, 2, 3, 4, 5, 6, 8)
LEAST_STEPS = 3  # of a CTA; with fewer the fill and the exchange are all there is
STEP_CLOCKS = 30.0  # barrier round of a K tile: four warps release it
FILL_CLOCKS = 1500.0  # latency of the first activations from memory; the weights came before [1]
EXCHANGE_CLOCKS = 700.0  # two cluster barriers and the latency of remote shared memory [2]
EXCHANGE_BYTES_PER_CLOCK = 24.0  # into a CTA through distributed shared memory [2]
LOCAL_EXCHANGE_CLOCKS = 150.0
FINISH_BYTES_PER_CLOCK = 24.0  # sums read, D written, the source read
# Numerics run on an H200 (2026-11-29); speed not yet measured: the estimates are held back beside those that have been
# fitted.
UNMEASURED = 1.1
MOST_FILLED = 3.0  # more rounds of CTAs than this belong to the persistent families


@dataclass(frozen=True)
class Shape:
    """An instance and a split laid over a workload."""

    tiles: int
    steps: int  # of a CTA
    ctas: int
    resident: int  # CTAs that run side by side on the busiest SM
    turns: int  # how often that many follow each other there


def extents(workload: Single) -> tuple[int, int, int]:
    """(rows, columns, batch) of D."""
    if isinstance(workload, GemmWorkload):
        return workload.m, workload.n, workload.batch
    return workload.n * workload.p * workload.q, workload.k, 1


def k_tiles(point: Point, workload: Single) -> int:
    """K tiles of an output tile: channel chunks times filter taps of a convolution."""
    if isinstance(workload, GemmWorkload):
        return ceil(workload.k / point.tile_k)
    return ceil(workload.c / point.tile_k) * workload.r * workload.s


def tile_count(point: Point, workload: Single) -> int:
    rows, columns, batch = extents(workload)
    return ceil(rows / point.rows) * ceil(columns / point.columns) * batch


def lay(kernel: Kernel, point: Point, splits: int, workload: Single, gpu: GpuSpec) -> Shape:
    tiles = tile_count(point, workload)
    ctas = tiles * splits
    resident = 1 if ctas <= cluster_slots(gpu, splits) else kernel.int("blocks_per_sm")
    turns = ceil(ctas / cluster_slots(gpu, splits, resident))
    return Shape(tiles, ceil(k_tiles(point, workload) / splits), ctas, resident, turns)


def objection(point: Point, workload: Single, gpu: GpuSpec, most_filled: float = MOST_FILLED) -> str | None:
    """What this family leaves to the others, or a tile that is mostly empty."""
    rows, columns, batch = extents(workload)
    if isinstance(workload, GemmWorkload) and batch > 65535:
        return f"batch {batch} is more than 65535"
    rounds = tile_count(point, workload) / gpu.sm_count
    if rounds > most_filled:
        return f"{rounds:.1f} tiles for each SM: there is nothing to gain from splitting K"
    for axis, tile, extent, least in (
        ("rows", point.rows, rows, 8 if point.swap else 64),
        ("columns", point.columns, columns, 64 if point.swap else 32),
    ):
        if tile > least and tile >= 2 * extent:
            return f"half of the tile's {tile} {axis} would be empty"
    if point.swap and rows > 64:
        return f"{rows} rows fill wgmma's 64 without swapping the operands"
    return None


def split_counts(point: Point, workload: Single, gpu: GpuSpec) -> list[int]:
    """Splits that leave every CTA some steps, and no more CTAs than a few for each SM [3]."""
    most = k_tiles(point, workload) // LEAST_STEPS
    tiles = tile_count(point, workload)
    return [s for s in SPLITS if s == 1 or (s <= min(most, MAX_SPLITS) and tiles * s <= MOST_FILLED * gpu.sm_count)]


def clocks(kernel: Kernel, point: Point, splits: int, workload: Single, gpu: GpuSpec) -> float:
    """CTAs that share an SM share its tensor cores and its way to L2, and cover each other's other phases [1]."""
    shape, size = lay(kernel, point, splits, workload, gpu), workload.dtype.itemsize
    products = point.tile_m / 64 * point.tile_k * size / 32 * wgmma_clocks(point.tile_n)
    fetched = (point.tile_m + point.tile_n) * point.tile_k * size
    active = min(shape.ctas, gpu.sm_count * shape.resident)
    loads = max(fetched * shape.resident / SM_BYTES_PER_CLOCK, fetched * active / L2_BYTES_PER_CLOCK)
    if not isinstance(workload, GemmWorkload):
        loads = max(loads, point.tile_m * point.tile_k * size * shape.resident / IM2COL_BYTES_PER_CLOCK)
    step = max(products * shape.resident, loads) + STEP_CLOCKS
    partial = point.tile_m * point.tile_n * 4
    exchange = LOCAL_EXCHANGE_CLOCKS + partial / 128
    if splits > 1:
        exchange = EXCHANGE_CLOCKS + partial * (splits - 1) / splits / EXCHANGE_BYTES_PER_CLOCK
    moved = partial + point.tile_m * point.tile_n * workload.epilogue.output.itemsize * (
        1 + workload.epilogue.has_source
    ) / splits  # fmt: skip
    rest = FILL_CLOCKS + exchange + moved / FINISH_BYTES_PER_CLOCK / (1 if splits == 1 else 1.5)
    return shape.turns * (shape.steps * step + rest)


def score(kernel: Kernel, point: Point, launch: Launch, workload: Single, gpu: GpuSpec) -> Score:
    shape = lay(kernel, point, launch.splits, workload, gpu)
    compute_us = clocks(kernel, point, launch.splits, workload, gpu) / gpu.clock_mhz
    memory = workload.bytes if isinstance(workload, GemmWorkload) else conv_bytes(workload)
    memory_us = memory / (gpu.dram_gbs * 1e3) * max(1.0, 0.5 * gpu.sm_count / shape.ctas)  # few CTAs pull little
    us = max(compute_us, memory_us) + MEMORY_OVERLAP_LOSS * min(compute_us, memory_us)
    us = UNMEASURED * us + LAUNCH_US - PDL_US * launch.pdl
    rows, columns, batch = extents(workload)
    used = rows * columns * batch / (shape.tiles * point.tile_m * point.tile_n)
    cut = f"K cut in {launch.splits}: " if launch.splits > 1 else ""
    why = (
        f"{cut}{shape.ctas} CTAs of {shape.steps} steps, {shape.resident} side by side on an SM, {used:.0%} of the "
        f"tiles used, {kernel.int('stages')} stages, bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)


def launches(kernel: Kernel, point: Point, workload: Single, gpu: GpuSpec) -> list[Launch]:
    """Cluster sizes by their estimate, then the best one without PDL and along M."""
    counts = split_counts(point, workload, gpu)
    order = sorted(counts, key=lambda s: clocks(kernel, point, s, workload, gpu))
    found = [Launch(splits=s, pdl=True) for s in order[:5]]
    return [*found, Launch(splits=order[0]), Launch(splits=order[0], raster=1, pdl=True)]
