"""Candidates in words: what a name means, what its parameters do, and why one was put before the others."""

from collections.abc import Mapping
from dataclasses import dataclass

from templates import families as all_families
from templates.family import Candidate, Family
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
    "buffers": "output buffers that take turns",
    "columns": "pixels of a row that a thread block computes",
    "phases": "filter rows that one pass serves",
}
LAUNCHES = {
    "raster": "order in which tiles run: 0 chosen by the kernel, 1 along rows, 2 along columns",
    "swizzle": "neighbouring tiles that run together, to share the L2 cache",
    "splits": "slices of the depth, added up at the end",
    "pdl": "programmatic dependent launch: starts while the kernel before it ends",
    "variant": "the family's own choice of block geometry",
}


@dataclass(frozen=True)
class Explained:
    """A candidate with the rules' opinion. `params` are (name, value, meaning); `meaning` is "" where none is known."""

    candidate: Candidate
    us: float
    why: str
    params: tuple[tuple[str, str, str], ...]


def find_candidate(
    workload: Workload, gpu: GpuSpec, name: str, families: Mapping[str, Family] | None = None
) -> Candidate | None:
    """The candidate of that name, looked for in the spaces of the families; None if no family knows it any more."""
    kernel_name = name.partition("@")[0]
    for family_name, family in (all_families() if families is None else families).items():
        if not kernel_name.startswith(f"{family_name}_") or family.refuses(workload, gpu) is not None:
            continue
        for kernel in family.kernels(workload, gpu):
            if kernel.name == kernel_name:
                found = [Candidate(kernel, launch) for launch in family.launches(kernel, workload, gpu)]
                return next((c for c in found if c.name == name), None)
    return None


def explain(
    candidate: Candidate, workload: Workload, gpu: GpuSpec, families: Mapping[str, Family] | None = None
) -> Explained:
    """The candidate's parameters with their meanings and its rank's reason."""
    family = (all_families() if families is None else families)[candidate.kernel.family]
    score = family.score(candidate, workload, gpu)
    params = [(n, str(v), MEANINGS.get(n, "")) for n, v in candidate.kernel.params]
    launch = candidate.launch
    params += [
        (n, str(v), LAUNCHES[n])
        for n, v, usual in (
            ("raster", launch.raster, 0), ("swizzle", launch.swizzle, 1), ("splits", launch.splits, 1),
            ("pdl", launch.pdl, False), ("variant", launch.variant, 0),
        )
        if v != usual
    ]  # fmt: skip
    return Explained(candidate, score.us, score.why, tuple(params))


def source_of(candidate: Candidate, families: Mapping[str, Family] | None = None) -> str:
    """The CUDA source that is compiled for the candidate's kernel."""
    return (all_families() if families is None else families)[candidate.kernel.family].source(candidate.kernel)
