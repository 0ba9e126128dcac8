"""Which GPU is meant, from what the driver says."""

import ctypes
from typing import Any

import pytest

from core import device
from core.device import DeviceFacts, detect_gpu, identity_of, read_facts, resolve_gpu, spec_of
from core.errors import DeviceError
from templates.gpu import KNOWN_GPUS

H200 = DeviceFacts(
    "NVIDIA H200", 9, 0, 132, 232448, 233472, 62914560, 1980000, 3201000, 6144, 13000, "0000:18:00.0"
)  # fmt: skip


def test_a_known_gpu_has_its_rates_and_its_own_limits() -> None:
    spec = spec_of(H200)
    assert spec == KNOWN_GPUS["h200"], "limits as the driver tells them are those of the table"
    identity = identity_of(H200, "580.159.04")
    assert (identity.name, identity.sm, identity.memory_mhz) == ("NVIDIA H200", 90, 3201)
    assert (identity.driver, identity.cuda) == ("580.159.04", "13.0")


def test_an_unknown_gpu_is_rated_by_clock_and_bus() -> None:
    facts = DeviceFacts("NVIDIA RTX 9999", 12, 0, 100, 101376, 102400, 1 << 26, 2_500_000, 14_000_000, 512, 12080, "x")
    spec = spec_of(facts)
    assert spec.sm == 120 and spec.nvcc_arch == "120a"
    assert spec.dram_gbs == pytest.approx(2 * 14e9 * 64 / 1e9)
    assert spec.tensor_tflops == pytest.approx(1024 * 100 * 2.5e9 / 1e12)
    assert identity_of(facts, "").cuda == "12.8"


def test_a_newer_capability_is_rated_as_the_newest_known_before_it() -> None:
    facts = DeviceFacts("NVIDIA Future", 9, 5, 10, 1, 1, 1, 1_000_000, 1, 8, 13000, "x")
    assert spec_of(facts).tensor_tflops == pytest.approx(4096 * 10 * 1e9 / 1e12)


def test_a_gpu_without_tensor_cores_is_refused() -> None:
    facts = DeviceFacts("Tesla P100", 6, 0, 56, 1, 1, 1, 1, 1, 1, 12000, "x")
    with pytest.raises(DeviceError, match=r"compute capability 6\.0; tensor-core kernels need 7\.5"):
        spec_of(facts)


def test_resolve_by_name() -> None:
    found = resolve_gpu("H200")
    assert (found.name, found.sm_count, found.driver, found.cuda) == ("NVIDIA H200", 132, "", "")
    assert resolve_gpu(" nvidia a10 ").sm == 86
    with pytest.raises(DeviceError, match="no GPU is called 'gtx480'; use auto or one of t4, a100"):
        resolve_gpu("gtx480")


def test_auto_asks_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "read_facts", lambda ordinal=0: H200)
    assert resolve_gpu("auto").spec == KNOWN_GPUS["h200"]
    assert detect_gpu().name == "NVIDIA H200"


class Driver:
    """libcuda with one device, or one that fails at `breaks`."""

    def __init__(self, breaks: str = "", count: int = 1) -> None:
        self.breaks, self.count = breaks, count

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == self.breaks:
                return 802
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_SYSTEM_NOT_READY"
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.count
            if name == "cuDeviceGetAttribute":
                by_number = {number: field for field, number in device.ATTRIBUTES.items()}
                arguments[0]._obj.value = getattr(H200, by_number[arguments[1]])
            if name in ("cuDeviceGetName", "cuDeviceGetPCIBusId"):
                arguments[0].value = (H200.name if name.endswith("Name") else H200.pci_bus).encode()
            if name == "cuDriverGetVersion":
                arguments[0]._obj.value = H200.cuda
            return 0

        return call


def test_facts_are_read_without_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert read_facts() == H200


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Driver(breaks="cuInit"), "answered CUDA_ERROR_SYSTEM_NOT_READY to cuInit"),
        (Driver(count=0), "shows 0 GPUs"),
    ],
)
def test_a_driver_without_a_device(monkeypatch: pytest.MonkeyPatch, driver: Driver, words: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(DeviceError, match=words):
        read_facts()


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"libcuda\.so\.1 is not there.*--gpu"):
        read_facts()
