"""The instances of the stem convolution as data."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Instance:
    """One instance of include/bolt/sm90_conv_stem_kernel.cuh, where the words are explained.

    `columns` is a wgmma's N, a block is `columns` * `phases` output pixels wide; `groups` consumer warp groups, each
    with `buffers` buffers for results on their way out.
    """

    columns: int
    phases: int
    groups: int
    buffers: int = 1

    @property
    def pixels(self) -> int:
        return self.columns * self.phases

    @property
    def stem(self) -> str:
        return f"{self.columns}x{self.phases}_{self.groups}g_{self.buffers}b"

    @property
    def params(self) -> tuple[tuple[str, int | str], ...]:
        return tuple(sorted(asdict(self).items()))


INSTANCES = (
    *(Instance(columns, 1, 4) for columns in (32, 56, 64, 80, 104, 112, 120)),
    *(Instance(columns, 1, 4, 2) for columns in (56, 64, 80, 112)),
    Instance(112, 1, 2),
    Instance(112, 1, 2, 2),
    Instance(112, 1, 3),
    *(Instance(columns, 2, 4) for columns in (16, 32, 40, 56)),
    *(Instance(columns, 2, 4, 2) for columns in (16, 32, 40, 56)),
    *(Instance(columns, 2, 2, 2) for columns in (56, 80, 112)),
    Instance(112, 2, 2),
)
