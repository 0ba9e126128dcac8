"""Ranking rules of the tower kernel; times are estimates for ranking only.

Sources: [1] the kernel's own structure (include/bolt/sm90_tower_kernel.cuh). [2] CUDA tuning guide for Hopper.
"""

from math import ceil

from templates.family import Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import overlapped, sustained_hz, wgmma_clocks
from templates.sm90_tower_b2b.geometry import CHANNELS, ROW_BYTES, Geometry, Tower, lay, weight_stage_bytes
from templates.sm90_tower_b2b.space import Instance

L2_BYTES_PER_CLOCK = 80.0
STAGE_CLOCKS = 20.0  # barrier round of a weight stage
FILL_CLOCKS = 1800.0  # first rows and weights from memory until the first wgmma
EPILOGUE_CLOCKS_PER_ROW, EXCHANGE_CLOCKS = 8.0, 150.0
LAUNCH_US, PDL_US = 2.2, 1.0


def tile_clocks(i: Instance, geometry: Geometry) -> float:
    """One tile: the groups share the tensor cores, weights come through L2, and no products cover a pass's epilogue,
    because all groups end it together [1][2]."""
    products = loaded = exposed = 0.0
    for index, layer in enumerate(geometry.layers):
        panels = ceil(layer.width / CHANNELS)
        products += panels * layer.chunks * (CHANNELS / 16) * wgmma_clocks(i.rows)
        products += layer.passes * layer.chunks * STAGE_CLOCKS
        loaded += layer.passes * layer.chunks * (weight_stage_bytes(i) + (index == 0) * i.rows * ROW_BYTES)
        exposed += layer.passes * EPILOGUE_CLOCKS_PER_ROW * i.rows + EXCHANGE_CLOCKS
    return overlapped(products, loaded / L2_BYTES_PER_CLOCK) + exposed


def score(i: Instance, launch: Launch, chain: Tower, gpu: GpuSpec) -> Score:
    """Whole rounds of a persistent grid, against the time of the bytes alone."""
    geometry = lay(i, chain)
    if isinstance(geometry, str):
        raise ValueError(geometry)
    rounds = ceil(geometry.tiles / gpu.sm_count)
    compute_us = (FILL_CLOCKS + rounds * tile_clocks(i, geometry)) / sustained_hz(gpu) * 1e6
    memory_us = chain.bytes / (gpu.dram_gbs * 1e3)
    us = overlapped(compute_us, memory_us) + LAUNCH_US - PDL_US * launch.pdl
    why = (
        f"{geometry.tiles} tiles of {i.rows} rows in {geometry.tiles / gpu.sm_count:.2f} rounds, intermediates in "
        f"shared memory, {geometry.input_stages} stages of A and {geometry.weight_stages} of weights, "
        f"bound by {'memory' if memory_us > compute_us else 'products'}"
    )
    return Score(us, why)
