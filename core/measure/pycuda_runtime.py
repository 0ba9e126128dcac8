"""The second GPU runtime: PyCUDA, which has no CUDA graphs; those are reached in libcuda through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pycuda.driver as cuda

from core.device import DeviceFacts, read_facts
from core.measure.runtime import GpuError

if TYPE_CHECKING:
    import numpy as np

_CAPTURE_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def _code(error: Exception) -> str:
    """PyCUDA words an error as "cuFunction failed: text"; there is no code to ask for."""
    return " ".join(str(error).split()) or type(error).__name__


class PycudaRuntime:
    """`Runtime` over pycuda.driver."""

    name = "pycuda"

    def __init__(self, ordinal: int = 0) -> None:
        self._ordinal = ordinal
        self._libcuda = ctypes.CDLL("libcuda.so.1")  # pycuda is linked to it, so it is there
        self._do("cuInit", cuda.init)
        self._context = self._do("cuDevicePrimaryCtxRetain", lambda: cuda.Device(ordinal).retain_primary_context())
        self._context.push()
        self._memory: dict[int, Any] = {}
        self._streams: dict[int, Any] = {0: None}  # PyCUDA's word for the default stream
        self._events: dict[int, Any] = {}

    def _do(self, call: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except cuda.Error as error:
            raise GpuError(_code(error), call) from None

    def _driver(self, call: str, *arguments: Any) -> None:
        code = getattr(self._libcuda, call)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._libcuda.cuGetErrorName(code, ctypes.byref(text))
            raise GpuError((text.value or str(code).encode()).decode(), call)

    def facts(self) -> DeviceFacts:
        return read_facts(self._ordinal)

    def alloc(self, nbytes: int) -> int:
        allocation = self._do(f"cuMemAlloc of {nbytes} bytes", lambda: cuda.mem_alloc(nbytes))
        self._memory[int(allocation)] = allocation
        return int(allocation)

    def free(self, pointer: int) -> None:
        self._do("cuMemFree", self._memory.pop(pointer).free)

    def free_bytes(self) -> int:
        return int(self._do("cuMemGetInfo", cuda.mem_get_info)[0])

    def to_device(self, pointer: int, data: np.ndarray) -> None:
        self.synchronize()
        self._do("cuMemcpyHtoD", lambda: cuda.memcpy_htod(pointer, data))

    def to_host(self, data: np.ndarray, pointer: int) -> None:
        self.synchronize()
        self._do("cuMemcpyDtoH", lambda: cuda.memcpy_dtoh(data, pointer))

    def memset(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        self._do("cuMemsetD8Async", lambda: cuda.memset_d8_async(pointer, value, nbytes, self._streams[stream]))

    def copy(self, target: int, origin: int, nbytes: int, stream: int) -> None:
        self._do("cuMemcpyDtoDAsync", lambda: cuda.memcpy_dtod_async(target, origin, nbytes, self._streams[stream]))

    def stream(self) -> int:
        made = self._do("cuStreamCreate", cuda.Stream)
        self._streams[int(made.handle)] = made
        return int(made.handle)

    def event(self) -> int:
        made = self._do("cuEventCreate", cuda.Event)
        self._events[id(made)] = made  # PyCUDA shows no handle of an event; the object itself is kept
        return id(made)

    def record(self, event: int, stream: int) -> None:
        self._do("cuEventRecord", lambda: self._events[event].record(self._streams[stream]))

    def elapsed_us(self, start: int, stop: int) -> float:
        self._do("cuEventSynchronize", self._events[stop].synchronize)
        return float(self._do("cuEventElapsedTime", lambda: self._events[stop].time_since(self._events[start]))) * 1e3

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        handle, graph, executable = ctypes.c_void_p(stream), ctypes.c_void_p(), ctypes.c_void_p()
        self._driver("cuStreamBeginCapture_v2", handle, _CAPTURE_THREAD_LOCAL)
        try:
            work()
        except BaseException:
            self._libcuda.cuStreamEndCapture(handle, ctypes.byref(graph))  # the first error is the one that counts
            raise
        self._driver("cuStreamEndCapture", handle, ctypes.byref(graph))
        try:
            self._driver("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        finally:
            self._driver("cuGraphDestroy", graph)
        return int(executable.value or 0)

    def launch(self, graph: int, stream: int) -> None:
        self._driver("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def free_graph(self, graph: int) -> None:
        self._driver("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def synchronize(self) -> None:
        self._driver("cuCtxSynchronize")  # not PyCUDA's: it words the error and does not name its code

    def broken(self) -> str:
        try:
            self.synchronize()
        except GpuError as error:
            return error.code
        return ""

    def close(self) -> None:
        for allocation in self._memory.values():
            allocation.free()
        self._memory.clear()
        self._events.clear()
        self._streams.clear()
        self._context.pop()
        self._context.detach()
