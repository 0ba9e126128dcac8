"""What the parameters of candidates mean, in words, and the few that every engineer asks for first."""

from collections.abc import Mapping
from dataclasses import dataclass

from templates import families as all_families
from templates.family import Family, Kernel
from templates.gpu import GpuSpec
from templates.workload import Workload

# What a compile-time parameter decides, by its name; families share names where they mean the same.
MEANINGS = {
    "tile_m": "rows of the output (pixels of a convolution) that a thread block computes",
    "tile_n": "columns of the output (filters) that a thread block computes",
    "tile_k": "depth of one step of the main loop",
    "tb_m": "rows of the output that a thread block computes",
    "tb_n": "columns of the output that a thread block computes",
    "tb_k": "depth of one step of the main loop",
    "cluster_m": "thread blocks along the rows that share their loads by multicast",
    "cluster_n": "thread blocks along the columns that share their loads by multicast",
    "schedule": "how warps share the work: pingpong computes one tile while it stores another, cooperative splits a "
    "tile, stream_k also splits its depth",
    "warps_m": "warps side by side along the rows",
    "warps_n": "warps side by side along the columns",
    "warps_k": "warps that share the depth and add up at the end",
    "stages": "steps that are loaded ahead of the one being computed",
    "inst_k": "depth of one tensor core instruction",
    "split": "whether the depth is split over thread blocks that add up in memory",
    "iterator": "how a convolution's addresses are worked out",
    "method": "how the direct convolution lays its work out",
    "micro_p": "pixels that a thread keeps",
    "micro_k": "filters that a thread keeps",
    "tile_p": "pixels that a thread block computes",
    "vec": "elements of one load",
    "vec_out": "elements of one store",
    "pixels": "pixels of a patch that one warp group computes",
    "pixel_groups": "warp groups side by side over pixels",
    "channel_groups": "warp groups side by side over output channels",
    "blocks_per_sm": "thread blocks that share an SM",
    "taps_per_stage": "filter taps that arrive together",
    "weights": "resident: the filter stays in shared memory; streamed: it is loaded for each patch",
    "groups": "warp groups that compute",
    "swap": "1: the transposed product is computed, so that a small M becomes the columns of a tile",
    "operands": "swapped: the transposed product is computed, which cuts the rows of the output more finely",
    "op": "what the kernel is built for: gemm or conv",
    "buffers": "output buffers that take turns",
    "rows": "rows of the output that a thread block computes",
    "columns": "pixels of a row that a thread block computes",
    "phases": "filter rows that one pass serves",
    "warps": "warps of a thread block, 16 queries of attention each",
    "turns": "whether two warp groups take turns, one's softmax behind the other's products",
    "keys": "keys of attention that pass at a time",
    "head": "width of queries and keys that the kernel is built for",
    "value": "width of values that the kernel is built for",
    "mask": "what the mask does to the scores of attention",
    "causal": "whether a query sees no key behind its own place",
    "block_c": "threads of a block along channels",
    "block_p": "threads of a block along output pixels",
    "taps_w": "width of the filter that the compiler knows; 0: any",
    "stride_w": "stride along the width that the compiler knows; 0: any",
    "m": "rows of the output that a thread block computes",
    "n0": "columns of the intermediate that a thread block holds (of one chunk, where there are chunks)",
    "n1": "columns of the result",
    "k": "depth of one step of the first product",
    "block_k": "depth of one step of the first product",
    "chunks": "parts that the intermediate's columns are taken in, one after another",
    "subtiles": "tiles of 64 rows that a warp group holds at once",
    "stream": "1: the first weights come beside A in every stage; 0: they stay in shared memory",
    "cluster": "thread blocks that load the first weights for each other",
    "store_buffers": "result tiles in shared memory that take turns on their way to memory",
    "residence": "where the intermediate stays: rf, registers; smem, shared memory",
    "resident": "1: the filters stay in shared memory; 0: they are loaded for each patch",
    "reuse": "1: the result is written over the intermediate",
    "inner": "the epilogue between the two products",
    "conv": "1: the first product is a convolution",
    "warps_m0": "warps along the rows of the first product",
    "warps_n0": "warps along the columns of the first product",
    "warps_m1": "warps along the rows of the second product",
    "warps_n1": "warps along the columns of the second product",
}
LAUNCHES = {
    "raster": "order in which tiles run: 0 chosen by the kernel, 1 along rows, 2 along columns",
    "swizzle": "neighbouring tiles that run together, to share the L2 cache",
    "splits": "slices of the depth, added up at the end",
    "pdl": "programmatic dependent launch: starts while the kernel before it ends",
    "variant": "the family's own choice of block geometry",
}
# Parameters that together are the tile, the first set that a kernel has; and what stands for its schedule.
_TILES = (
    ("tile_m", "tile_n", "tile_k"), ("tb_m", "tb_n", "tb_k"), ("m", "n0", "n1", "k"), ("n0", "n1", "block_k"),
    ("tile_p", "tile_k"), ("block_p", "block_c"), ("pixels",), ("columns",),
)  # fmt: skip
_CLUSTERS = (("cluster_m", "cluster_n"), ("cluster",))
_SCHEDULES = ("schedule", "iterator", "method", "weights", "residence")


@dataclass(frozen=True)
class Geometry:
    """A kernel's tile ("128x256x64"), cluster ("2x1"), stages and schedule; "" where it has no such parameter."""

    tile: str
    cluster: str
    stages: str
    schedule: str


def geometry(kernel: Kernel) -> Geometry:
    params = {name: str(value) for name, value in kernel.params}

    def joined(sets: tuple[tuple[str, ...], ...]) -> str:
        found = next((names for names in sets if params.keys() >= set(names)), ())
        return "x".join(params[name] for name in found)

    schedule = next((params[name] for name in _SCHEDULES if name in params), "")
    return Geometry(joined(_TILES), joined(_CLUSTERS), params.get("stages", ""), schedule)


def geometries(workload: Workload, gpu: GpuSpec, families: Mapping[str, Family] | None = None) -> dict[str, Geometry]:
    """The geometry of every kernel that could be tried on the workload, legal or not, by the kernel's name."""
    return {
        kernel.name: geometry(kernel)
        for family in (all_families() if families is None else families).values()
        if family.min_sm <= gpu.sm <= family.max_sm and family.refuses(workload, gpu) is None
        for kernel in family.kernels(workload, gpu)
    }
