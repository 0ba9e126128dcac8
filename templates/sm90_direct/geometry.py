"""How an instance of the direct convolution is laid over a problem: the same arithmetic as `Plan` in
include/bolt/sm90_conv_direct.cuh, so that what is called legal here is not refused there.
"""

from dataclasses import dataclass

from templates.sm90_common import RESERVED_PER_BLOCK, SMEM_PER_SM, round_up
from templates.sm90_direct.space import Instance
from templates.workload import ConvWorkload

PATCH, ROWS = 1, 2  # Launch.variant: block geometry
CHANNELS = 64  # output channels of a warp group, input channels of a chunk
ROW_BYTES, ATOM_BYTES = 128, 1024
OVERHEAD = 2048  # alignment to an atom, and an atom of barriers
MAX_PIXEL_STAGES, MAX_WEIGHT_STAGES, MAX_RESIDENT_STAGES, MAX_BOX = 4, 8, 32, 256


@dataclass(frozen=True)
class Blocks:
    """Blocks of output pixels over a whole problem, and what one stage of input pixels holds."""

    count: int
    height: int  # output pixels a block stores at most
    width: int
    pitch: int  # pixels from one loaded row to the next in shared memory
    box_bytes: int
    stage_bytes: int


@dataclass(frozen=True)
class Geometry:
    """A legal layout: blocks of the whole problem, what one stage holds, how shared memory is split."""

    blocks: int
    height: int  # output pixels a block stores at most
    width: int
    pitch: int  # pixels from one loaded row to the next in shared memory
    chunks: int
    channel_tiles: int
    box_bytes: int
    stage_bytes: int
    pixel_stages: int
    weight_stages: int
    smem: int


def lay_blocks(pixels: int, workload: ConvWorkload, variant: int) -> Blocks | str:
    """Blocks of at most `pixels` pixels in the block geometry, or why there are none."""
    w = workload
    halo_x, halo_y = (w.s - 1) * w.dilation[1], (w.r - 1) * w.dilation[0]
    shared = min(w.pad[1], w.pad[3], halo_x)
    row_pitch = w.q + halo_x - shared
    rows = min(pixels // row_pitch, w.p)
    if variant == ROWS and rows == 0:
        return f"a row of {row_pitch} pixels is longer than a block of {pixels}"
    height, width = (rows, w.q) if variant == ROWS else (pixels // 8, 8)
    pitch = row_pitch if variant == ROWS else 8 + halo_x
    if max(pitch, width, height + halo_y) > MAX_BOX:
        return f"a block of {height}x{width} pixels with its halo is more than a TMA box of {MAX_BOX}"
    box = (height + halo_y) * pitch * ROW_BYTES
    stage = round_up(box + (shared * ROW_BYTES if variant == ROWS else 0), ATOM_BYTES)
    count = w.n * -(-w.p // height) * -(-w.q // width)
    return Blocks(count, height, width, pitch, box, stage)


def lay(instance: Instance, workload: ConvWorkload, variant: int) -> Geometry | str:
    """The geometry, or the reason why the instance does not serve the problem in this block geometry."""
    w = workload
    if w.r * w.s % instance.taps_per_stage:
        return f"{w.r * w.s} filter taps do not divide into stages of {instance.taps_per_stage}"
    made = lay_blocks(instance.pixels, w, variant)
    if isinstance(made, str):
        return made
    chunks, channel_tiles = -(-w.c // CHANNELS), -(-w.k // (CHANNELS * instance.channel_groups))
    split = _split(instance, made.stage_bytes, w.r * w.s, chunks, channel_tiles)
    if isinstance(split, str):
        return split
    pixel_stages, weight_stages = split
    smem = OVERHEAD + instance.groups * _result_bytes(instance)
    smem += pixel_stages * instance.pixel_groups * made.stage_bytes + weight_stages * _weight_stage(instance)
    return Geometry(
        made.count, made.height, made.width, made.pitch, chunks, channel_tiles, made.box_bytes, made.stage_bytes,
        pixel_stages, weight_stages, smem,
    )  # fmt: skip


def _split(instance: Instance, stage: int, taps: int, chunks: int, channel_tiles: int) -> tuple[int, int] | str:
    """(pixel stages, weight stages), or why shared memory does not suffice."""
    room = SMEM_PER_SM // instance.blocks_per_sm - RESERVED_PER_BLOCK - OVERHEAD
    room -= instance.groups * _result_bytes(instance)
    resident = 0
    if instance.weights == "resident":
        resident = taps // instance.taps_per_stage * chunks
        if channel_tiles != 1 or resident > MAX_RESIDENT_STAGES:
            return "all weights at once do not fit the resident instance"
    return split_room(room, instance.pixel_groups * stage, _weight_stage(instance), chunks, resident)


def split_room(room: int, pixel_stage: int, weight_stage: int, chunks: int, resident: int = 0) -> tuple[int, int] | str:
    """(pixel stages, weight stages) in `room` bytes, or why they don't fit; stages in bytes, of all pixel groups.

    `resident`: the weight stages that stay in shared memory; 0 if they pass through a ring.
    """
    least_pixels = 2 if chunks > 1 else 1  # a pixel stage is released one chunk late
    if resident:
        pixel_stages = min(MAX_PIXEL_STAGES, max(0, room - resident * weight_stage) // pixel_stage)
        weight_stages = resident
    else:
        pixel_stages, weight_stages = 2, max(0, room - 2 * pixel_stage) // weight_stage
        if weight_stages < 2 and chunks == 1:
            pixel_stages, weight_stages = 1, max(0, room - pixel_stage) // weight_stage
        weight_stages = min(MAX_WEIGHT_STAGES, weight_stages)
        if weight_stages < 2:
            return f"pixel stages of {pixel_stage} bytes leave no room for two stages of weights"
    if pixel_stages < least_pixels:
        return f"a pixel stage of {pixel_stage} bytes does not fit {least_pixels} times beside the weights"
    return pixel_stages, weight_stages


def _result_bytes(instance: Instance) -> int:
    return (instance.pixels + 8) * ROW_BYTES


def _weight_stage(instance: Instance) -> int:
    return CHANNELS * instance.channel_groups * ROW_BYTES * instance.taps_per_stage
