"""How an instance lies over a pair: the arithmetic of include/bolt/sm90_b2b_geometry.hpp, so that what is called legal
here is not refused there, neither by its check nor by its static assertions.
"""

from dataclasses import dataclass
from math import ceil

from templates.epilogue import Epilogue
from templates.sm90_b2b.space import Instance
from templates.sm90_common import RESERVED_PER_BLOCK, SMEM_PER_SM
from templates.workload import GemmWorkload, Pair

MAX_STAGES, MAX_RESIDENT_BLOCKS, MAX_BOX_ROWS = 32, 64, 256
# Of a consumer thread, beside its accumulators: in the first product's main loop, and elsewhere. Fitted to ptxas.
MAINLOOP_REGISTERS, BASE_REGISTERS = 50, 44
# What an activation takes beside them: polynomials and exponentials of several values at once, or only comparisons.
ACTIVATION_REGISTERS = {"gelu_erf": 20, "tanh": 20, "softplus": 20, "elu": 16, "gelu_tanh": 12, "silu": 8, "sigmoid": 8}
SOURCE_REGISTERS = 12
UNSPILLED = 254  # a thread has 255, one is never given out


@dataclass(frozen=True)
class Layout:
    """A legal layout: rows of a CTA's tile, tiles, K blocks of one pass over A, stages of each ring, shared memory."""

    rows: int
    tiles: int
    k_blocks: int
    stages: int
    smem: int


def base_registers(inner: Epilogue, outer: Epilogue) -> int:
    """`kBaseRegisters` of a kernel with these epilogues."""
    heaviest = max((ACTIVATION_REGISTERS.get(o.op, 0) for e in (inner, outer) for o in e.ops), default=0)
    return BASE_REGISTERS + heaviest + SOURCE_REGISTERS * outer.has_source


def live_accumulators(i: Instance) -> int:
    """fp32 registers of accumulators and of the packed operand at the worst point of a tile."""
    if early_bias(i) or i.chunks > 1:
        return (i.n0 + i.n1) // 2
    if i.subtiles > 1:
        return max(i.n0, i.n0 * 3 // 4 + i.n1 // 2, i.n0 // 2 + i.n1)
    return max(i.n0 // 2, i.n0 // 4 + i.n1 // 2)


def early_bias(i: Instance) -> bool:
    return i.subtiles == 1 and i.n0 + i.n1 <= (256 if i.groups <= 2 else 128)


def registers(i: Instance, base: int) -> int:
    """What a consumer thread needs."""
    first = i.subtiles * i.n0 // 2
    growing = i.n0 // 4 if base > BASE_REGISTERS else 0  # the operand that a heavy chain makes of its accumulators
    return max(MAINLOOP_REGISTERS + first, base + max(live_accumulators(i), first + growing))


def moves_registers(i: Instance, base: int) -> bool:
    """Whether the producer is a whole warp group that gives its registers to the consumers."""
    return registers(i, base) > 512 // (i.groups + 1) // i.blocks_per_sm // 8 * 8 and i.blocks_per_sm == 1


def register_objection(i: Instance, base: int) -> str | None:
    """Why the accumulators don't fit the registers a consumer thread gets, or None."""
    need = registers(i, base)
    if moves_registers(i, base):
        have = 240 if i.groups <= 2 else 160 if i.groups == 3 else 112
    else:
        have = min(UNSPILLED, 512 // (i.groups + 1) // i.blocks_per_sm // 8 * 8)
    if need > have:
        return f"accumulators of {i.n0} and {i.n1} columns need about {need} registers, a thread has {have}"
    return None


def rings(i: Instance) -> int:
    return 1 if i.stream else i.groups


def stage_rows(i: Instance) -> int:
    return 64 * i.subtiles * (i.groups if i.stream else 1)


def smem_bytes(i: Instance, k_blocks: int, stages: int) -> int:
    """Control, B1, result tiles, B0, ring(s) of A; all but the last are rounded up to 1 KB."""
    control = (2 * MAX_STAGES + MAX_RESIDENT_BLOCKS + 1) * 8
    control = _up(control, 16) + i.chunks * i.n0 * 4
    control = _up(_up(control, 16) + i.n1 * 4, 16)
    b0_blocks = stages if i.stream else k_blocks * i.chunks
    fixed = _up(control, 1024) + _up(i.n1 * i.n0 * i.chunks * 2, 1024)
    fixed += _up(i.store_buffers * i.groups * 64 * i.n1 * 2, 1024)
    return fixed + _up(i.n0 * i.block_k * 2 * b0_blocks, 1024) + stage_rows(i) * i.block_k * 2 * stages * rings(i)


def least_fixed_bytes(n0: int, n1: int) -> int:
    """What any instance for these widths holds beside its stages: B1, one result tile, two stages of 64 x 32."""
    return _up(n0 * n1 * 2, 1024) + _up(64 * n1 * 2, 1024) + 2 * 64 * 32 * 2


def pick_stages(i: Instance, k_blocks: int, most: int = MAX_STAGES) -> int:
    """As many stages as fit, at most `most`."""
    stages = min(most, MAX_STAGES // rings(i))
    limit = SMEM_PER_SM // i.blocks_per_sm - RESERVED_PER_BLOCK
    while stages > 0 and smem_bytes(i, k_blocks, stages) > limit:
        stages -= 1
    return stages


def k_blocks_of(i: Instance, pair: Pair) -> int:
    first = pair.first
    if isinstance(first, GemmWorkload):
        return ceil(first.k / i.block_k)
    return first.r * first.s * ceil(first.c / i.block_k)


def lay(i: Instance, pair: Pair) -> Layout | str:
    """The layout, or the reason why the instance can't serve the pair. Registers: `register_objection`."""
    m, n0, rows = pair.second.m, pair.second.k, stage_rows(i)
    if i.n1 != pair.n1 or not i.n0 * (i.chunks - 1) < n0 <= i.n0 * i.chunks:
        return f"residence: the block covers {i.n0 * i.chunks} and {i.n1} columns, the pair has {n0} and {pair.n1}"
    if rows > MAX_BOX_ROWS:
        return f"a stage of {rows} rows of A is more than a TMA box of {MAX_BOX_ROWS}"
    k_blocks = k_blocks_of(i, pair)
    if not i.stream and k_blocks * i.chunks > MAX_RESIDENT_BLOCKS:
        return f"{k_blocks * i.chunks} K blocks of B0 are more than the {MAX_RESIDENT_BLOCKS} that may stay resident"
    stages = pick_stages(i, k_blocks)
    if stages < 2:
        what = "two stages of A and B0" if i.stream else "all of B0 and two stages of A for each ring"
        return f"shared memory does not hold {what} beside B1 and the result tiles"
    tiles = ceil(m / rows)
    if i.cluster > tiles:
        return f"a cluster of {i.cluster} over {tiles} tile leaves CTAs without work"
    return Layout(rows, tiles, k_blocks, stages, smem_bytes(i, k_blocks, stages))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
