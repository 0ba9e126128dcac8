"""Where power, not the clock, holds the Hopper families back; for ranking only."""

from templates.gpu import GpuSpec


def power_us(flops: float, fetched: float, operations_per_byte: float, bare: float, gpu: GpuSpec) -> float:
    """Short kernels run at the full clock; power holds long dense ones at a rate of the whole GPU.

    A fetched byte costs as much as `operations_per_byte` operations; products alone would run `bare` times as fast as
    the sustained rate, at which products and their loads run together.
    """
    return (flops + operations_per_byte * fetched) / (gpu.tensor_tflops * bare * 1e6)
