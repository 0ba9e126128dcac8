"""The GPU runtimes: the same tests over each that is installed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.device import detect_gpu, identity_of
from core.measure.nvml import Monitor, driver_version
from core.measure.reference import Reference
from core.measure.runtime import GpuError, Runtime, open_runtime
from templates.types import DType

pytestmark = pytest.mark.gpu
N = 1 << 20


@pytest.fixture
def runtime(runtime_name: str) -> Iterator[Runtime]:
    opened = open_runtime(runtime_name)
    yield opened
    opened.close()


def test_identity_is_what_the_driver_says_without_a_context(runtime: Runtime) -> None:
    assert identity_of(runtime.facts(), driver_version()) == detect_gpu()


@pytest.mark.parametrize("default", [False, True], ids=["own stream", "default stream"])
def test_copies_and_memset(runtime: Runtime, default: bool) -> None:
    stream = 0 if default else runtime.stream()
    here = np.random.default_rng(1).integers(0, 256, N, np.uint8)
    first, second, back = runtime.alloc(N), runtime.alloc(N), np.empty(N, np.uint8)
    assert first % 256 == second % 256 == 0 and first != second
    runtime.to_device(first, here)
    runtime.copy(second, first, N, stream)
    runtime.to_host(back, second)
    assert np.array_equal(back, here)
    runtime.memset(second, 0xA5, N // 2, stream)
    runtime.to_host(back, second)
    assert (back[: N // 2] == 0xA5).all() and np.array_equal(back[N // 2 :], here[N // 2 :])
    runtime.free(first)
    runtime.free(second)


def test_a_graph_runs_only_when_launched_and_again(runtime: Runtime) -> None:
    stream, target, back = runtime.stream(), runtime.alloc(N), np.empty(N, np.uint8)
    runtime.memset(target, 1, N, stream)
    graph = runtime.capture(stream, lambda: runtime.memset(target, 2, N, stream))
    runtime.to_host(back, target)
    assert (back == 1).all()
    for _ in range(2):
        runtime.memset(target, 1, N, stream)
        runtime.launch(graph, stream)
        runtime.to_host(back, target)
        assert (back == 2).all()
    runtime.free_graph(graph)
    runtime.free(target)


def test_a_failing_capture_leaves_the_stream_usable(runtime: Runtime) -> None:
    stream, target, back = runtime.stream(), runtime.alloc(N), np.empty(N, np.uint8)

    def fails() -> None:
        runtime.memset(target, 9, N, stream)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        runtime.capture(stream, fails)
    runtime.memset(target, 3, N, stream)
    runtime.to_host(back, target)
    assert (back == 3).all() and runtime.broken() == ""
    runtime.free(target)


def test_elapsed_grows_with_the_work(runtime: Runtime) -> None:
    """Four hundred large copies take longer than four: a clock that runs, not a figure."""
    stream, nbytes = runtime.stream(), 64 << 20
    first, second = runtime.alloc(nbytes), runtime.alloc(nbytes)
    start, stop = runtime.event(), runtime.event()
    times = []
    for count in (4, 400):
        runtime.record(start, stream)
        for _ in range(count):
            runtime.copy(second, first, nbytes, stream)
        runtime.record(stop, stream)
        times.append(runtime.elapsed_us(start, stop))
    assert 0 < times[0] < times[1]
    runtime.free(first)
    runtime.free(second)


def test_out_of_memory_is_an_error_that_passes(runtime: Runtime) -> None:
    with pytest.raises(GpuError, match=r"(?i)memory"):
        runtime.alloc(1 << 50)
    assert runtime.broken() == ""
    before = runtime.free_bytes()
    pointer = runtime.alloc(1 << 28)
    assert runtime.free_bytes() <= before - (1 << 27)
    runtime.free(pointer)


def test_the_context_is_the_one_the_kernels_use(runtime: Runtime, reference_library: Path) -> None:
    """A library with the CUDA runtime inside fills memory that this runtime made."""
    reference, stream = Reference(reference_library, runtime), runtime.stream()
    pointer, back = runtime.alloc(2 * N), np.empty(N, np.float16)
    reference.fill(pointer, DType.F16, N, 7, 0.5, stream)
    runtime.to_host(back, pointer)
    values = back.astype(np.float64)  # numpy adds float16 up in float16
    assert np.abs(values).max() <= 0.5 and values.std() == pytest.approx(0.5 / 3**0.5, rel=0.01)
    runtime.free(pointer)


def test_nvml_tells_clocks_and_power(runtime: Runtime) -> None:
    monitor = Monitor(runtime.facts().pci_bus)
    if monitor.absent:
        pytest.skip(monitor.absent)
    state = monitor.state()
    assert 100 < state.sm_mhz < 5000 and state.memory_mhz > 100 and 0 < state.temperature_c < 120
