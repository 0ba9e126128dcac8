"""Which GPU is meant: the one in this machine, or one named for compiling and replaying without it."""

from dataclasses import dataclass

from templates.gpu import GpuSpec


@dataclass(frozen=True)
class GpuIdentity:
    """What a measurement holds for. Two machines whose identities are equal may share records.

    `driver` and `cuda` are versions as text ("580.159.04", "13.0"); `memory_mhz` the memory clock's class.
    """

    name: str
    sm: int
    sm_count: int
    memory_mhz: int
    driver: str
    cuda: str
    spec: GpuSpec
