"""Every algorithm of cuBLASLt and cuDNN that we would compare with: right values, alone and inside a CUDA graph."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from core.device import GpuIdentity
from core.measure.reference import Reference
from core.measure.runtime import Runtime, open_runtime
from core.measure.tensors import Tensors
from core.vendor import WORKSPACE_BYTES, Peers, VendorContext, peers
from templates.workload import parse_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

GEMM, CONV = "gemm 256x192x320", "conv 4x28x28x64 k128x3x3 p1.1.1.1 s1.1 d1.1 g1"
CASES = {
    f"{GEMM} f16.f32 row.col identity": "nothing",
    f"{GEMM} f16.f32 row.col bias+relu": "bias+relu",
    f"{GEMM} f16.f32 row.row bias+gelu_tanh": "bias+gelu_tanh",
    f"{GEMM} f16.f32 col.col bias+gelu_erf": "bias",
    f"{GEMM} f16.f32 row.col bias+add+relu": "bias+add+relu",
    f"{GEMM} f16.f32 row.col bias+relu+add": "bias+relu",
    f"{GEMM} bf16.f32 row.col bias+relu->bf16": "bias+relu",
    "gemm 128x64x64 b12 f16.f32 row.row scale(0.125)": "scale(0.125)",
    "gemm 128x64x64 b12s f16.f32 row.col bias+relu": "bias+relu",
    "gemm 1568x512x256 f16.f32 row.col bias+relu": "bias+relu",  # cuDNN too: 32 images of 7x7
    f"{CONV} f16.f32 identity": "",
    f"{CONV} f16.f32 bias+relu": "",
    f"{CONV} f16.f32 bias+add+relu": "",
    f"{CONV} f16.f32 bias+relu+add": "",
    f"{CONV} f16.f32 bias+silu": "",
    f"{CONV} f16.f32 bias+gelu_erf": "",
    f"{CONV} f16.f32 bias+clip(0,6)": "",
    f"{CONV} f16.f32 bias+hard_swish": "",
    "conv 4x29x31x64 k64x3x3 p1.0.2.1 s2.2 d1.1 g1 f16.f32 bias+relu": "",
    "conv 4x28x28x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g64 f16.f32 bias+relu": "",
    "conv 4x112x112x4 k64x7x7 p3.3.3.3 s2.2 d1.1 g1 f16.f32 bias+relu": "",
    "b2b_gemm 777x64x96 f16.f32 row.col bias+relu then n32 bias+gelu_erf": "bias+relu",
    f"b2b_{CONV} f16.f32 bias+silu then n96 bias+add+relu": "",
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    yield open_runtime("cuda-bindings")  # left open: cuDNN's handle lives in its context


@pytest.mark.parametrize("key", CASES)
def test_each_algorithm_is_right(runtime: Runtime, reference_library: Path, gpu: GpuIdentity, key: str) -> None:
    workload, stream = parse_workload(key), runtime.stream()
    reference = Reference(reference_library, runtime)
    tensors = Tensors(workload, runtime, reference, gpu.spec.l2_bytes, stream)
    try:
        tensors.reserve(WORKSPACE_BYTES)
        workspace = tensors.workspace(WORKSPACE_BYTES)
        found = peers(VendorContext(workload, runtime, reference, tensors.slots, stream, workspace))
        _skip_if_absent(found)
        assert found.found, found.notes
        for peer in found.found:
            assert f"fused {CASES[key]}" in peer.detail

            def once(launch: Callable[[int, int], None] = peer.launch) -> None:
                for slot in tensors.checked:
                    launch(stream, slot)

            tensors.verify(once)
            graph = runtime.capture(stream, once)
            tensors.verify(partial(runtime.launch, graph, stream))
            runtime.free_graph(graph)
        print(len(found.found), "algorithms,", found.found[0].source, found.found[0].detail)
    finally:
        tensors.free()


def _skip_if_absent(found: Peers) -> None:
    absent = [note for note in found.notes if "not installed" in note]
    if absent:
        pytest.skip(absent[0])
