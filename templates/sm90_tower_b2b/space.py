"""The instances of the tower kernel as data."""

from collections.abc import Iterator
from dataclasses import dataclass

CHANNELS = 64  # of a warp group in a pass, and of a chunk of depth
MAX_WIDTH = 1024
ROWS, GROUPS = (16, 32, 64, 128), (1, 2, 4)


@dataclass(frozen=True)
class Instance:
    """One instance of include/bolt/sm90_tower_kernel.cuh: rows of A that a CTA takes at once, consumer groups."""

    rows: int
    groups: int

    @property
    def stem(self) -> str:
        return f"{self.rows}x{CHANNELS * self.groups}_g{self.groups}"


def instances() -> Iterator[Instance]:
    for rows in ROWS:
        for groups in GROUPS:
            yield Instance(rows, groups)
