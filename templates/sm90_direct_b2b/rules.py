"""Ranking rules of the direct pair; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_direct_b2b_kernel.cuh). [2] CUDA tuning guide for Hopper.
[3] Own measurements of the direct convolution on an H200 (resources/records).
"""

from math import ceil

from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import overlapped, sustained_hz, wgmma_clocks
from templates.sm90_direct.geometry import PATCH, ROW_BYTES, ROWS
from templates.sm90_direct_b2b.geometry import CHANNELS, Geometry, lay
from templates.sm90_direct_b2b.space import Instance
from templates.workload import B2bConvWorkload

L2_BYTES_PER_CLOCK = 80.0
STAGE_CLOCKS = 20.0  # barrier round of a weight stage
FILL_CLOCKS = 1800.0  # first pixels and weights from memory until the first wgmma
EPILOGUE_CLOCKS_PER_PIXEL = 8.0
EXCHANGE_CLOCKS = 150.0  # the intermediate's fence and barrier, which no products of this block cover
LAUNCH_US, PDL_US = 2.2, 1.0


def block_clocks(i: Instance, pair: B2bConvWorkload, geometry: Geometry) -> float:
    """One block of every pixel group: both products on the tensor cores they share; pixels and streamed weights come
    through L2 [1][2]."""
    stages = pair.first.r * pair.first.s * geometry.chunks + geometry.passes * i.channel_groups
    products = i.groups * stages * CHANNELS / 16 * wgmma_clocks(i.pixels) + stages * STAGE_CLOCKS
    loaded = float(i.pixel_groups * geometry.chunks * geometry.blocks.box_bytes)
    if not i.resident:
        loaded += stages * CHANNELS * i.channel_groups * ROW_BYTES
    return overlapped(products, loaded / L2_BYTES_PER_CLOCK)


def exposed_clocks(i: Instance, geometry: Geometry) -> float:
    """Epilogues that no products cover: resident pixel groups run on their own, other CTAs share the SM [1]."""
    clocks = EPILOGUE_CLOCKS_PER_PIXEL * i.pixels * (1 + geometry.passes) + EXCHANGE_CLOCKS
    return clocks / ((i.pixel_groups if i.resident else 1) * i.blocks_per_sm)


def score(i: Instance, launch: Launch, pair: B2bConvWorkload, gpu: GpuSpec) -> Score:
    """Whole rounds of a persistent grid, against the time of the bytes alone."""
    geometry = lay(i, pair, launch.variant)
    if isinstance(geometry, str):
        raise ValueError(geometry)
    count, slots = geometry.blocks.count, gpu.sm_count * i.blocks_per_sm
    rounds = ceil(count / slots) / i.pixel_groups if i.resident else ceil(ceil(count / i.pixel_groups) / slots)
    step = block_clocks(i, pair, geometry) * i.blocks_per_sm
    exposed = exposed_clocks(i, geometry)
    clocks = FILL_CLOCKS + rounds * (step + exposed) + EPILOGUE_CLOCKS_PER_PIXEL * i.pixels
    compute_us = clocks / sustained_hz(gpu) * 1e6
    memory_us = pair.bytes / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * launch.pdl
    used = pair.second.m / (count * i.pixels)
    shape = "rows" if launch.variant == ROWS else "8-wide patches"
    why = (
        f"{count} blocks as {shape}, {used:.0%} of their pixels used, {rounds:.2f} rounds, intermediate in shared "
        f"memory, {geometry.pixel_stages} pixel and {geometry.weight_stages} weight stages, "
        f"bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)


def launches(i: Instance, pair: B2bConvWorkload, gpu: GpuSpec) -> list[Launch]:
    """Both block geometries where legal, with and without PDL, the better estimate first [3]."""
    legal = [v for v in (PATCH, ROWS) if not isinstance(lay(i, pair, v), str)]
    found = [Launch(variant=v, pdl=pdl) for v in legal for pdl in (True, False)]
    return sorted(found, key=lambda launch: score(i, launch, pair, gpu).us)
