"""The instances of the mma.sync pair kernels as data, and what each asks of a pair.

Seeds are the tiles of CUTLASS's example 13 (fused_two_gemms_f16_sm80_{rf,shmem}.cu), for any widths.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Literal

from templates.tensorop import Tile

Residence = Literal["rf", "smem"]  # where the intermediate stays: registers, or shared memory
MAX_WIDTH = 256
# Rows of a block, warps along M and N for the first product and for the second. In registers every warp needs whole
# rows of the intermediate, so no warp may split N.
_Shape = tuple[Residence, int, tuple[int, int], tuple[int, int]]
_SHAPES: tuple[_Shape, ...] = (
    ("rf", 64, (4, 1), (4, 1)), ("rf", 128, (4, 1), (4, 1)), ("rf", 128, (8, 1), (8, 1)),
    ("smem", 64, (2, 2), (2, 2)), ("smem", 64, (2, 2), (1, 4)), ("smem", 128, (2, 2), (2, 2)),
    ("smem", 128, (4, 2), (4, 2)), ("smem", 128, (4, 2), (2, 4)),
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """`m`, `n0`, `n1`, `k` in elements; warps along each axis of both products; `inst_k`: depth of an instruction."""

    residence: Residence
    m: int
    n0: int
    n1: int
    k: int
    warps_m0: int
    warps_n0: int
    warps_m1: int
    warps_n1: int
    stages: int
    inst_k: int
    conv: int

    @property
    def params(self) -> dict[str, int | str]:
        return asdict(self)

    @property
    def stem(self) -> str:
        conv = "_conv" if self.conv else ""
        return (
            f"{self.m}x{self.n0}x{self.n1}x{self.k}{self.residence}_{self.warps_m0}x{self.warps_n0}_"
            f"{self.warps_m1}x{self.warps_n1}_s{self.stages}_i{self.inst_k}{conv}"
        )

    @property
    def first(self) -> Tile:
        return Tile(self.m, self.n0, self.k, self.warps_m0, self.warps_n0, 1, self.stages, self.inst_k)

    @property
    def second(self) -> Tile:
        return Tile(self.m, self.n1, self.k, self.warps_m1, self.warps_n1, 1, self.stages, self.inst_k)

    def smem_bytes(self, itemsize: int) -> int:
        """Shared memory of the block (threadblock/b2b_mma_base.h, b2b_mma_base_smem_accumulator.h): the stages of the
        larger product, its room for A counted though the second has none; beside them the intermediate, padded by eight
        columns, if it goes that way; or the epilogue's staging buffer.
        """
        stages = max(self.m + self.n0, self.m + self.n1) * self.k * self.stages * itemsize
        intermediate = self.m * (self.n0 + 8) * itemsize if self.residence == "smem" else 0
        epilogue = 2 * 8 * self.warps_m1 * (self.n1 + 8) * 4
        return max(stages + intermediate, epilogue)


def instances(n0: int, n1: int, conv: bool, sm: int) -> Iterator[Instance]:
    """Every point for these widths on an architecture, legal or not."""
    depths = ((32, 2),) if sm < 80 else ((32, 3), (32, 4), (64, 3))
    for (residence, m, warps0, warps1), (k, stages) in product(_SHAPES, depths):
        yield Instance(residence, m, n0, n1, k, *warps0, *warps1, stages, 8 if sm < 80 else 16, int(conv))


def tile_objection(i: Instance, itemsize: int) -> str | None:
    """Why the instance can't compute its own widths: each of these was seen to give wrong values, or not to compile."""
    if i.n0 % i.k:
        return f"N0 = {i.n0} is not a multiple of the K tile {i.k}: the operand and B1 would be out of step"
    if i.n1 & (i.n1 - 1):
        return f"N1 = {i.n1} is no power of two: a row of the result does not divide the lanes of a warp"
    for name, tile in (("N0", i.first), ("N1", i.second)):
        warp_m, warp_n, _ = tile.warp
        if warp_n < 32 or warp_n % 16:
            return f"{name} = {tile.n} over {tile.warps_n} warps is {warp_n} columns each: less than 32 do not compile"
        if warp_m < 16:
            return f"{tile.m} rows over {tile.warps_m} warps are {warp_m} each, an instruction has 16"
        if tile.n * i.k // 8 % tile.threads:
            return f"{name} = {tile.n}: a K tile of B is no whole number of accesses for each of {tile.threads} threads"
    if i.second.store_width(8, itemsize) < 8:
        return f"N1 = {i.n1} is too narrow for accesses of {8 * itemsize} bytes by {i.second.warps} warps"
    return _register_objection(i)


def _register_objection(i: Instance) -> str | None:
    """Limits found by compiling the space for sm_80. In registers both sets of accumulators live side by side; through
    shared memory one after the other, the first one beside the iterators of both products.
    """
    first, second = i.first.accumulators, i.second.accumulators
    if i.residence == "rf" and first + second > 144:
        return f"{first} and {second} accumulators a thread spill registers"
    if i.residence == "smem" and (first >= 128 or second > 128):
        return f"{first}, then {second} accumulators a thread spill registers"
    return None
