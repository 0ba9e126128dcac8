"""How a kernel's tiles fill the GPU: whole waves, the tail of the last one, and tiles that reach past the result."""

from dataclasses import dataclass
from math import ceil

from templates.family import Candidate
from templates.gpu import GpuSpec
from templates.workload import ConvWorkload, GemmWorkload, Workload

# Names that families give the extents of a threadblock's tile of the (implicit) GEMM's result.
_TILES = (("tile_m", "tile_n"), ("tb_m", "tb_n"))


@dataclass(frozen=True)
class Waves:
    """`tile` is (M, N) of one threadblock; one threadblock an SM at a time. `idle` and `waste` are shares, 0 to 1."""

    tile: tuple[int, int]
    tiles: int
    count: float
    idle: float
    waste: float


def tile_shape(candidate: Candidate) -> tuple[int, int] | None:
    """(M, N) of the kernel's tile; None for families whose blocks are no plain tiles of a GEMM."""
    params = dict(candidate.kernel.params)
    for m, n in _TILES:
        if m in params and n in params:
            return int(params[m]), int(params[n])
    return None


def waves_of(workload: Workload, candidate: Candidate, gpu: GpuSpec) -> Waves | None:
    """None where the workload is no GEMM or ungrouped convolution, the tile is not plain, or K is split."""
    tile = tile_shape(candidate)
    if tile is None or candidate.launch.splits > 1:
        return None
    if isinstance(workload, GemmWorkload):
        m, n, batch = workload.m, workload.n, workload.batch
    elif isinstance(workload, ConvWorkload) and workload.groups == 1:
        (m, n, _), batch = workload.implicit_gemm, 1
    else:
        return None
    tiles = ceil(m / tile[0]) * ceil(n / tile[1]) * batch
    count = tiles / gpu.sm_count
    waste = 1.0 - m * n * batch / (tiles * tile[0] * tile[1])
    return Waves(tile, tiles, count, 1.0 - count / ceil(count), waste)
