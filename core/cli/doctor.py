"""`doctor`: what this machine has for building, measuring and comparing, and how to mend what it lacks.

Ends with status 0 when everything that this machine can be expected to do works: building always, measuring where
there is a GPU. A vendor library or a window that is missing is said, and is no failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core.cli import Reporter
from core.device import GpuIdentity, detect_gpu
from core.errors import BoltError, DeviceError, ToolchainError
from core.paths import cache_dir

SETUP = "run `python3 main.py setup`"
VENDOR_SETUP = "`python3 main.py setup` installs it where a GPU is; it is the package"
LEAST_DISK_BYTES = 1 << 30
SELF_TEST = "gemm 256x256x256 f16.f32 row.col bias+relu"


@dataclass(frozen=True)
class Check:
    """One thing looked for. `value` is what was found, `remedy` what to do where it was not.

    `essential`: without it this machine can't do what it should.
    """

    name: str
    found: bool
    value: str
    remedy: str = ""
    essential: bool = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime", default="cuda-bindings", help="GPU runtime of the self-test (cuda-bindings, pycuda)"
    )
    parser.add_argument("--no-self-test", action="store_true", help="look only, compile and run nothing")


def run(args: argparse.Namespace, out: Reporter) -> int:
    checks: list[Check] = []
    for check in examine(args.runtime, not args.no_self_test):
        checks.append(check)
        if not out.as_json:
            out.log(_line(check))
    missing = [c for c in checks if c.essential and not c.found]
    verdict = "everything needed is here" if not missing else f"missing: {', '.join(c.name for c in missing)}"
    out.result({"ok": not missing, "checks": [asdict(c) for c in checks]}, lambda: verdict)
    if missing:
        raise ToolchainError(f"{missing[0].name}: {missing[0].value}", missing[0].remedy)
    return 0


def examine(runtime: str, self_test: bool) -> Iterator[Check]:
    """Every check in order, each as soon as it is known."""
    yield from _toolchain()
    yield _memory()
    yield _disk(cache_dir())
    gpu: GpuIdentity | None = None
    try:
        gpu = detect_gpu()
    except DeviceError as error:
        yield Check("GPU", False, error.what, "none is needed to build, export and replay", essential=False)
        yield Check("driver", False, "no driver answers", "install NVIDIA's driver to measure", essential=False)
    if gpu is not None:
        yield _gpu(gpu)
        yield Check("driver", True, f"{gpu.driver or 'version unknown'}, CUDA {gpu.cuda}")
        yield _matches(gpu)
    yield from _runtimes(runtime, gpu is not None)
    yield from _vendors()
    yield _window()
    if gpu is None:
        yield Check("self-test", False, "not run: no GPU", essential=False)
    elif self_test:
        yield _self_test(gpu, runtime)


def _tried(name: str, look: Callable[[], str], remedy: str = SETUP, essential: bool = True) -> Check:
    try:
        return Check(name, True, look(), essential=essential)
    except BoltError as error:
        return Check(name, False, error.what, error.remedy or remedy, essential)


def _toolchain() -> Iterator[Check]:
    from core.build.listing import find_cuobjdump
    from core.build.toolchain import cutlass_version, find_cutlass, find_host_compiler, find_nvcc

    def nvcc() -> str:
        path, version = find_nvcc()
        return f"{version} ({path})"

    def cutlass() -> str:
        root = find_cutlass()
        return f"{cutlass_version(root)} ({root})"

    def host() -> str:
        path, version = find_host_compiler()
        return f"{version} ({path})"

    def disassembler() -> str:
        return str(find_cuobjdump(find_nvcc()[0]))

    yield _tried("nvcc", nvcc)
    yield _tried("CUTLASS", cutlass)
    yield _tried("host compiler", host)
    yield _tried("disassembler", disassembler, essential=False)


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"


def _memory() -> Check:
    from core.build.machine import LIGHT_NVCC_BYTES, NVCC_BYTES, default_jobs, free_memory

    free = free_memory()
    remedy = f"close other programs: one compiler of a Hopper kernel takes {_gib(NVCC_BYTES)}"
    jobs = default_jobs()
    value = f"{_gib(free)} free, {jobs} compiler{'s' * (jobs != 1)} side by side"
    return Check("memory", free >= LIGHT_NVCC_BYTES, value, "" if free >= NVCC_BYTES else remedy)


def _disk(cache: Path) -> Check:
    """The cache folder can be written and has room."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            free = shutil.disk_usage(cache).free
    except OSError as error:
        remedy = "set BOLT_CACHE to a folder that can be written"
        return Check("disk", False, f"the cache {cache} can't be written ({error.strerror or error})", remedy)
    enough = free >= LEAST_DISK_BYTES
    remedy = "" if enough else "make room there, or set BOLT_CACHE to another disk"
    return Check("disk", enough, f"{_gib(free)} free in {cache}", remedy)


def _gpu(gpu: GpuIdentity) -> Check:
    capability, l2 = f"{gpu.sm // 10}.{gpu.sm % 10}", gpu.spec.l2_bytes >> 20
    return Check("GPU", True, f"{gpu.name}, compute capability {capability}, {gpu.sm_count} SMs, {l2} MiB L2")


def _matches(gpu: GpuIdentity) -> Check:
    """A driver runs what a compiler of its own or an older major version makes (CUDA compatibility guide)."""
    from core.build.toolchain import find_nvcc

    try:
        _, version = find_nvcc()
    except ToolchainError as error:
        return Check("nvcc for this driver", False, error.what, error.remedy)
    wanted, has = int(version.split(".")[0]), int(gpu.cuda.split(".")[0])
    remedy = f"update the driver, or install a toolkit of CUDA {has} and name its nvcc in BOLT_NVCC"
    value = f"nvcc {version}, driver for CUDA {gpu.cuda}"
    return Check("nvcc for this driver", wanted <= has, value, "" if wanted <= has else remedy)


def _runtimes(chosen: str, needed: bool) -> Iterator[Check]:
    for name, module in (("cuda-bindings", "cuda.bindings"), ("pycuda", "pycuda")):
        top = importlib.util.find_spec(module.split(".")[0])
        found = top is not None and importlib.util.find_spec(module) is not None
        remedy = SETUP if name == "cuda-bindings" else "optional: pip install pycuda"
        value = "installed" if found else "not installed"
        yield Check(f"runtime {name}", found, value, "" if found else remedy, needed and name == chosen)


def _vendors() -> Iterator[Check]:
    from core.vendor.libraries import packaged

    for name, library, package in (
        ("cuBLASLt", "cublasLt", "nvidia-cublas"), ("cuDNN", "cudnn", "nvidia-cudnn-cu13"),
    ):  # fmt: skip
        path = packaged(library) or _system_library(library)
        value = str(path) if path else "not found: regions are not compared with it"
        yield Check(name, path is not None, value, "" if path else f"{VENDOR_SETUP} {package}", essential=False)
    found = importlib.util.find_spec("cudnn") is not None
    value = "installed" if found else "not installed: convolutions are not compared with cuDNN"
    remedy = "" if found else f"{VENDOR_SETUP} nvidia-cudnn-frontend"
    yield Check("cuDNN frontend", found, value, remedy, essential=False)


def _system_library(name: str) -> str | None:
    from ctypes.util import find_library

    return find_library(name)


def _window() -> Check:
    found = importlib.util.find_spec("PySide6") is not None
    if not found:
        return Check("window", False, "PySide6 is not installed", SETUP, essential=False)
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        remedy = "the command line needs none; for the window log in with a display"
        return Check("window", False, "no display (DISPLAY, WAYLAND_DISPLAY)", remedy, essential=False)
    return Check("window", True, "PySide6 and a display", essential=False)


def _self_test(gpu: GpuIdentity, runtime: str) -> Check:
    """Compiles one sm80-class GEMM, runs it in the measuring process and compares it with the reference kernel."""
    from core.build.builder import Builder
    from core.build.toolchain import find_toolchain
    from core.measure.measurement import Failure
    from core.measure.process import ProcessMeasurer
    from templates import families
    from templates.family import Candidate
    from templates.workload import parse_workload

    def test() -> str:
        workload, family = parse_workload(SELF_TEST), families()["sm80_gemm"]
        legal = (k for k in family.kernels(workload, gpu.spec) if family.illegal(k, workload, gpu.spec) is None)
        candidates = [Candidate(k, launch) for k in legal for launch in family.launches(k, workload, gpu.spec)[:1]]
        if not candidates:
            raise DeviceError(f"no kernel serves {gpu.name}")
        best = min(candidates, key=lambda c: family.score(c, workload, gpu.spec).us)
        for _, built in Builder(find_toolchain(), gpu.spec).build([best.kernel]):
            if isinstance(built, Failure):
                raise ToolchainError(f"{best.kernel.name} does not compile: {built.reason}")
            measurer = ProcessMeasurer(runtime)
            try:
                [outcome] = measurer.screen(workload, [(best, built)])
            finally:
                measurer.close()
            if isinstance(outcome, Failure):
                raise DeviceError(f"{best.name} failed ({outcome.stage}): {outcome.reason}")
            return f"{best.name}: relative error {outcome.relative_l2:.1e}, {outcome.us:.1f} us"
        raise ToolchainError(f"{best.kernel.name} was not compiled")

    return _tried("self-test", test, "run it again; if it stays, another program may hold the GPU")


def _line(check: Check) -> str:
    mark = "ok" if check.found else ("MISSING" if check.essential else "--")
    remedy = f"\n{'':32}{check.remedy}" if check.remedy else ""
    return f"{mark:8}{check.name:24}{check.value}{remedy}"
