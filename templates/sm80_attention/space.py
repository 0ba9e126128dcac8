"""The instances of the mma.sync attention as data, and what they take of an SM."""

from dataclasses import dataclass

from templates.attention import AttentionWorkload
from templates.types import largest_alignment

DEPTH = 16  # of an mma: widths are padded to it
WARP_ROWS = 16
PADDING = 8  # elements behind each row in shared memory
MAX_WIDTH = 256  # accumulators of a lane: half the width of the values
_BLOCK_OVERHEAD = 1024  # bytes that the runtime takes of each resident block


@dataclass(frozen=True)
class Tile:
    """One instance of include/bolt/sm80_attention.cuh but for widths, mask and types: 16 x `warps` queries a block,
    `columns` keys at a time, `stages` tiles of keys and values in shared memory."""

    warps: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        return self.warps * WARP_ROWS

    @property
    def stem(self) -> str:
        return f"{self.rows}x{self.columns}_s{self.stages}"

    def smem_bytes(self, head: int, value: int) -> int:
        """Shared memory of a block, for padded widths; the generated source asserts it."""
        queries = self.rows * (max(head, value) + PADDING)
        return 2 * (queries + self.stages * self.columns * (head + value + 2 * PADDING))

    def accumulators(self, value: int) -> int:
        """fp32 registers of a thread: scores and results, the queries beside them."""
        return self.columns // 2 + value // 2


TILES = tuple(
    Tile(warps, columns, stages)
    for warps in (1, 2, 3, 4, 8)
    for columns in (16, 32, 48, 64, 96, 128)
    for stages in (1, 2)
)


def padded(width: int) -> int:
    return -(-width // DEPTH) * DEPTH


def access(work: AttentionWorkload) -> int:
    """The widest global access, in elements, that every row of every operand begins at and is made of."""
    strides = (*work.q, *work.k, *work.v, *work.out)
    return largest_alignment(work.head_dim, work.value_dim, *(s for s in strides if s), dtype=work.dtype)


def resident_blocks(tile: Tile, head: int, value: int, smem_per_sm: int) -> int:
    """Blocks of a tile that share an SM, by shared memory and by registers."""
    by_smem = smem_per_sm // (tile.smem_bytes(head, value) + _BLOCK_OVERHEAD)
    registers = 64 + tile.accumulators(value) + min(head, 128) // 4 + tile.columns // 4
    by_registers = 65536 // (min(255, registers) * tile.warps * 32)
    return max(1, min(by_smem, by_registers))
