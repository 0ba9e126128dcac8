"""Host stand-ins for the measuring library and for kernels, compiled once a session."""

import subprocess
from pathlib import Path

import pytest

from core.build.toolchain import find_toolchain
from core.paths import INCLUDE, ROOT

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def lock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run side by side measure on host devices of their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def host_library(source: Path, out: Path, *flags: str) -> Path:
    toolchain = find_toolchain()
    cuda = toolchain.nvcc.resolve().parent.parent / "include"
    command = [
        str(toolchain.host_compiler), "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{INCLUDE}", f"-I{cuda}",
        f"-I{ROOT / 'core' / 'measure'}", *flags, str(source), "-o", str(out),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=120)
    return out


@pytest.fixture(scope="session")
def host_reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_library(HERE / "host_reference.cpp", tmp_path_factory.mktemp("reference") / "reference.so")


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_library(HERE / "host_kernels.cpp", tmp_path_factory.mktemp("kernels") / "kernels.so")
