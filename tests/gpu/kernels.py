"""Kernels compiled for the tests of this folder, through the product's builder and its cache: what another run or a
tuning has compiled is not compiled again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.build.toolchain import find_toolchain
from templates.family import Kernel
from templates.gpu import GpuSpec

if TYPE_CHECKING:
    from ctypes import _FuncPointer


def selected(request: pytest.FixtureRequest) -> list[Any]:
    """The parameters `case` of the tests of the fixture's module that this run was asked for."""
    asked = (getattr(item, "callspec", None) for item in request.session.items if item.module is request.module)  # type: ignore[attr-defined]
    return [spec.params["case"] for spec in asked if spec and "case" in spec.params]


class Kernels:
    """Entry points of compiled kernels."""

    def __init__(self, kernels: Iterable[Kernel], gpu: GpuSpec) -> None:
        """Compiles on all cores what the cache lacks. Raises AssertionError on a kernel that does not compile."""
        self._builder = Builder(find_toolchain(), gpu)
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._add(kernels)

    def _add(self, kernels: Iterable[Kernel]) -> None:
        for kernel, built in self._builder.build(list({k.name: k for k in kernels}.values())):
            assert isinstance(built, BuiltKernel), built
            self._libraries[kernel.name] = ctypes.CDLL(str(built.library))

    def __len__(self) -> int:
        return len(self._libraries)

    def entry(self, kind: str, kernel: Kernel) -> _FuncPointer:
        """The function "check", "run" or "workspace" of the kernel, which is compiled if it is none of the first."""
        if kernel.name not in self._libraries:
            self._add([kernel])
        found = getattr(self._libraries[kernel.name], f"bolt_{kind}_{kernel.name}")
        found.restype = ctypes.c_size_t if kind == "workspace" else ctypes.c_int
        return found


def check_chained(tensors: Sequence[Any], go: Callable[[bool], None], seeds: int = 8) -> None:
    """`go(pdl)` launches kernels that read tensors[i] and write tensors[i + 1]: with PDL, in a CUDA graph, the last one
    is the same bit by bit as after plain launches. Weights of ordinary size: what the tensors hold must stay finite.
    """
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        go(True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        go(True)
    for seed in range(seeds):
        torch.manual_seed(seed)
        start, results = torch.randn_like(tensors[0]), []
        for launch in (lambda: go(False), graph.replay):
            for tensor in tensors[1:]:
                tensor.fill_(float("nan"))
            tensors[0].copy_(start)
            launch()
            torch.cuda.synchronize()
            results.append(tensors[-1].clone())
        assert not results[0].isnan().any()
        assert torch.equal(*results), f"seed {seed}: {int((results[0] != results[1]).sum())} values differ under PDL"
