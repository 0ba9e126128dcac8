"""How an instance of the direct pair lies over a problem: the same arithmetic as `PairPlan` in
include/bolt/sm90_direct_b2b.cuh, so that what is called legal here is not refused there.
"""

from dataclasses import dataclass

from templates.epilogue import Epilogue
from templates.sm90_common import RESERVED_PER_BLOCK, SMEM_PER_SM, chain_weight
from templates.sm90_direct.geometry import (
    ATOM_BYTES,
    MAX_RESIDENT_STAGES,
    OVERHEAD,
    ROW_BYTES,
    Blocks,
    lay_blocks,
    split_room,
)
from templates.sm90_direct_b2b.space import CHANNELS, Instance
from templates.workload import B2bConvWorkload

# Pixels that a consumer thread's registers hold without a spill, by the registers each thread of the launch has: with
# chains of comparisons, of exponentials, and of polynomials. Found by compiling the space for sm_90a.
MOST_PIXELS = {
    255: (224, 224, 224), 168: (224, 208, 128), 128: (128, 128, 64), 96: (128, 64, 0),
}  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """A legal layout: blocks of the whole problem, chunks of 64 input channels, how shared memory is split."""

    blocks: Blocks
    chunks: int
    passes: int
    pixel_stages: int
    weight_stages: int
    smem: int


def lay(i: Instance, pair: B2bConvWorkload, variant: int) -> Geometry | str:
    """The geometry, or the reason why the instance does not serve the pair in this block geometry."""
    first = pair.first
    if -(-first.k // CHANNELS) != i.channel_groups:
        held = CHANNELS * i.channel_groups
        return f"residence: {i.channel_groups} warp groups hold {held} channels, the pair has {first.k}"
    passes = i.passes(pair.n1)
    if i.reuse and passes > 1:
        return f"N1 = {pair.n1} takes {passes} passes over the intermediate, so no result may lie over it"
    if i.reuse and pair.epilogue.has_source:
        return "the source tensor comes where the result goes, which is where the intermediate still lies"
    blocks = lay_blocks(i.pixels, first, variant)
    if isinstance(blocks, str):
        return blocks
    chunks = -(-first.c // CHANNELS)
    split = _split(i, blocks.stage_bytes, first.r * first.s * chunks + passes * i.channel_groups, chunks)
    if isinstance(split, str):
        return split
    pixel_stages, weight_stages = split
    smem = OVERHEAD + results_bytes(i) + pixel_stages * i.pixel_groups * blocks.stage_bytes
    return Geometry(blocks, chunks, passes, pixel_stages, weight_stages, smem + weight_stages * weight_stage_bytes(i))


def results_bytes(i: Instance) -> int:
    """The intermediate with its spare row, and the results where they do not lie over it."""
    intermediate = i.pixels * ROW_BYTES + ATOM_BYTES
    return i.groups * (intermediate + (0 if i.reuse else i.pixels * ROW_BYTES))


def weight_stage_bytes(i: Instance) -> int:
    return CHANNELS * i.channel_groups * ROW_BYTES


def register_objection(i: Instance, inner: Epilogue, outer: Epilogue) -> str | None:
    """Why the accumulators don't fit the registers a consumer thread gets, or None."""
    if i.blocks_per_sm > 1 and i.groups > 1:
        return f"{i.groups} warp groups take the registers that a second block would need"
    have = min(255, 65536 // ((i.groups + 1) * 128 * i.blocks_per_sm) // 8 * 8)
    most = MOST_PIXELS[have][chain_weight(inner, outer)]
    if i.pixels > most:
        return f"accumulators of {i.pixels} pixels spill with these epilogues: {i.groups} warp groups hold {most}"
    return None


def _split(i: Instance, stage: int, needed: int, chunks: int) -> tuple[int, int] | str:
    """(pixel stages, weight stages), or why shared memory does not suffice. `needed`: weight stages of a tile."""
    if i.resident and needed > MAX_RESIDENT_STAGES:
        return f"{needed} stages of weights are more than the {MAX_RESIDENT_STAGES} that may stay resident"
    room = SMEM_PER_SM // i.blocks_per_sm - RESERVED_PER_BLOCK - OVERHEAD - results_bytes(i)
    return split_room(room, i.pixel_groups * stage, weight_stage_bytes(i), chunks, needed if i.resident else 0)
