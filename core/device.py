"""Which GPU is meant: the one in this machine, or one named for compiling and replaying without it."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from core.errors import DeviceError
from templates.gpu import KNOWN_GPUS, GpuSpec, known_gpu

_NO_DRIVER = "install NVIDIA's driver, or name a target with --gpu to work without a GPU"


@dataclass(frozen=True)
class GpuIdentity:
    """What a measurement holds for. Two machines whose identities are equal may share records.

    `driver` and `cuda` are versions as text ("580.159.04", "13.0"); `memory_mhz` the memory clock's class.
    A GPU that is only named, not present, has driver and cuda "" and memory_mhz 0.
    """

    name: str
    sm: int
    sm_count: int
    memory_mhz: int
    driver: str
    cuda: str
    spec: GpuSpec


@dataclass(frozen=True)
class DeviceFacts:
    """What the CUDA driver says of a device, in the driver's own units (kHz, bytes, bits; `cuda` as 13000)."""

    name: str
    major: int
    minor: int
    sm_count: int
    smem_per_block: int
    smem_per_sm: int
    l2_bytes: int
    clock_khz: int
    memory_khz: int
    bus_bits: int
    cuda: int
    pci_bus: str


# CUdevice_attribute of each DeviceFacts field (cuda.h); read without creating a context.
ATTRIBUTES = {
    "major": 75, "minor": 76, "sm_count": 16, "smem_per_block": 97, "smem_per_sm": 81, "l2_bytes": 38,
    "clock_khz": 13, "memory_khz": 36, "bus_bits": 37,
}  # fmt: skip

# Dense fp16 operations with fp32 accumulation per SM and clock, by compute capability (NVIDIA's architecture papers).
_TENSOR_OPS = {75: 1024, 80: 2048, 86: 1024, 87: 2048, 89: 1024, 90: 4096, 100: 8192, 103: 8192, 120: 1024, 121: 1024}


def spec_of(facts: DeviceFacts) -> GpuSpec:
    """Limits as the driver gives them; rates of a known model from its table, of another from its clocks and bus."""
    sm = facts.major * 10 + facts.minor
    older = [_TENSOR_OPS[s] for s in sorted(_TENSOR_OPS) if s <= sm]
    if not older:
        raise DeviceError(
            f"{facts.name} has compute capability {facts.major}.{facts.minor}; tensor-core kernels need 7.5 or newer"
        )
    known = known_gpu(facts.name)
    nominal_gbs = 2.0 * facts.memory_khz * 1e3 * facts.bus_bits / 8 / 1e9  # two transfers a clock
    nominal_tflops = older[-1] * facts.sm_count * facts.clock_khz * 1e3 / 1e12
    return GpuSpec(
        name=facts.name,
        sm=sm,
        sm_count=facts.sm_count,
        smem_per_block=facts.smem_per_block,
        smem_per_sm=facts.smem_per_sm,
        l2_bytes=facts.l2_bytes,
        dram_gbs=known.dram_gbs if known else nominal_gbs,
        tensor_tflops=known.tensor_tflops if known else nominal_tflops,
        clock_mhz=facts.clock_khz // 1000,
    )


def identity_of(facts: DeviceFacts, driver: str) -> GpuIdentity:
    """The identity of a present GPU; `driver` is the kernel driver's version as text."""
    spec = spec_of(facts)
    cuda = f"{facts.cuda // 1000}.{facts.cuda % 1000 // 10}"
    return GpuIdentity(spec.name, spec.sm, spec.sm_count, facts.memory_khz // 1000, driver, cuda, spec)


def _driver() -> Callable[..., None]:
    """Calls a function of the CUDA driver, which is initialised, by name. It raises DeviceError on an error code."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise DeviceError("no NVIDIA driver on this machine (libcuda.so.1 is not there)", _NO_DRIVER) from None

    def ask(function: str, *arguments: object) -> None:
        code = getattr(cuda, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            cuda.cuGetErrorName(code, ctypes.byref(text))
            raise DeviceError(f"the NVIDIA driver answered {(text.value or b'?').decode()} to {function}", _NO_DRIVER)

    ask("cuInit", 0)
    return ask


def device_count() -> int:
    """How many GPUs the driver shows (CUDA_VISIBLE_DEVICES counts). Raises DeviceError without a driver."""
    value = ctypes.c_int()
    _driver()("cuDeviceGetCount", ctypes.byref(value))
    return value.value


def read_facts(ordinal: int = 0) -> DeviceFacts:
    """Asks the CUDA driver through plain ctypes; creates no context. Raises DeviceError without a driver or device."""
    ask = _driver()
    value = ctypes.c_int()
    ask("cuDeviceGetCount", ctypes.byref(value))
    if value.value <= ordinal:
        raise DeviceError(f"the driver shows {value.value} GPUs, number {ordinal} is not among them", _NO_DRIVER)
    device = ctypes.c_int()
    ask("cuDeviceGet", ctypes.byref(device), ordinal)
    numbers = {}
    for field, attribute in ATTRIBUTES.items():
        ask("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        numbers[field] = value.value
    name = ctypes.create_string_buffer(256)
    ask("cuDeviceGetName", name, 256, device)
    bus = ctypes.create_string_buffer(32)
    ask("cuDeviceGetPCIBusId", bus, 32, device)
    ask("cuDriverGetVersion", ctypes.byref(value))
    return DeviceFacts(name=name.value.decode(), cuda=value.value, pci_bus=bus.value.decode(), **numbers)


def detect_gpu(ordinal: int = 0) -> GpuIdentity:
    """The GPU of this machine. Raises DeviceError when there is none that can be used."""
    from core.measure.nvml import driver_version

    return identity_of(read_facts(ordinal), driver_version())


def resolve_gpu(name: str = "auto") -> GpuIdentity:
    """The GPU meant by --gpu: "auto" is the one in this machine; a known name ("h200", "NVIDIA H200") needs none.

    Raises DeviceError on a name nobody knows.
    """
    if name.strip().lower() == "auto":
        return detect_gpu()
    spec = known_gpu(name)
    if spec is None:
        raise DeviceError(f"no GPU is called {name!r}", f"use auto or one of {', '.join(KNOWN_GPUS)}")
    return GpuIdentity(spec.name, spec.sm, spec.sm_count, 0, "", "", spec)


def is_here(gpu: GpuIdentity) -> bool:
    """Whether the GPU of this machine is of that name; False where there is none that can be used."""
    try:
        return detect_gpu().name == gpu.name
    except DeviceError:
        return False
