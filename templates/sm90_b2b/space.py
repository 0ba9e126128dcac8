"""The instances of the Hopper pair kernel as data; the words are explained in include/bolt/sm90_b2b.hpp."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

NATIVE_WIDTHS = frozenset((8, 16, 32, 64, 96, 128, 192, 256))  # wgmma N that CUTLASS declares without being asked
BLOCK_K = (32, 64, 96, 128)
CONV_BLOCK_K = (16, 32, 64)  # channels of one swizzle atom
CHUNKS = (64, 128, 192, 256)
MAX_WIDTH = 256
MAX_MIDDLE = 1024


@dataclass(frozen=True)
class Instance:
    """One instance. `n0` is the width of a chunk of the intermediate, `n1` of the result; the flags are 0 or 1."""

    n0: int
    chunks: int
    n1: int
    block_k: int
    groups: int
    subtiles: int
    stream: int
    cluster: int
    store_buffers: int
    blocks_per_sm: int
    conv: int

    @property
    def stem(self) -> str:
        chunks = f"c{self.chunks}" if self.chunks > 1 else ""
        parts = [
            f"{self.n0}{chunks}x{self.n1}x{self.block_k}g{self.groups}{'s' if self.stream else 'r'}",
            f"m{self.subtiles}d{self.store_buffers}",
            "x2" if self.cluster > 1 else "",
            f"o{self.blocks_per_sm}" if self.blocks_per_sm > 1 else "",
            "conv" if self.conv else "",
        ]
        return "_".join(p for p in parts if p)

    @property
    def params(self) -> dict[str, int]:
        return asdict(self)

    @property
    def native(self) -> bool:
        """Whether both products have wgmma shapes that need no flag."""
        return self.n0 in NATIVE_WIDTHS and self.n1 in NATIVE_WIDTHS


def chunkings(n0: int, conv: bool) -> list[tuple[int, int]]:
    """(width, chunks) that cover N0: all of it, filled up to a step of the second wgmma, or equal chunks of it."""
    whole = [(-(-n0 // 16) * 16, 1)] if n0 <= MAX_WIDTH else []
    if conv or n0 > MAX_MIDDLE:
        return whole
    return whole + [(c, -(-n0 // c)) for c in CHUNKS if c < n0 and -(-n0 // c) * c - n0 < c // 2]


def instances(n0: int, n1: int, conv: bool) -> Iterator[Instance]:
    """Every point for these widths, legal or not."""
    for (width, chunks), block_k in product(chunkings(n0, conv), CONV_BLOCK_K if conv else BLOCK_K):
        for groups, stream, store_buffers in product((1, 2, 3, 4), (0, 1), (2, 1)):
            for subtiles, cluster, blocks in ((1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 2)):
                if (chunks > 1 and subtiles > 1) or (conv and cluster > 1):
                    continue
                yield Instance(
                    width, chunks, n1, block_k, groups, subtiles, stream, cluster, store_buffers, blocks, int(conv)
                )
