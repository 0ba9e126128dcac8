"""The instances of the direct convolution as data."""

from dataclasses import asdict, dataclass
from typing import Literal

WeightMode = Literal["resident", "streamed", "alternate"]


@dataclass(frozen=True)
class Instance:
    """One instance of include/bolt/sm90_conv_direct.cuh, where the words are explained.

    `pixels` is a wgmma's N; consumers are `channel_groups` x `pixel_groups` warp groups; `weights`: all of them stay
    in shared memory (resident), pass through one ring (streamed), or through a ring for each of two warp groups that
    take turns on the tensor cores (alternate).
    """

    pixels: int
    channel_groups: int
    pixel_groups: int
    weights: WeightMode
    taps_per_stage: int = 1
    blocks_per_sm: int = 1

    @property
    def groups(self) -> int:
        return self.channel_groups * self.pixel_groups

    @property
    def stem(self) -> str:
        taps = f"_t{self.taps_per_stage}" if self.taps_per_stage > 1 else ""
        blocks = f"_o{self.blocks_per_sm}" if self.blocks_per_sm > 1 else ""
        return f"{self.pixels}_{self.channel_groups}x{self.pixel_groups}_{self.weights}{taps}{blocks}"

    @property
    def params(self) -> tuple[tuple[str, int | str], ...]:
        return tuple(sorted(asdict(self).items()))


INSTANCES = (
    Instance(64, 1, 4, "resident"),
    Instance(112, 1, 2, "resident"),
    Instance(112, 1, 3, "resident"),
    Instance(128, 1, 2, "resident"),
    Instance(224, 1, 2, "resident"),
    Instance(112, 1, 1, "resident", blocks_per_sm=2),
    Instance(64, 1, 1, "resident", blocks_per_sm=2),
    Instance(112, 1, 2, "streamed"),
    Instance(112, 1, 4, "streamed"),
    Instance(112, 2, 1, "streamed"),
    Instance(112, 2, 2, "streamed"),
    Instance(128, 2, 2, "streamed"),
    Instance(208, 2, 1, "streamed"),
    Instance(216, 1, 1, "streamed"),
    Instance(224, 1, 2, "streamed"),
    Instance(224, 2, 1, "streamed"),
    Instance(112, 1, 1, "streamed", blocks_per_sm=2),
    Instance(128, 1, 1, "streamed", blocks_per_sm=2),
    Instance(112, 2, 1, "alternate"),
    Instance(128, 2, 1, "alternate"),
    Instance(208, 2, 1, "alternate"),
    Instance(224, 2, 1, "alternate"),
    Instance(208, 2, 1, "alternate", taps_per_stage=3),
)
