"""The ways CUTLASS 2.x walks the K axis (R*S*C) of an implicit GEMM, and what each asks of the shape."""

from dataclasses import dataclass
from math import ceil

from templates.tensorop import Tile
from templates.workload import ConvWorkload


@dataclass(frozen=True)
class Iterators:
    """A pair of activation and filter iterators. `cutlass` names the enumerator of conv::IteratorAlgorithm."""

    name: str
    cutlass: str
    slowdown: float  # of the main loop against the optimized iterators, for ranking

    def k_steps(self, workload: ConvWorkload, tile_k: int) -> int:
        """Main loop iterations (conv2d_problem_size.h implicit_gemm_k_iterations)."""
        taps = workload.r * workload.s
        if self.name == "fixed":
            return ceil(taps / (tile_k // workload.c))
        if self.name == "few":
            return ceil(taps * workload.c / tile_k)
        return taps * ceil(workload.c / tile_k)

    def objection(self, workload: ConvWorkload, tile: Tile, alignment: int) -> str | None:
        """What the iterators can't do, or when another pair is the better one on any shape."""
        if self.name == "optimized" and max(workload.r, workload.s) > 32:
            return (
                f"the optimized iterators keep a bit for each tap, 32 at most; the filter is {workload.r}x{workload.s}"
            )
        if self.name == "analytic" and max(workload.r, workload.s) <= 32:
            return "the optimized iterators serve this filter"
        if self.name == "fixed" and (workload.c != alignment or workload.c not in (4, 8)):
            return f"the fixed-channel iterators need C = 4 or 8, read in one access; C = {workload.c}"
        if self.name == "few" and self.k_steps(workload, tile.k) >= OPTIMIZED.k_steps(workload, tile.k):
            return f"C = {workload.c} fills the K tiles of {tile.k}: packing taps together gains nothing"
        return self._spills(tile, alignment, workload.dtype.itemsize)

    def _spills(self, tile: Tile, alignment: int, itemsize: int) -> str | None:
        """Where ptxas spills, from 76 to hundreds of bytes a thread: found by compiling the whole space for sm_90a.

        The activation iterators keep n, p and q of every access, and the few-channel ones divide for each.
        """
        activations = tile.m * tile.k // tile.threads // alignment
        if self.name == "few" and tile.k * itemsize > 64:
            return f"few-channel iterators spill registers with K tiles of {tile.k}"
        packed = self.name in ("few", "fixed") and tile.stages > 2
        if packed and tile.accumulators >= 64 and tile.accesses(alignment) >= 24:
            return f"{self.name}-channel iterators spill registers with accesses of {alignment * itemsize} bytes"
        if tile.accumulators >= 128 and (activations >= 16 or (self.name == "fixed" and alignment == 4)):
            return f"{self.name} iterators beside {tile.accumulators} accumulators a thread spill registers"
        return None


OPTIMIZED = Iterators("optimized", "kOptimized", 1.0)
ALL = (
    OPTIMIZED,
    Iterators("analytic", "kAnalytic", 1.6),
    Iterators("fixed", "kFixedChannels", 1.1),
    Iterators("few", "kFewChannels", 1.3),
)
BY_NAME = {i.name: i for i in ALL}
