"""What the builder gives back."""

from dataclasses import dataclass
from pathlib import Path

from templates.family import Kernel


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel inside a shared library; its entry points are bolt_{check,workspace,run}_<kernel.name>.

    `registers`, `spill_bytes` and `smem_bytes` come from ptxas (static shared memory only); None if unknown.
    """

    kernel: Kernel
    library: Path
    seconds: float
    cached: bool
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
