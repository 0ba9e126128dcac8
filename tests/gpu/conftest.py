"""Tests in this folder run on a GPU; without one every test that is marked so is skipped, with the reason shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.device import GpuIdentity, detect_gpu
from core.errors import DeviceError


def _gpu() -> GpuIdentity | str:
    try:
        return detect_gpu()
    except DeviceError as error:
        return str(error)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    found = _gpu()
    if isinstance(found, str):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=found))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line at once for a failure: a run on a borrowed GPU may be cut short before pytest's summary."""
    if report.failed and not os.environ.get("PYTEST_XDIST_WORKER"):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr)
        print(f"\nFAILED {report.nodeid}: {' '.join(reason.split())[:400]}", flush=True)


@pytest.fixture(scope="session")
def gpu() -> GpuIdentity:
    return detect_gpu()


@pytest.fixture(scope="session")
def reference_library(gpu: GpuIdentity) -> Path:
    """The measuring library, compiled for this GPU."""
    from core.measure.reference import build

    return build(gpu.spec.nvcc_arch)


@pytest.fixture(params=["cuda-bindings", "pycuda"])
def runtime_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each runtime that is installed."""
    import importlib

    module = {"cuda-bindings": "cuda.bindings.driver", "pycuda": "pycuda.driver"}[request.param]
    try:
        importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{request.param} is not installed here: {error}")
    yield request.param
