"""The roofline model (Williams, Waterman, Patterson 2009): what bounds a workload on a GPU, and how near it comes."""

from dataclasses import dataclass

from templates.gpu import GpuSpec
from templates.workload import Workload


@dataclass(frozen=True)
class Point:
    """`intensity` in FLOP per byte of least traffic, `tflops` as timed, `roof_tflops` the most that the GPU allows."""

    intensity: float
    tflops: float
    roof_tflops: float
    memory_bound: bool

    @property
    def share(self) -> float:
        """Of what the roof allows, 0 to 1; above 1 where the caches serve what counts as traffic."""
        return self.tflops / self.roof_tflops


def ridge(gpu: GpuSpec) -> float:
    """FLOP per byte from which on arithmetic is the bound."""
    return gpu.tensor_tflops * 1e3 / gpu.dram_gbs


def roof_tflops(gpu: GpuSpec, intensity: float) -> float:
    """The most that the GPU can do at an intensity, TFLOP/s."""
    return min(gpu.tensor_tflops, intensity * gpu.dram_gbs / 1e3)


def point(workload: Workload, us: float, gpu: GpuSpec) -> Point:
    """Where a timed run of the workload stands. `us` > 0."""
    intensity = workload.flops / workload.bytes
    return Point(intensity, workload.flops / us / 1e6, roof_tflops(gpu, intensity), intensity < ridge(gpu))
