"""The instances of the direct pair kernel as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

CHANNELS = 64  # of a warp group, and of a chunk
MAX_MIDDLE = 256  # channels of four warp groups
# wgmma N, pixel groups, weights resident, blocks of an SM: those that the direct kernel was measured fastest with, and
# fewer pixels where more channel groups share the registers.
_POINTS = (
    (64, 1, 0, 1), (64, 1, 0, 2), (64, 2, 0, 1), (64, 1, 1, 2), (64, 2, 1, 1), (64, 4, 1, 1), (112, 1, 0, 1),
    (112, 1, 0, 2), (112, 2, 0, 1), (112, 1, 1, 2), (112, 2, 1, 1), (112, 3, 1, 1), (128, 1, 0, 1), (128, 2, 0, 1),
    (128, 2, 1, 1), (208, 1, 0, 1), (224, 1, 0, 1), (224, 1, 1, 1), (224, 2, 0, 1), (224, 2, 1, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """One instance of include/bolt/sm90_direct_b2b_kernel.cuh, where the words are explained; flags are 0 or 1.

    `pixels` is a wgmma's N; `channel_groups` warp groups of 64 channels hold the whole intermediate of a block of
    pixels, `pixel_groups` blocks at a time. `reuse`: the result is written over the intermediate.
    """

    pixels: int
    channel_groups: int
    pixel_groups: int
    resident: int
    reuse: int
    blocks_per_sm: int

    @property
    def groups(self) -> int:
        return self.channel_groups * self.pixel_groups

    @property
    def stem(self) -> str:
        weights = "resident" if self.resident else "streamed"
        reuse = "_u" if self.reuse else ""
        blocks = f"_o{self.blocks_per_sm}" if self.blocks_per_sm > 1 else ""
        return f"{self.pixels}_{self.channel_groups}x{self.pixel_groups}_{weights}{reuse}{blocks}"

    def passes(self, n1: int) -> int:
        """Passes over the intermediate that give all N1 result channels."""
        return -(-n1 // (CHANNELS * self.channel_groups))


def instances(n0: int) -> Iterator[Instance]:
    """Every point for a middle width, legal or not."""
    channel_groups = -(-n0 // CHANNELS)
    for (pixels, pixel_groups, resident, blocks), reuse in product(_POINTS, (0, 1)):
        if channel_groups * pixel_groups <= 4:
            yield Instance(pixels, channel_groups, pixel_groups, resident, reuse, blocks)
