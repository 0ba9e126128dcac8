"""The instances of the Hopper attention as data, and what they take of an SM."""

from dataclasses import dataclass

BOX = 64  # elements of a TMA box's row: widths are brought in whole boxes
DEPTH = 16  # of a wgmma: queries and keys are multiplied in these steps
GROUP_ROWS = 64
OVERHEAD = 2048  # alignment and barriers
# Registers of a consumer thread (setmaxnreg in the kernel); 256 threads share an SM's registers without it.
CONSUMER_REGISTERS = {1: 255, 2: 240, 3: 160}
OTHER_REGISTERS = 44  # beside scores, numerators and results: softmax state, descriptors, addresses


@dataclass(frozen=True)
class Instance:
    """One instance of include/bolt/sm90_attention_kernel.cuh but for widths, mask and types: `groups` consumer warp
    groups of 64 queries, `columns` keys at a time, `stages` of keys and of values; `turns`: two groups take turns to
    enqueue their products."""

    groups: int
    columns: int
    stages: int
    turns: bool = False

    @property
    def rows(self) -> int:
        return self.groups * GROUP_ROWS

    @property
    def stem(self) -> str:
        return f"{self.rows}x{self.columns}_s{self.stages}{'_turns' * self.turns}"

    @property
    def params(self) -> dict[str, int | str]:
        return {"groups": self.groups, "keys": self.columns, "stages": self.stages, "turns": int(self.turns)}

    def smem_bytes(self, head: int, value: int) -> int:
        """Shared memory of a block; the generated source asserts it."""
        return OVERHEAD + 2 * (self.rows + self.stages * self.columns) * (boxed(head) + boxed(value))

    def registers(self, value: int) -> int:
        """Of a consumer thread: fp32 scores, their 16-bit numerators, fp32 results, and the rest."""
        return self.columns // 2 + self.columns // 4 + boxed(value) // 2 + OTHER_REGISTERS


INSTANCES = (
    *(Instance(groups, columns, stages) for groups in (1, 2) for columns in (64, 96, 128, 192) for stages in (2, 3)),
    *(Instance(2, columns, 2, turns=True) for columns in (64, 96, 128, 192)),
    *(Instance(3, columns, 2) for columns in (64, 96, 128)),
)


def boxed(width: int) -> int:
    """A width in whole boxes."""
    return -(-width // BOX) * BOX


def stepped(width: int) -> int:
    """A width in whole steps of depth."""
    return -(-width // DEPTH) * DEPTH
