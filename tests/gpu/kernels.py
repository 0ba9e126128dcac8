"""Kernels compiled for the tests of this folder, through the product's builder and its cache: what another run or a
tuning has compiled is not compiled again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING

from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.build.toolchain import find_toolchain
from templates.family import Kernel
from templates.gpu import GpuSpec

if TYPE_CHECKING:
    from ctypes import _FuncPointer


class Kernels:
    """Entry points of compiled kernels."""

    def __init__(self, kernels: Iterable[Kernel], gpu: GpuSpec) -> None:
        """Compiles on all cores what the cache lacks. Raises AssertionError on a kernel that does not compile."""
        self._libraries: dict[str, ctypes.CDLL] = {}
        for kernel, built in Builder(find_toolchain(), gpu).build(list({k.name: k for k in kernels}.values())):
            assert isinstance(built, BuiltKernel), built
            self._libraries[kernel.name] = ctypes.CDLL(str(built.library))

    def __len__(self) -> int:
        return len(self._libraries)

    def entry(self, kind: str, kernel: Kernel) -> _FuncPointer:
        """The function "check", "run" or "workspace" of the kernel."""
        found = getattr(self._libraries[kernel.name], f"bolt_{kind}_{kernel.name}")
        found.restype = ctypes.c_size_t if kind == "workspace" else ctypes.c_int
        return found
