"""How an instance of the stem convolution is laid over a problem: the same arithmetic as `Plan` in
include/bolt/sm90_conv_stem.cuh, so that what is called legal here is not refused there.
"""

from dataclasses import dataclass

from templates.sm90_common import SMEM_PER_BLOCK, round_up
from templates.sm90_stem.space import Instance
from templates.workload import ConvWorkload

CHANNELS = 64  # output channels of a wgmma
UNIT_ELEMENTS, UNIT_BYTES = 8, 16  # what an output pixel's window moves on by
TILE_BYTES = CHANNELS * 2 * UNIT_BYTES  # weights of one wgmma step
ROW_BYTES, TMA_ALIGN = 128, 128
OVERHEAD = 2048  # alignment to an atom of 1024 bytes, and an atom of barriers
MAX_STEPS, MAX_STAGES, MIN_STAGES, MAX_BOX = 64, 6, 2, 256


@dataclass(frozen=True)
class Geometry:
    """A legal layout: blocks of the whole problem, (row, 64 channels) items, how shared memory is split."""

    blocks: int
    items: int  # of the whole problem
    items_per_block: int
    channel_tiles: int
    steps: int  # wgmma steps of an item and phase
    stage_bytes: int  # input rows of a block
    stages: int
    smem: int


def phases_of(workload: ConvWorkload) -> int:
    """Operands that together are all output pixels: 1 where windows start 16 bytes apart, 2 for 8; 0: not served."""
    step = workload.c * workload.stride[1]
    return UNIT_ELEMENTS // step if workload.c in (4, 8) and step in (4, 8) else 0


def lay(instance: Instance, workload: ConvWorkload, rows: int) -> Geometry | str:
    """The geometry with blocks of `rows` output rows, or the reason why there is none."""
    w = workload
    if instance.phases != phases_of(w):
        return f"computes {instance.phases} of every {UNIT_ELEMENTS * instance.phases} bytes' windows"
    # TMA starts at multiples of a unit: where each phase's windows start from there, in elements.
    starts = [-w.pad[1] * w.c % UNIT_ELEMENTS + phase * w.stride[1] * w.c for phase in range(instance.phases)]
    lead = max(start % UNIT_ELEMENTS for start in starts)
    row_units = -(-(w.s * w.c + lead) // UNIT_ELEMENTS)
    units = w.r * row_units
    steps = -(-units // 2)
    pitch = instance.columns + row_units - 1 + max(starts) // UNIT_ELEMENTS
    box_rows = (rows - 1) * w.stride[0] + w.r
    if units < 2 or steps > MAX_STEPS:
        return f"a filter of {w.r}x{w.s}x{w.c} is {steps} products of depth 16, not 1 to {MAX_STEPS}, or too small"
    if max(rows, box_rows, 2 * pitch) > MAX_BOX:
        return f"{box_rows} input rows of {2 * pitch} x 8 bytes are more than a TMA box of {MAX_BOX}"
    stage = round_up(box_rows * pitch * UNIT_BYTES, TMA_ALIGN)
    channel_tiles = -(-w.k // CHANNELS)
    fixed = OVERHEAD + instance.groups * instance.buffers * instance.pixels * ROW_BYTES
    fixed += instance.phases * channel_tiles * steps * TILE_BYTES
    stages = min(MAX_STAGES, max(0, SMEM_PER_BLOCK - fixed) // stage)
    if stages < MIN_STAGES:
        return f"results and weights take {fixed} bytes, which leaves no room for two stages of {stage}"
    across = -(-w.q // instance.pixels)
    return Geometry(
        blocks=w.n * across * -(-w.p // rows),
        items=w.n * across * w.p * channel_tiles,
        items_per_block=min(rows, w.p) * channel_tiles,
        channel_tiles=channel_tiles,
        steps=steps,
        stage_bytes=stage,
        stages=stages,
        smem=fixed + stages * stage,
    )
