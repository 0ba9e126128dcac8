"""The parameter space of the sm90 GEMM as data: CTA tiles, cluster shapes, schedules, swapped operands.

The space is wide along N (and along M by swapping) because few-tile products are decided by how evenly the tiles fill
the SMs: 6272x256 is 98 tiles of 128x128 but exactly 132 of 192x64, one for each SM of an H200.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from templates.family import Kernel
from templates.sm90_common import MAX_ACCUMULATORS

TILES_M = (64, 128, 192, 256)
# Widths that CUTLASS has one wgmma for. The others (80, 112, 160, ...) it declares on request only
# (CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED), which doubles the compile time of a file: 65 s for a kernel, not 28.
TILES_N = (16, 32, 64, 96, 128, 192, 256)
# 64 is the width of the 128-byte swizzle. 128 halves the barrier rounds where stages stay deep enough; 32 serves depths
# that 64 would half waste.
TILES_K = (64, 128, 32)
# Swapped operands compute D^T, which cuts M into steps of N's granularity: only extents that 64, 128, ... rows miss.
SWAPPED_N = (16, 32, 96)
# CTAs along M x N that share tiles by TMA multicast; four for tiles that two of them can't feed from L2.
CLUSTERS = ((1, 1), (2, 1), (1, 2))
WIDE_CLUSTERS = ((2, 2), (4, 1), (1, 4))
WIDE_CLUSTER_TILE = 64 * 64  # elements of the smallest tile that clusters of four are tried on
# pingpong: a tile for each consumer warp group, one's epilogue behind the other's products.
# cooperative: one tile for both. stream_k: cooperative, work cut along K.
SCHEDULES = ("pingpong", "cooperative", "stream_k")


@dataclass(frozen=True)
class Point:
    """An instance. `tile_m` and `tile_n`, `cluster_m` and `cluster_n` are of the product that is computed: N x M of
    the workload's if `swap`."""

    tile_m: int
    tile_n: int
    tile_k: int
    cluster_m: int
    cluster_n: int
    schedule: str
    swap: bool = False

    @property
    def accumulators(self) -> int:
        """fp32 accumulators a consumer thread holds."""
        return self.tile_m * self.tile_n // (128 if self.schedule == "pingpong" else 256)

    @property
    def params(self) -> tuple[tuple[str, int | str], ...]:
        """A kernel's parameters; `operands` only where they are swapped, so that earlier records still match.

        It is a name and not a number, which makes it a style: some of each are tried (core/search/rank.py).
        """
        found: dict[str, int | str] = {
            "tile_m": self.tile_m, "tile_n": self.tile_n, "tile_k": self.tile_k,
            "cluster_m": self.cluster_m, "cluster_n": self.cluster_n, "schedule": self.schedule,
        }  # fmt: skip
        return tuple(sorted((found | {"operands": "swapped"} if self.swap else found).items()))

    @property
    def stem(self) -> str:
        tile, cluster = f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"{self.cluster_m}x{self.cluster_n}"
        return f"{tile}_{cluster}_{self.schedule}" + "_swap" * self.swap


def point_of(kernel: Kernel) -> Point:
    params = dict(kernel.params)
    m, n, k, cluster_m, cluster_n = (int(params[f]) for f in ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n"))
    return Point(m, n, k, cluster_m, cluster_n, str(params["schedule"]), params.get("operands") == "swapped")


def points() -> Iterator[Point]:
    """Every point that the schedules' own limits allow: registers, and 64 rows for each cooperating warp group."""
    for schedule in SCHEDULES:
        for m in TILES_M:
            if schedule != "pingpong" and m % 128:
                continue
            for n in TILES_N:
                for swap in (False, True):
                    for k in TILES_K:
                        point = Point(m, n, k, 1, 1, schedule, swap)
                        if point.accumulators <= MAX_ACCUMULATORS and _useful(point):
                            yield from _clustered(point)


def _useful(point: Point) -> bool:
    """Leaves out what another point does as well: swaps in the rarer depths and schedules, shallow stream-K."""
    if point.swap:
        return point.tile_n in SWAPPED_N and point.schedule != "stream_k" and point.tile_k == 64
    return point.tile_k >= 64 or point.schedule != "stream_k"


def _clustered(point: Point) -> Iterator[Point]:
    p = point
    wide = p.tile_m * p.tile_n >= WIDE_CLUSTER_TILE and p.tile_k == 64 and p.schedule != "stream_k"
    for cluster_m, cluster_n in CLUSTERS + (WIDE_CLUSTERS if wide else ()):
        yield Point(p.tile_m, p.tile_n, p.tile_k, cluster_m, cluster_n, p.schedule, p.swap)
