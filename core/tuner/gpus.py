"""The GPUs of this machine that one job can use side by side: those of one kind."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from core.device import GpuIdentity, device_count, identity_of, read_facts, resolve_gpu
from core.errors import DeviceError
from core.measure.nvml import driver_version


@dataclass(frozen=True)
class LocalGpu:
    """`ordinal` counts in the driver's order; `visible` names the GPU alone, as an entry of CUDA_VISIBLE_DEVICES."""

    ordinal: int
    visible: str
    pci_bus: str
    identity: GpuIdentity

    @property
    def name(self) -> str:
        """What a job calls it."""
        return f"GPU {self.ordinal}"


def visible_entry(ordinal: int, environment: Mapping[str, str]) -> str:
    """What CUDA_VISIBLE_DEVICES must be for a child to see only the GPU that this process sees as `ordinal`."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    return str(ordinal) if listed is None else listed.split(",")[ordinal].strip()


def gpus_here(name: str = "auto", count: int | None = None) -> list[LocalGpu]:
    """The first `count` GPUs (None: all) that are like the first one of that name ("auto": the first of all).

    Raises DeviceError when there are fewer, or none of that name.
    """
    driver = driver_version()
    facts = [read_facts(ordinal) for ordinal in range(device_count())]
    found = [
        LocalGpu(ordinal, visible_entry(ordinal, os.environ), f.pci_bus, identity_of(f, driver))
        for ordinal, f in enumerate(facts)
    ]
    wanted = None if name.strip().lower() == "auto" else resolve_gpu(name).name
    named = [gpu for gpu in found if wanted in (None, gpu.identity.name)]
    if not named:
        here = ", ".join(gpu.identity.name for gpu in found) or "none"
        raise DeviceError(f"no GPU here is a {wanted or 'usable one'} (there is: {here})", "leave --gpu out")
    alike = [gpu for gpu in named if gpu.identity == named[0].identity]
    if count is not None and count > len(alike):
        raise DeviceError(
            f"{count} GPUs are asked for, this machine has {len(alike)} of {named[0].identity.name}",
            "give a smaller --gpus, or `--gpus all`",
        )
    return alike[:count]
