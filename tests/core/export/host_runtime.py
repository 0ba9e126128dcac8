"""core.measure.runtime.Runtime over host memory, for libraries that were compiled for the CPU."""

import ctypes
from types import SimpleNamespace

import numpy as np


class HostRuntime:
    """Streams and events are nothing; everything is done when a call returns."""

    name = "host"

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray] = {}

    def facts(self):
        return SimpleNamespace(name="the CPU", pci_bus="none")

    def alloc(self, nbytes: int) -> int:
        block = np.zeros(nbytes + 256, np.uint8)
        pointer = block.ctypes.data + -block.ctypes.data % 256
        self._blocks[pointer] = block
        return pointer

    def to_device(self, pointer: int, data: np.ndarray) -> None:
        ctypes.memmove(pointer, data.ctypes.data, data.nbytes)

    def to_host(self, data: np.ndarray, pointer: int) -> None:
        ctypes.memmove(data.ctypes.data, pointer, data.nbytes)

    def memset(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        ctypes.memset(pointer, value, nbytes)

    def synchronize(self) -> None: ...

    def stream(self) -> int:
        return 0

    def event(self) -> int:
        return 0

    def record(self, event: int, stream: int) -> None: ...

    def elapsed_us(self, start: int, stop: int) -> float:
        return 1e6  # so that timing takes as few runs as it may
