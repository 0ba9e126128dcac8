"""The few GPU runtime calls that measuring needs, behind one interface with two adapters.

Handles and pointers are plain integers. Every adapter retains the device's PRIMARY context, the one the generated
kernels' CUDA runtime uses too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from core.device import DeviceFacts
from core.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

RUNTIMES = {
    "cuda-bindings": "core.measure.cuda_bindings_runtime:CudaBindingsRuntime",
    "pycuda": "core.measure.pycuda_runtime:PycudaRuntime",
}


class GpuError(DeviceError):
    """A GPU runtime call failed; `code` is the driver's name of the error, e.g. CUDA_ERROR_ILLEGAL_ADDRESS."""

    def __init__(self, code: str, call: str) -> None:
        self.code = code
        super().__init__(f"{call}: {code}")


class Runtime(Protocol):
    """One device and its primary context. Every method raises GpuError when the driver reports an error."""

    name: str

    def facts(self) -> DeviceFacts: ...

    def alloc(self, nbytes: int) -> int:
        """Device memory, aligned to 256 bytes."""
        ...

    def free(self, pointer: int) -> None: ...

    def free_bytes(self) -> int:
        """Device memory not in use by anyone."""
        ...

    def to_device(self, pointer: int, data: np.ndarray) -> None:
        """Copies a C-contiguous array; returns when it is there."""
        ...

    def to_host(self, data: np.ndarray, pointer: int) -> None:
        """Fills a C-contiguous array; waits for the device first."""
        ...

    def memset(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        """Enqueues filling with one byte."""
        ...

    def copy(self, target: int, origin: int, nbytes: int, stream: int) -> None:
        """Enqueues a device-to-device copy."""
        ...

    def stream(self) -> int: ...

    def event(self) -> int: ...

    def record(self, event: int, stream: int) -> None: ...

    def elapsed_us(self, start: int, stop: int) -> float:
        """Microseconds between two recorded events; waits for the second."""
        ...

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        """Captures what `work` enqueues on the stream into an executable CUDA graph, without running it."""
        ...

    def launch(self, graph: int, stream: int) -> None: ...

    def free_graph(self, graph: int) -> None: ...

    def synchronize(self) -> None:
        """Waits for all work; raises what it ended with."""
        ...

    def broken(self) -> str:
        """The error that made the context unusable, or "". Never raises."""
        ...

    def close(self) -> None: ...


def open_runtime(name: str, ordinal: int = 0) -> Runtime:
    """The adapter by name, on one device. A name "module:Class" loads an adapter from elsewhere.

    Raises DeviceError when the adapter's package, the driver or the device is not there.
    """
    path = RUNTIMES.get(name, name)
    module, separator, attribute = path.partition(":")
    if not separator:
        raise DeviceError(f"no GPU runtime is called {name!r}", f"use one of {', '.join(RUNTIMES)}")
    try:
        adapter = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"the GPU runtime {name} needs the Python package {error.name}", "install it, or choose the other runtime"
        ) from None
    opened: Runtime = adapter(ordinal)
    return opened
