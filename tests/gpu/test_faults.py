"""Candidates that misbehave on a real GPU: each is named, none takes another along, and what follows measures right."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.build.artifact import BuiltKernel
from core.build.nvcc import compile_library
from core.build.toolchain import find_toolchain
from core.device import GpuIdentity
from core.measure.measurement import Failure, Measurement, Stage
from core.measure.process import ProcessMeasurer
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel
from templates.workload import GemmWorkload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

WORKLOAD = GemmWorkload(128, 256, 64, epilogue=parse_epilogue("bias+relu"))
Pair = tuple[Candidate, BuiltKernel]
Pairs = Callable[..., list[Pair]]

# stage, words of the reason
FAULTS = {
    "wrong": ({Stage.VERIFY}, "relative L2 error"),
    "unwritten": ({Stage.VERIFY}, "NaN"),
    "after": ({Stage.VERIFY}, "around the output"),
    "before": ({Stage.VERIFY}, "around the output"),
    "overrun": ({Stage.VERIFY}, "around the workspace"),
    "writes_a": ({Stage.VERIFY}, "A (or memory beside it) was overwritten"),
    "neighbour": ({Stage.VERIFY}, "B (or memory beside it) was overwritten"),
    "sometimes": ({Stage.VERIFY}, "relative L2 error"),
    "takes_all": ({Stage.LAUNCH}, ""),
    "exits": ({Stage.CRASH}, "ended with status 0"),
    "forks": ({Stage.CRASH}, "ended with status 9"),
    "too_large": ({Stage.LAUNCH}, "BOLT_E_LAUNCH"),
    "allocates": ({Stage.LAUNCH}, ""),
    "illegal": ({Stage.CRASH}, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "traps": ({Stage.CRASH}, "the GPU context is lost"),
    "aborts": ({Stage.CRASH}, "SIGABRT"),
    "hangs": ({Stage.TIMEOUT}, "no answer within"),
}


@pytest.fixture(scope="module")
def library(gpu: GpuIdentity, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("faults") / "faults.so"
    compile_library([Path(__file__).with_name("fault_kernels.cu")], out, gpu.spec.nvcc_arch, find_toolchain())
    return out


@pytest.fixture
def pairs(library: Path) -> Pairs:
    def make(*names: str) -> list[Pair]:
        kernels = [Kernel("fault", (), parse_epilogue("bias+relu"), stem=name) for name in names]
        return [(Candidate(k), BuiltKernel(k, library, 0.0, True)) for k in kernels]

    return make


@pytest.fixture
def measurer(runtime_name: str, reference_library: Path) -> Iterator[ProcessMeasurer]:
    made = ProcessMeasurer(runtime_name, reference=reference_library, step_limit_s=6)
    yield made
    made.close()


def right(outcome: object) -> bool:
    return isinstance(outcome, Measurement) and 0 < outcome.relative_l2 < 1e-3 and 0.5 < outcome.us < 1e4


def test_each_fault_is_named_and_the_next_candidate_is_right(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    order = [name for fault in FAULTS for name in (fault, "good")]
    found = list(measurer.screen(WORKLOAD, pairs(*order)))
    for (fault, (stages, words)), failure, good in zip(FAULTS.items(), found[::2], found[1::2], strict=True):
        assert isinstance(failure, Failure), (fault, failure)
        assert failure.stage in stages and words in failure.reason, (fault, failure)
        assert right(good), (fault, good)


@pytest.mark.parametrize("fault", ["illegal", "hangs", "aborts"])
def test_a_fault_in_the_finals(measurer: ProcessMeasurer, pairs: Pairs, fault: str) -> None:
    found = {o.candidate: o for o in measurer.final(WORKLOAD, pairs("good", fault, "wrong"), vendor=False)}
    names = {name: pairs(name)[0][0].name for name in ("good", fault, "wrong")}
    assert right(found[names["good"]])
    assert isinstance(found[names[fault]], Failure) and isinstance(found[names["wrong"]], Failure)


def test_the_vendor_is_measured_beside(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    found = measurer.final(WORKLOAD, pairs("good"), vendor=True)
    vendor = [o for o in found if isinstance(o, Measurement) and o.source != "template"]
    if not vendor:
        assert any("cuBLASLt not compared" in note for note in measurer.notes), "silence is no answer"
        pytest.skip(measurer.notes[-1])
    assert 1 <= len(vendor) <= 2 and all(right(o) and o.source.startswith("cublasLt ") for o in vendor)
