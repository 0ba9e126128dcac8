"""What doctor says, and when it fails."""

import json
from pathlib import Path
from typing import Any

import pytest

import core.cli
from core.cli import doctor
from core.cli.doctor import Check
from core.device import GpuIdentity
from core.errors import DeviceError, ToolchainError
from templates.gpu import KNOWN_GPUS

H200 = GpuIdentity("NVIDIA H200", 90, 132, 3201, "580.159.04", "13.0", KNOWN_GPUS["h200"])


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> GpuIdentity:
        raise DeviceError("no NVIDIA driver on this machine", "install it")

    monkeypatch.setattr(doctor, "detect_gpu", none)


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "detect_gpu", lambda: H200)


def names(checks: list[Check]) -> dict[str, Check]:
    return {c.name: c for c in checks}


def test_without_a_gpu_building_is_what_counts(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert core.cli.run(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    checks = {c["name"]: c for c in said["checks"]}
    assert said["ok"] is True
    assert checks["nvcc"]["found"] and checks["CUTLASS"]["found"] and checks["host compiler"]["found"]
    assert not checks["GPU"]["found"] and not checks["GPU"]["essential"]
    assert checks["self-test"]["value"] == "not run: no GPU"
    wanted = {"memory", "disk", "driver", "cuBLASLt", "cuDNN", "cuDNN frontend", "window", "runtime cuda-bindings"}
    assert wanted <= checks.keys()
    assert all(c["found"] or c["remedy"] or c["name"] == "self-test" for c in checks.values())


def test_text_goes_to_stderr_and_the_verdict_to_stdout(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert core.cli.run(["doctor"]) == 0
    out, log = capsys.readouterr()
    assert out == "everything needed is here\n"
    assert "ok      nvcc" in log and "--      GPU" in log


def test_a_missing_compiler_fails_with_one_line(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOLT_NVCC", "/nonexistent/nvcc")
    assert core.cli.run(["doctor", "--json"]) == 1
    out, log = capsys.readouterr()
    assert json.loads(out)["ok"] is False
    assert log.count("\n") == 1 and log.startswith("error: nvcc: BOLT_NVCC names /nonexistent/nvcc")


def test_a_cache_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = doctor._disk(tmp_path / "file")
    assert not check.found and "can't be written" in check.value and "BOLT_CACHE" in check.remedy


def test_little_disk_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK_BYTES", 1 << 62)
    assert not doctor._disk(tmp_path).found
    monkeypatch.setattr("core.build.machine.free_memory", lambda: 1 << 20)
    check = doctor._memory()
    assert not check.found and "4.0 GiB" in check.remedy


def test_with_a_gpu_the_self_test_decides(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_self_test", lambda gpu, runtime: Check("self-test", True, runtime))
    checks = names(list(doctor.examine("cuda-bindings", True)))
    assert "132 SMs, 60 MiB L2" in checks["GPU"].value and checks["self-test"].value == "cuda-bindings"
    assert checks["runtime cuda-bindings"].essential and not checks["runtime pycuda"].essential
    assert "self-test" not in names(list(doctor.examine("pycuda", False)))


def test_a_compiler_newer_than_the_driver(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.build.toolchain.find_nvcc", lambda: (Path("nvcc"), "14.1.2"))
    check = doctor._matches(H200)
    assert not check.found and "BOLT_NVCC" in check.remedy
    monkeypatch.setattr("core.build.toolchain.find_nvcc", lambda: (Path("nvcc"), "13.5.2"))
    assert doctor._matches(H200).found


class Measurer:
    outcome: Any = None
    closed = 0

    def __init__(self, runtime: str) -> None: ...

    def screen(self, workload: Any, pairs: Any) -> Any:
        return iter([Measurer.outcome])

    def close(self) -> None:
        Measurer.closed += 1


def test_self_test_reports_what_the_kernel_did(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.build.artifact import BuiltKernel
    from core.measure.measurement import Failure, Measurement, Phase, Stage

    class Built:
        def __init__(self, *arguments: Any) -> None: ...

        def build(self, kernels: Any) -> Any:
            yield kernels[0], BuiltKernel(kernels[0], Path("k.so"), 1.0, False)

    monkeypatch.setattr("core.build.builder.Builder", Built)
    monkeypatch.setattr("core.measure.process.ProcessMeasurer", Measurer)
    Measurer.outcome = Measurement("w", "c", Phase.SCREEN, (4.0, 5.0, 6.0), 2.1e-4, 0.1)
    check = doctor._self_test(H200, "cuda-bindings")
    assert check.found and "relative error 2.1e-04, 5.0 us" in check.value and "sm80_gemm" in check.value
    Measurer.outcome = Failure("w", "c", Stage.VERIFY, "relative L2 error 0.4")
    check = doctor._self_test(H200, "cuda-bindings")
    assert not check.found and "failed (verify): relative L2 error 0.4" in check.value
    assert Measurer.closed == 2


def test_self_test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise ToolchainError("no usable nvcc was found", "install one")

    monkeypatch.setattr("core.build.toolchain.find_toolchain", none)
    check = doctor._self_test(H200, "cuda-bindings")
    assert (check.found, check.value, check.remedy) == (False, "no usable nvcc was found", "install one")
