"""How an instance lies over a chain: the arithmetic of `Plan` in include/bolt/sm90_tower.cuh."""

from dataclasses import dataclass
from math import ceil

from templates.epilogue import Epilogue
from templates.sm90_common import SMEM_PER_BLOCK, chain_weight
from templates.sm90_tower_b2b.space import CHANNELS, Instance
from templates.workload import B2bGemmWorkload, TowerWorkload

OVERHEAD = 2048  # alignment to an atom of 1024 bytes, and an atom of barriers
ROW_BYTES = 128  # a row of A or of weights x 64 of depth x 2 bytes
MAX_STAGES, MAX_INPUT_STAGES = 16, 8
# Rows whose accumulators a consumer thread holds without a spill, by the number of consumer groups: with chains of
# comparisons, of exponentials, and of polynomials. Found by compiling the space for sm_90a.
MOST_ROWS = {1: (128, 128, 128), 2: (128, 128, 128), 4: (128, 128, 64)}


@dataclass(frozen=True)
class Layer:
    """One product: its width, its depth in chunks of 64, and the passes that give all of its width."""

    width: int
    chunks: int
    passes: int


@dataclass(frozen=True)
class Geometry:
    """A legal layout: tiles of rows, the products, stages of both rings, shared memory."""

    tiles: int
    layers: tuple[Layer, ...]
    input_stages: int
    weight_stages: int
    smem: int


Tower = B2bGemmWorkload | TowerWorkload


def lay(i: Instance, chain: Tower) -> Geometry | str:
    """The geometry, or the reason why the instance can't serve the chain."""
    layers = tuple(
        Layer(p.n, ceil(p.k / CHANNELS), ceil(p.n / (CHANNELS * i.groups))) for p in chain.parts
    )  # fmt: skip
    panel = i.rows * ROW_BYTES
    kept = sum(ceil(layer.width / CHANNELS) for layer in layers[:-1])
    free = SMEM_PER_BLOCK - OVERHEAD - panel * (kept + i.groups)
    input_stages = max(2, min(layers[0].chunks, MAX_INPUT_STAGES, max(0, free) // 4 // panel))
    weight_stages = min(MAX_STAGES, max(0, free - input_stages * panel) // weight_stage_bytes(i))
    if weight_stages < 2:
        widths = " and ".join(str(layer.width) for layer in layers[:-1])
        return f"shared memory holds no two stages of weights beside {i.rows} rows of {widths} columns"
    smem = OVERHEAD + panel * (kept + i.groups + input_stages) + weight_stages * weight_stage_bytes(i)
    return Geometry(ceil(chain.first.m / i.rows), layers, input_stages, weight_stages, smem)


def weight_stage_bytes(i: Instance) -> int:
    return CHANNELS * i.groups * ROW_BYTES


def register_objection(i: Instance, epilogues: tuple[Epilogue, ...]) -> str | None:
    """Why the accumulators don't fit the registers a consumer thread gets, or None."""
    most = MOST_ROWS[i.groups][chain_weight(*epilogues)]
    if i.rows > most:
        return f"accumulators of {i.rows} rows spill with these epilogues: {i.groups} warp groups hold {most}"
    return None
