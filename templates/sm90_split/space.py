"""The parameter space of the cluster split-K family as data: tiles of the mainloop, swapped operands."""

from collections.abc import Iterator
from dataclasses import dataclass

from templates.sm90_common import PIPELINE_BYTES, RESERVED_PER_BLOCK, SMEM_PER_SM, round_up
from templates.types import DType

# M x N of one consumer warp group. Large tiles need few bytes for each product and get their parallelism from the
# split; the small ones serve outputs of a few rows or columns.
TILES = (
    (64, 32), (64, 64), (64, 96), (64, 128), (64, 192), (64, 256),
    (128, 32), (128, 64), (128, 96), (128, 128), (128, 192), (192, 64), (192, 128),
)  # fmt: skip
# Of D^T: N x M. wgmma takes 64 rows and as few as 8 columns, so a small M costs what it is.
SWAPPED = ((64, 8), (64, 16), (64, 32), (64, 64), (128, 8), (128, 16), (128, 32), (128, 64))
TILES_K = (64, 128)  # of 16-bit elements; half as many of 32 bits
WIDEST_DEEP_TILE = 64 * 96  # a K tile of 128 halves the barrier rounds; of larger tiles too few stages would fit

SMALLEST_RING = 3  # stages that hide the latency of memory at all; fewer leave the SM to one CTA
DEEPEST_RING = 8
MAX_ACCUMULATORS = 192  # of 255 registers; two CTAs of 160 threads get 200 each
MAX_PAIRED_ACCUMULATORS = 144
MAX_SPLITS = 8  # kMaxSplits in include/bolt/sm90_split.hpp: the largest portable cluster


@dataclass(frozen=True)
class Point:
    """An instance. `tile_m` and `tile_n` are of the mainloop: of D^T if `swap`."""

    tile_m: int
    tile_n: int
    tile_k: int
    swap: bool = False

    @property
    def accumulators(self) -> int:
        """fp32 accumulators of a consumer thread."""
        return self.tile_m * self.tile_n // 128

    @property
    def rows(self) -> int:
        """Rows of D in a tile."""
        return self.tile_n if self.swap else self.tile_m

    @property
    def columns(self) -> int:
        return self.tile_m if self.swap else self.tile_n

    def exchange_bytes(self) -> int:
        """What the partial sums take in place of the stages (kExchangeFloats in the header)."""
        return (self.rows + MAX_SPLITS - 1) * (self.columns + (4 if self.swap else 8)) * 4

    def shared_bytes(self, stages: int, itemsize: int) -> int:
        """sizeof(SharedStorage) in the header, to within its alignment."""
        ring = (self.tile_m + self.tile_n) * self.tile_k * itemsize * stages
        return round_up(max(ring, self.exchange_bytes()) + PIPELINE_BYTES * stages, 128)

    def blocks_and_stages(self, itemsize: int) -> tuple[int, int] | None:
        """CTAs that share an SM and the stages of each: two if both get a useful ring and registers; None if none."""
        for blocks in (2, 1):
            if self.accumulators > (MAX_PAIRED_ACCUMULATORS if blocks == 2 else MAX_ACCUMULATORS):
                continue
            limit = SMEM_PER_SM // blocks - RESERVED_PER_BLOCK
            fitting = [s for s in range(2, DEEPEST_RING + 1) if self.shared_bytes(s, itemsize) <= limit]
            if fitting and (fitting[-1] >= SMALLEST_RING or blocks == 1):
                return blocks, fitting[-1]
        return None

    def params(self, op: str, itemsize: int) -> dict[str, int | str]:
        blocks, stages = self.blocks_and_stages(itemsize) or (1, 0)
        return {
            "tile_m": self.tile_m, "tile_n": self.tile_n, "tile_k": self.tile_k, "swap": int(self.swap),
            "stages": stages, "blocks_per_sm": blocks, "op": op,
        }  # fmt: skip

    def stem(self, op: str) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.tile_k}" + "_swap" * self.swap + "_conv" * (op == "conv")


def points(op: str, dtype: DType) -> Iterator[Point]:
    """Every instance for products ("gemm") or convolutions ("conv") of these operands that fits an SM."""
    shapes = [(m, n, False) for m, n in TILES] + [(m, n, True) for m, n in SWAPPED if op == "gemm"]
    for m, n, swap in shapes:
        for k in TILES_K:
            point = Point(m, n, k * 2 // dtype.itemsize, swap)
            deep = k > TILES_K[0]
            if not (deep and (m * n > WIDEST_DEEP_TILE or op == "conv")) and point.blocks_and_stages(dtype.itemsize):
                yield point
