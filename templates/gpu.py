"""What the rules need to know of a GPU, and the figures of those a user may target without having one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuSpec:
    """Limits and rates of one GPU model.

    `smem_per_block` and `smem_per_sm` in bytes, `dram_gbs` in GB/s, `tensor_tflops` dense fp16 with fp32
    accumulation. The rates rank candidates; they are never shown as measurements.
    """

    name: str
    sm: int  # compute capability times ten: 75, 80, 86, 89, 90, 100, 120
    sm_count: int
    smem_per_block: int
    smem_per_sm: int
    l2_bytes: int
    dram_gbs: float
    tensor_tflops: float
    clock_mhz: int

    @property
    def nvcc_arch(self) -> str:
        """The architecture for nvcc; Hopper and later need the 'a' variant for wgmma and its successors."""
        return f"{self.sm}a" if self.sm in (90, 100, 120) else str(self.sm)


_KB, _MB = 1024, 1024 * 1024
# Vendor datasheets and the CUDA programming guide's table of compute capabilities; the H200's rates as measured.
KNOWN_GPUS = {
    "t4": GpuSpec("Tesla T4", 75, 40, 64 * _KB, 64 * _KB, 4 * _MB, 300, 65, 1590),
    "a100": GpuSpec("NVIDIA A100-SXM4-80GB", 80, 108, 163 * _KB, 164 * _KB, 40 * _MB, 2039, 312, 1410),
    "a10": GpuSpec("NVIDIA A10", 86, 72, 99 * _KB, 100 * _KB, 6 * _MB, 600, 125, 1695),
    "rtx3090": GpuSpec("NVIDIA GeForce RTX 3090", 86, 82, 99 * _KB, 100 * _KB, 6 * _MB, 936, 71, 1695),
    "rtx4090": GpuSpec("NVIDIA GeForce RTX 4090", 89, 128, 99 * _KB, 100 * _KB, 72 * _MB, 1008, 165, 2520),
    "l4": GpuSpec("NVIDIA L4", 89, 58, 99 * _KB, 100 * _KB, 48 * _MB, 300, 121, 2040),
    "l40s": GpuSpec("NVIDIA L40S", 89, 142, 99 * _KB, 100 * _KB, 96 * _MB, 864, 362, 2520),
    "h100": GpuSpec("NVIDIA H100 80GB HBM3", 90, 132, 227 * _KB, 228 * _KB, 50 * _MB, 3350, 780, 1980),
    "h200": GpuSpec("NVIDIA H200", 90, 132, 227 * _KB, 228 * _KB, 60 * _MB, 4300, 780, 1980),
}


def known_gpu(name: str) -> GpuSpec | None:
    """The spec by short name ('h200') or by the driver's name ('NVIDIA H200'), any case; None if unknown."""
    wanted = name.strip().lower()
    for short, spec in KNOWN_GPUS.items():
        if wanted in (short, spec.name.lower()):
            return spec
    return None
