"""The default GPU runtime: NVIDIA's cuda-bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from core.device import DeviceFacts, read_facts
from core.errors import DeviceError
from core.measure.runtime import GpuError

if TYPE_CHECKING:
    import numpy as np

_SUCCESS = driver.CUresult.CUDA_SUCCESS


def _ok(call: str, result: tuple[Any, ...]) -> Any:
    code, *values = result
    if code != _SUCCESS:
        raise GpuError(code.name if isinstance(code, driver.CUresult) else str(code), call)
    return values[0] if values else None


class CudaBindingsRuntime:
    """`Runtime` over cuda.bindings.driver."""

    name = "cuda-bindings"

    def __init__(self, ordinal: int = 0) -> None:
        try:
            _ok("cuInit", driver.cuInit(0))
        except RuntimeError as error:  # cuda-bindings' way of saying that libcuda is not there
            raise DeviceError(f"no NVIDIA driver on this machine: {error}", "install NVIDIA's driver") from None
        self._ordinal = ordinal
        self._device = _ok("cuDeviceGet", driver.cuDeviceGet(ordinal))
        self._context = _ok("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(self._device))
        _ok("cuCtxSetCurrent", driver.cuCtxSetCurrent(self._context))

    def facts(self) -> DeviceFacts:
        return read_facts(self._ordinal)

    def alloc(self, nbytes: int) -> int:
        return int(_ok(f"cuMemAlloc of {nbytes} bytes", driver.cuMemAlloc(nbytes)))

    def free(self, pointer: int) -> None:
        _ok("cuMemFree", driver.cuMemFree(pointer))

    def free_bytes(self) -> int:
        code, free, _total = driver.cuMemGetInfo()
        _ok("cuMemGetInfo", (code,))
        return int(free)

    def to_device(self, pointer: int, data: np.ndarray) -> None:
        self.synchronize()
        _ok("cuMemcpyHtoD", driver.cuMemcpyHtoD(pointer, data.ctypes.data, data.nbytes))

    def to_host(self, data: np.ndarray, pointer: int) -> None:
        self.synchronize()
        _ok("cuMemcpyDtoH", driver.cuMemcpyDtoH(data.ctypes.data, pointer, data.nbytes))

    def memset(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        _ok("cuMemsetD8Async", driver.cuMemsetD8Async(pointer, value, nbytes, stream))

    def copy(self, target: int, origin: int, nbytes: int, stream: int) -> None:
        _ok("cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync(target, origin, nbytes, stream))

    def stream(self) -> int:
        return int(_ok("cuStreamCreate", driver.cuStreamCreate(0)))

    def event(self) -> int:
        return int(_ok("cuEventCreate", driver.cuEventCreate(0)))

    def record(self, event: int, stream: int) -> None:
        _ok("cuEventRecord", driver.cuEventRecord(event, stream))

    def elapsed_us(self, start: int, stop: int) -> float:
        _ok("cuEventSynchronize", driver.cuEventSynchronize(stop))
        return float(_ok("cuEventElapsedTime", driver.cuEventElapsedTime(start, stop))) * 1e3

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _ok("cuStreamBeginCapture", driver.cuStreamBeginCapture(stream, mode))
        try:
            work()
        except BaseException:
            driver.cuStreamEndCapture(stream)  # leave the stream usable; the first error is the one that counts
            raise
        graph = _ok("cuStreamEndCapture", driver.cuStreamEndCapture(stream))
        try:
            return int(_ok("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0)))
        finally:
            _ok("cuGraphDestroy", driver.cuGraphDestroy(graph))

    def launch(self, graph: int, stream: int) -> None:
        _ok("cuGraphLaunch", driver.cuGraphLaunch(graph, stream))

    def free_graph(self, graph: int) -> None:
        _ok("cuGraphExecDestroy", driver.cuGraphExecDestroy(graph))

    def synchronize(self) -> None:
        _ok("cuCtxSynchronize", driver.cuCtxSynchronize())

    def broken(self) -> str:
        (code,) = driver.cuCtxSynchronize()
        return "" if code == _SUCCESS else str(getattr(code, "name", code))

    def close(self) -> None:
        _ok("cuCtxSetCurrent", driver.cuCtxSetCurrent(driver.CUcontext(0)))
        _ok("cuDevicePrimaryCtxRelease", driver.cuDevicePrimaryCtxRelease(self._device))
