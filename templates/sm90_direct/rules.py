"""Ranking rules of the direct convolution; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_conv_direct.cuh). [2] CUDA tuning guide for Hopper (TMA,
shared memory). [3] Own measurements on an H200 (resources/records).
"""

from math import ceil

from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import MEMORY_OVERLAP_LOSS, overlapped, wgmma_clocks
from templates.sm90_direct.geometry import CHANNELS, PATCH, ROW_BYTES, ROWS, Geometry, lay
from templates.sm90_direct.space import Instance
from templates.sm90_power import power_us
from templates.workload import ConvWorkload

L2_BYTES_PER_CLOCK = 44.0
TAP_CLOCKS = 8.0  # barrier round of a weight stage
TURN_CLOCKS = 20.0  # of a group that has the tensor cores for itself: nothing covers its round
FILL_CLOCKS = 2770.0  # first pixels and weights from memory until the first wgmma
EPILOGUE_CLOCKS_PER_PIXEL = 1.7
BARE_PRODUCTS = 1.25  # what power allows, against the rate of products that fetch their operands for each tap
LAUNCH_US, PDL_US = 2.2, 1.0


def step_clocks(instance: Instance, workload: ConvWorkload, geometry: Geometry) -> float:
    """One block of every pixel group [1][2].

    The groups share the tensor cores; pixels and streamed weights come through L2.
    """
    taps = workload.r * workload.s * geometry.chunks
    products = instance.groups * taps * CHANNELS / 16 * wgmma_clocks(instance.pixels)
    turn = TURN_CLOCKS * instance.groups if instance.weights == "alternate" else TAP_CLOCKS
    products += taps / instance.taps_per_stage * turn
    loaded = float(instance.pixel_groups * geometry.chunks * geometry.box_bytes)
    if instance.weights != "resident":
        loaded += taps * CHANNELS * instance.channel_groups * ROW_BYTES
    return overlapped(products, loaded / L2_BYTES_PER_CLOCK)


def exposed_epilogue(instance: Instance) -> float:
    """Clocks of the epilogue that no products cover: none when groups take turns, a part when resident groups run
    on their own or two CTAs share the SM, all when groups advance together [1]."""
    clocks = EPILOGUE_CLOCKS_PER_PIXEL * instance.pixels
    if instance.weights == "alternate":
        return 0.1 * clocks
    independent = instance.pixel_groups if instance.weights == "resident" else 1
    return clocks / (independent * instance.blocks_per_sm)


def score(instance: Instance, launch: Launch, workload: ConvWorkload, gpu: GpuSpec) -> Score:
    """Whole rounds of a persistent grid, against the time of the bytes alone."""
    geometry = lay(instance, workload, launch.variant)
    if isinstance(geometry, str):
        raise ValueError(geometry)
    slots = gpu.sm_count * instance.blocks_per_sm
    work = ceil(geometry.blocks / instance.pixel_groups) * geometry.channel_tiles
    rounds = (
        ceil(work / slots) if instance.weights != "resident" else ceil(geometry.blocks / slots) / instance.pixel_groups
    )
    step = step_clocks(instance, workload, geometry) * instance.blocks_per_sm
    clocks = FILL_CLOCKS + rounds * (step + exposed_epilogue(instance)) + EPILOGUE_CLOCKS_PER_PIXEL * instance.pixels
    # A kernel with a long loop over taps draws more power than it may at the full clock; a short one never gets there.
    compute_us = max(clocks / gpu.clock_mhz, power_us(workload.flops, 0.0, 0.0, BARE_PRODUCTS, gpu))
    memory_us = workload.bytes / (gpu.dram_gbs * 1e3)
    us = max(compute_us, memory_us) + MEMORY_OVERLAP_LOSS * min(compute_us, memory_us)
    us += LAUNCH_US - PDL_US * launch.pdl
    used = workload.n * workload.p * workload.q / (geometry.blocks * instance.pixels)
    shape = "rows" if launch.variant == ROWS else "8-wide patches"
    why = (
        f"{geometry.blocks} blocks as {shape}, {used:.0%} of their pixels used, {rounds:.2f} rounds, "
        f"{geometry.pixel_stages} pixel and {geometry.weight_stages} weight stages, "
        f"bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)


def launches(instance: Instance, workload: ConvWorkload, gpu: GpuSpec) -> list[Launch]:
    """Both block geometries where legal, with and without PDL, the better estimate first [3]."""
    legal = [v for v in (PATCH, ROWS) if not isinstance(lay(instance, workload, v), str)]
    found = [Launch(variant=v, pdl=pdl) for v in legal for pdl in (True, False)]
    return sorted(found, key=lambda launch: score(instance, launch, workload, gpu).us)
