"""What the GPU says of itself while it works: clocks, heat, power, throttling. NVML through ctypes.

Plain ctypes because the nine functions used have not changed since NVML 5, while the Python packages around them have.
"""

import ctypes
from pathlib import Path

from core.measure.measurement import GpuState

_SM_CLOCK, _MEMORY_CLOCK, _GPU_SENSOR = 1, 2, 0
# nvml.h nvmlClocksEventReason*: software power cap, hardware slowdown, software and hardware thermal, power brake.
THROTTLE_BITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
_MOST_PROCESSES = 256


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h."""

    _fields_ = [
        ("pid", ctypes.c_uint), ("used_bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]  # fmt: skip


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def driver_version() -> str:
    """The kernel driver's version, "580.159.04"; "" where neither NVML nor /proc tells it."""
    library = _library()
    if library is not None:
        text = ctypes.create_string_buffer(96)
        if library.nvmlSystemGetDriverVersion(text, 96) == 0:
            return text.value.decode()
    try:
        lines = Path("/proc/driver/nvidia/version").read_text().splitlines()
    except OSError:
        return ""
    words = lines[0].split() if lines else []
    return next((w for w in words if w.count(".") >= 1 and w.replace(".", "").isdigit()), "")


class Monitor:
    """Reads the state of one GPU. Where NVML is absent or refuses, every field is 0 and `absent` says why."""

    def __init__(self, pci_bus: str) -> None:
        self.absent = ""
        self._device = ctypes.c_void_p()
        self._library = _library()
        if self._library is None:
            self.absent = "NVML (libnvidia-ml.so.1) is not there: clocks, power and throttling are not recorded"
        elif self._library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus.encode(), ctypes.byref(self._device)) != 0:
            self.absent = f"NVML does not know the GPU at {pci_bus}: clocks, power and throttling are not recorded"

    def _read(self, function: str, *middle: int) -> int:
        if self._library is None:
            return 0
        value = ctypes.c_uint()
        code = getattr(self._library, function)(self._device, *middle, ctypes.byref(value))
        return value.value if code == 0 else 0

    def state(self) -> GpuState:
        """Clocks in MHz, temperature in degrees C, board power in W; a figure the GPU does not tell is 0."""
        if self.absent or self._library is None:
            return GpuState()
        reasons = ctypes.c_ulonglong()
        # The older name of nvmlDeviceGetCurrentClocksEventReasons, still exported by every driver.
        known = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._device, ctypes.byref(reasons)) == 0
        return GpuState(
            sm_mhz=self._read("nvmlDeviceGetClockInfo", _SM_CLOCK),
            memory_mhz=self._read("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            temperature_c=self._read("nvmlDeviceGetTemperature", _GPU_SENSOR),
            power_w=self._read("nvmlDeviceGetPowerUsage") / 1000.0,
            throttled=known and bool(reasons.value & THROTTLE_BITS),
        )

    def processes(self) -> int:
        """Processes that compute on the GPU, this one among them; 0 where the driver does not tell.

        Their numbers are those of the host and mean nothing inside a container, so only the count is told.
        """
        function = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if self.absent or function is None:
            return 0
        count = ctypes.c_uint(_MOST_PROCESSES)
        infos = (_ProcessInfo * _MOST_PROCESSES)()
        return count.value if function(self._device, ctypes.byref(count), infos) == 0 else 0

    def sm_mhz(self) -> int:
        """The SM clock alone, for warm-up; 0 where it is not told."""
        return 0 if self.absent else self._read("nvmlDeviceGetClockInfo", _SM_CLOCK)


def combine(states: list[GpuState]) -> GpuState:
    """One state for a run: the lowest clocks, the highest temperature and power, throttled if it ever was."""
    if not states:
        return GpuState()
    return GpuState(
        min(s.sm_mhz for s in states),
        min(s.memory_mhz for s in states),
        max(s.temperature_c for s in states),
        max(s.power_w for s in states),
        any(s.throttled for s in states),
    )
