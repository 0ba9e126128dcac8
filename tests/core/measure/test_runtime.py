"""Opening a runtime where there is none."""

import pytest

from core.errors import DeviceError
from core.measure.runtime import GpuError, open_runtime


def test_unknown_name() -> None:
    with pytest.raises(DeviceError, match="no GPU runtime is called 'rocm'; use one of cuda-bindings, pycuda"):
        open_runtime("rocm")


def test_an_adapter_by_path() -> None:
    assert open_runtime("tests.core.measure.host_runtime:HostRuntime").name == "host"


def test_a_missing_package_is_named() -> None:
    with pytest.raises(DeviceError, match="needs the Python package nowhere_to_be_found"):
        open_runtime("nowhere_to_be_found:Runtime")


def test_without_a_driver_the_default_says_so() -> None:
    from core.device import read_facts

    try:
        read_facts()
    except DeviceError:
        with pytest.raises(DeviceError):
            open_runtime("cuda-bindings")
    else:
        assert open_runtime("cuda-bindings").name == "cuda-bindings"


def test_gpu_error_is_one_line() -> None:
    error = GpuError("CUDA_ERROR_ILLEGAL_ADDRESS", "cuCtxSynchronize")
    assert str(error) == "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS" and error.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
