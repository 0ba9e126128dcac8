"""The cuda-bindings adapter on a libcuda made of host memory: the GPU's own tests, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.build.toolchain import find_host_compiler
from core.paths import ROOT

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def host_libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    compiler, _ = find_host_compiler()
    out = folder / "libcuda.so.1"
    source = HERE / "host_libcuda.c"
    command = [str(compiler), "-x", "c", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", str(source), "-ldl"]
    subprocess.run([*command, "-o", str(out)], check=True, timeout=60)
    return folder


def test_the_gpu_tests_of_the_adapter_pass(host_libcuda: Path) -> None:
    """In a process of its own: the driver's library is found once, at start."""
    pytest.importorskip("cuda.bindings.driver")
    wanted = "cuda-bindings and not kernels and not nvml and not elapsed"
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests/gpu/test_runtime.py"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(host_libcuda)}
    ran = subprocess.run(
        [*command, "-k", wanted], check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0 and "6 passed" in ran.stdout and "skipped" not in ran.stdout, ran.stdout + ran.stderr
