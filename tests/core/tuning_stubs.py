"""Stand-ins for what a tuning job meets outside: a template family, a compiler, a builder and a GPU."""

import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.build.artifact import BuiltKernel
from core.build.toolchain import Toolchain
from core.device import GpuIdentity
from core.measure.measurement import Failure, GpuState, Measurement, Outcome, Phase, Stage
from templates.emit import namespace_of
from templates.epilogue import Epilogue, EpilogueOp
from templates.family import Candidate, Family, Kernel, Launch, Score
from templates.gpu import KNOWN_GPUS, GpuSpec
from templates.workload import GemmWorkload, Workload

H200 = KNOWN_GPUS["h200"]
RELU = Epilogue((EpilogueOp("bias"), EpilogueOp("relu")))


def gpu_identity(spec: GpuSpec = H200, driver: str = "580.159") -> GpuIdentity:
    return GpuIdentity(spec.name, spec.sm, spec.sm_count, 3201, driver, "13.0", spec)


def gemm(m: int = 1024, n: int = 1024, k: int = 1024, epilogue: Epilogue = RELU) -> GemmWorkload:
    return GemmWorkload(m, n, k, epilogue=epilogue)


@dataclass(frozen=True)
class StubFamily:
    """Tiles of 32 to 256; tile 13 does not compile, tile 7 is illegal, tile 999 gives wrong values."""

    name: str = "stub"
    tiles: tuple[int, ...] = (32, 64, 128, 256)
    version: int = 1
    min_sm: int = 75
    max_sm: int = 120
    bias_us: float = 0.0
    seconds: tuple[float, float] = (50.0, 14.0)

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        return None if workload.op == "gemm" else "the stub has GEMM only"

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        for tile in self.tiles:
            yield Kernel(self.name, (("tile", tile),), workload.epilogue, stem=f"t{tile}")

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        return "tile 7 is odd" if kernel["tile"] == 7 else None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=True), Launch(), Launch(swizzle=2, pdl=True)]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        return Score(true_us(candidate, workload) * 0.9 + self.bias_us, "the stub's formula")

    def source(self, kernel: Kernel) -> str:
        return f"// {namespace_of(kernel)} {kernel.name}{' BAD' if kernel['tile'] == 13 else ''}\n"

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return ("-DSTUB",)

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return self.seconds


def true_us(candidate: Candidate, workload: Workload) -> float:
    """The stub GPU's time: best when the tile is near the square root of M; swizzle 2 without PDL is best."""
    tile = candidate.kernel.int("tile")
    ideal = max(workload.m, 1) ** 0.5 * 4 if isinstance(workload, GemmWorkload) else 64
    launch = 1.0 - 0.05 * candidate.launch.pdl - 0.02 * (candidate.launch.swizzle == 2)
    return (10.0 + abs(tile - ideal) / 16) * launch


def kernels_of(family: Family, workload: Workload | None = None) -> list[Kernel]:
    return list(family.kernels(workload or gemm(), H200))


FAKE_NVCC = """#!/bin/sh
# Stands for nvcc: a source with the word BAD does not compile, one with SLOW takes its time.
case "$1" in --version) echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit 0;; esac
echo run >> "{log}"
out=; previous=; source=
for argument; do
  [ "$previous" = -o ] && out=$argument
  case $argument in *batch.cu) source=$argument;; esac
  previous=$argument
done
folder=$(dirname "$source")
{extra}
if grep -q SLOW "$folder"/kernel*.cu; then sleep 60; fi
bad=$(grep -l BAD "$folder"/kernel*.cu | head -1)
if [ -n "$bad" ]; then
  echo "$bad(1): error: identifier \\"BAD\\" is undefined"; echo "1 error detected in the compilation"; exit 2
fi
for file in "$folder"/kernel*.cu; do
  name=$(sed -n 's,^// \\([a-z0-9_]*\\).*,\\1,p' "$file")
  echo "ptxas info    : Compiling entry function '_ZN3run${{#name}}${{name}}Ev' for 'sm_90a'"
  echo "    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads"
  echo "ptxas info    : Used 168 registers, used 1 barriers, 32 bytes smem"
done
cat "$folder"/kernel*.cu > "$out"
"""


def fake_toolchain(folder: Path, extra: str = "", version: str = "13.0.88") -> Toolchain:
    """A toolchain whose nvcc is a shell script; it logs each run in folder/runs."""
    script = folder / "nvcc"
    text = FAKE_NVCC.format(log=folder / "runs", extra=extra)
    if not script.exists() or script.read_text() != text:  # a script that is being written can't be run by another
        script.write_text(text)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return Toolchain(script, version, Path("/usr/bin/g++"), "12.2.0", folder, "4.2.0", ())


def compiler_runs(folder: Path) -> int:
    log = folder / "runs"
    return len(log.read_text().splitlines()) if log.exists() else 0


@dataclass
class SimulatedBuilder:
    """Builds at once; kernels of tile 13 fail. `gate`, when given, is waited for before each kernel."""

    delay_s: float = 0.0
    built: set[Kernel] = field(default_factory=set)
    compiled: list[Kernel] = field(default_factory=list)
    error_after: tuple[int, Exception] | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def __contains__(self, kernel: object) -> bool:
        return kernel in self.built

    def seconds(self, kernels: Sequence[Kernel]) -> float:
        return 20.0 * len([k for k in kernels if k not in self.built])

    def build(
        self, kernels: Sequence[Kernel], started: Callable[[tuple[Kernel, ...]], None] | None = None
    ) -> Iterator[tuple[Kernel, BuiltKernel | Failure]]:
        for kernel in sorted(dict.fromkeys(kernels), key=lambda k: k not in self.built):
            if self.closed.wait(self.delay_s):
                return
            if self.error_after and len(self.compiled) >= self.error_after[0]:
                raise self.error_after[1]
            cached = kernel in self.built
            if not cached:
                self.compiled.append(kernel)
                if started:
                    started((kernel,))
            if kernel["tile"] == 13:
                yield kernel, Failure("", kernel.name, Stage.COMPILE, "error: tile 13 is unlucky", "log")
                continue
            self.built.add(kernel)
            yield kernel, BuiltKernel(kernel, Path("/simulated.so"), 1.0, cached, 168, 0, 1024)

    def close(self) -> None:
        self.closed.set()


@dataclass
class SimulatedMeasurer:
    """Times by `true_us`; tile 999 gives wrong values, tile 998 crashes. Keeps what it was asked."""

    gpu: GpuIdentity = field(default_factory=gpu_identity)
    vendor_us: float | None = 12.0
    delay_s: float = 0.0
    screened: list[tuple[str, str]] = field(default_factory=list)
    finals: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    name: str = "GPU 0"
    on_screen: Callable[[], None] = lambda: None
    closed: bool = False
    steps: int = 0  # what `get_ready` has to do for each workload
    readied: list[tuple[str, bool]] = field(default_factory=list)

    def identity(self) -> GpuIdentity:
        return self.gpu

    def _outcome(self, workload: Workload, candidate: Candidate, phase: Phase) -> Outcome:
        if candidate.kernel["tile"] == 999:
            return Failure(workload.key, candidate.name, Stage.VERIFY, "relative L2 error 0.42, allowed 0.01")
        if candidate.kernel["tile"] == 998:
            return Failure(workload.key, candidate.name, Stage.CRASH, "the process died of SIGSEGV")
        us = true_us(candidate, workload)
        samples = (us, us * 1.01, us * 0.99)
        return Measurement(
            workload.key, candidate.name, phase, samples, 2e-4, 1e-3, state=GpuState(1980, 3201, 40, 300.0)
        )

    def get_ready(self, workload: Workload, vendor: bool) -> bool:
        if [key for key, _ in self.readied].count(workload.key) == self.steps:
            return False
        self.readied.append((workload.key, vendor))
        return True

    def screen(self, workload: Workload, candidates: Sequence[tuple[Candidate, BuiltKernel]]) -> Iterator[Outcome]:
        for candidate, _ in candidates:
            time.sleep(self.delay_s)
            self.on_screen()
            self.screened.append((workload.key, candidate.name))
            yield self._outcome(workload, candidate, Phase.SCREEN)

    def final(
        self, workload: Workload, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool
    ) -> list[Outcome]:
        self.finals.append((workload.key, tuple(c.name for c, _ in finalists)))
        outcomes = [self._outcome(workload, c, Phase.FINAL) for c, _ in finalists]
        if vendor and self.vendor_us is not None:
            samples = (self.vendor_us,) * 3
            outcomes.append(
                Measurement(workload.key, "cublasLt#3", Phase.FINAL, samples, 2e-4, 1e-3, "cublasLt 13.0.2", "algo 3")
            )
        return outcomes

    def close(self) -> None:
        self.closed = True
