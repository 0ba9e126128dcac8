"""A GPU runtime made of host memory: the whole of measuring runs on it, without a GPU."""

import ctypes
import time
from collections.abc import Callable

import numpy as np

from core.device import DeviceFacts
from core.measure.runtime import GpuError

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.getenv.restype = ctypes.c_char_p
_ALIGN = 256


class HostRuntime:
    """Streams run at once, a graph is the function that was captured. A kernel breaks the "context" by setenv."""

    name = "host"

    def __init__(self, ordinal: int = 0) -> None:
        if ordinal:
            raise GpuError("CUDA_ERROR_INVALID_DEVICE", "cuDeviceGet")
        self._events: list[float] = []
        self._graphs: dict[int, Callable[[], None]] = {}
        self._sizes: dict[int, int] = {}
        self.free_memory = 1 << 28

    def facts(self) -> DeviceFacts:
        return DeviceFacts("Host", 8, 0, 4, 100 << 10, 100 << 10, 64 << 10, 1_000_000, 1_000_000, 64, 13000, "0:0:0.0")

    def alloc(self, nbytes: int) -> int:
        if nbytes > self.free_memory:
            raise GpuError("CUDA_ERROR_OUT_OF_MEMORY", f"cuMemAlloc of {nbytes} bytes")
        pointer = _libc.aligned_alloc(ctypes.c_size_t(_ALIGN), ctypes.c_size_t(-(-nbytes // _ALIGN) * _ALIGN))
        self._sizes[pointer] = nbytes
        self.free_memory -= nbytes
        return int(pointer)

    def free(self, pointer: int) -> None:
        self.free_memory += self._sizes.pop(pointer)
        _libc.free(ctypes.c_void_p(pointer))

    @property
    def allocations(self) -> int:
        return len(self._sizes)

    def free_bytes(self) -> int:
        return self.free_memory

    def to_device(self, pointer: int, data: np.ndarray) -> None:
        ctypes.memmove(pointer, data.ctypes.data, data.nbytes)

    def to_host(self, data: np.ndarray, pointer: int) -> None:
        self.synchronize()
        ctypes.memmove(data.ctypes.data, pointer, data.nbytes)

    def memset(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        ctypes.memset(pointer, value, nbytes)

    def copy(self, target: int, origin: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(target, origin, nbytes)

    def stream(self) -> int:
        return 1

    def event(self) -> int:
        self._events.append(0.0)
        return len(self._events) - 1

    def record(self, event: int, stream: int) -> None:
        self._events[event] = time.perf_counter()

    def elapsed_us(self, start: int, stop: int) -> float:
        return (self._events[stop] - self._events[start]) * 1e6

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        handle = len(self._graphs) + 1
        self._graphs[handle] = work
        return handle

    def launch(self, graph: int, stream: int) -> None:
        self._graphs[graph]()

    def free_graph(self, graph: int) -> None:
        del self._graphs[graph]

    def synchronize(self) -> None:
        if self.broken():
            raise GpuError(self.broken(), "cuCtxSynchronize")

    def broken(self) -> str:
        return (_libc.getenv(b"BOLT_HOST_BROKEN") or b"").decode()

    def close(self) -> None:
        for pointer in list(self._sizes):
            self.free(pointer)
