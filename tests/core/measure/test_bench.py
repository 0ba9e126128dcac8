"""The finals with a vendor beside, in this process, on host memory."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from core.measure import bench as bench_module
from core.measure.bench import FINAL_ROUNDS, VENDOR_FINALISTS, Bench
from core.measure.measurement import Failure, Measurement, Phase
from core.measure.timing import BadTime, Chain, Timer
from core.vendor import Peer, Peers, VendorContext, VendorError
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel
from templates.workload import GemmWorkload
from tests.core.measure.host_runtime import HostRuntime

WORKLOAD = GemmWorkload(16, 8, 32, epilogue=parse_epilogue("bias+relu"))
Launch = Callable[[VendorContext, int], None]


def right(context: VendorContext, slot: int, error: float = 0.0) -> None:
    at, runtime = context.slots[slot], context.runtime
    a, b, bias = np.empty((16, 32), np.float16), np.empty((8, 32), np.float16), np.empty(8, np.float16)
    for out, pointer in ((a, at.a), (b, at.b), (bias, at.bias)):
        runtime.to_host(out, pointer)
    d = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T + bias, 0) + error
    runtime.to_device(at.d, d.astype(np.float16))


def slow(context: VendorContext, slot: int) -> None:
    right(context, slot)
    time.sleep(0.001)


def slower(context: VendorContext, slot: int) -> None:
    right(context, slot)
    time.sleep(0.003)


def wrong(context: VendorContext, slot: int) -> None:
    right(context, slot, 0.1)


def refuses(context: VendorContext, slot: int) -> None:
    raise VendorError("cublasLtMatmul gave status 15")


def _launch(run: Launch, context: VendorContext, stream: int, slot: int) -> None:
    run(context, slot)


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Launch]]:
    offered: dict[str, dict[str, Launch]] = {}

    def peers(context: VendorContext) -> Peers:
        found = Peers(notes=["cuDNN not compared: it is not installed"])
        for source, algorithms in offered.items():
            for detail, launch in algorithms.items():
                found.found.append(Peer(source, detail, partial(_launch, launch, context)))
        return found

    monkeypatch.setattr(bench_module, "peers", peers)
    monkeypatch.setattr(bench_module, "launches_for", lambda target, floor, slots: 2)
    return offered


def test_the_best_of_each_library_are_finalists(
    vendor: dict[str, dict[str, Launch]], host_reference: Path, host_kernels: Path
) -> None:
    vendor["cublasLt 13.0.2"] = {"slower": slower, "wrong": wrong, "quick": right, "refuses": refuses, "slow": slow}
    vendor["other 1.0"] = {"only": slow}
    notes: list[str] = []
    announced: list[str] = []
    runtime = HostRuntime()
    made = Bench(runtime, announced.append, notes.append)
    made.prepare(WORKLOAD, host_reference)
    ours = Candidate(Kernel("host", (), parse_epilogue("bias+relu"), stem="good"))
    found = made.final([(ours, host_kernels)], vendor=True)
    assert all(isinstance(o, Measurement) and o.phase == Phase.FINAL for o in found)
    by_source: dict[str, list[str]] = {}
    for outcome in found:
        assert isinstance(outcome, Measurement) and len(outcome.samples_us) == FINAL_ROUNDS
        assert outcome.candidate == (
            ours.name if outcome.source == "template" else f"{outcome.source} {outcome.detail}"
        )
        by_source.setdefault(outcome.source, []).append(outcome.detail)
    assert by_source == {"template": [""], "cublasLt 13.0.2": ["quick", "slow"], "other 1.0": ["only"]}
    assert len(by_source["cublasLt 13.0.2"]) == VENDOR_FINALISTS
    assert "cuDNN not compared: it is not installed" in notes
    assert any(n.startswith("cublasLt 13.0.2 wrong not counted: relative L2") for n in notes)
    assert any("refuses not counted: cublasLtMatmul gave status 15" in n for n in notes)
    interleaved = announced[-4 * FINAL_ROUNDS - 4 : -4]
    assert interleaved[:4] == interleaved[4:8] and len(set(interleaved[:4])) == 4
    assert not runtime._graphs, "every graph is given back"


def test_what_can_not_be_timed_leaves_no_graph_behind(
    vendor: dict[str, dict[str, Launch]], host_reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_time(timer: Timer, chain: Chain) -> float:
        raise BadTime("the GPU's clock gave 0 us")

    monkeypatch.setattr(Timer, "sample", no_time)
    vendor["cublasLt 13.0.2"] = {"quick": right}
    notes: list[str] = []
    runtime = HostRuntime()
    made = Bench(runtime, lambda name: None, notes.append)
    made.prepare(WORKLOAD, host_reference)
    assert made.final([], vendor=True) == []
    assert "self-check: the GPU's clock gave 0 us" in notes
    assert "cublasLt 13.0.2 quick not counted: the GPU's clock gave 0 us" in notes
    assert not runtime._graphs


def test_a_vendor_alone(vendor: dict[str, dict[str, Launch]], host_reference: Path) -> None:
    vendor["cublasLt 13.0.2"] = {"quick": right}
    made = Bench(HostRuntime(), lambda name: None, lambda text: None)
    made.prepare(WORKLOAD, host_reference)
    [found] = made.final([], vendor=True)
    assert isinstance(found, Measurement) and found.source == "cublasLt 13.0.2"
    assert made.final([], vendor=False) == []


def test_a_kernel_of_the_first_steps_is_followed_by_a_pointwise_one(host_reference: Path, host_kernels: Path) -> None:
    longer = replace(WORKLOAD, epilogue=parse_epilogue("bias+relu+tanh"))
    first = Candidate(Kernel("host", (), parse_epilogue("bias+relu"), stem="good"))
    made = Bench(HostRuntime(), lambda name: None, lambda text: None)
    made.prepare(longer, host_reference)
    [found] = made.final([(first, host_kernels)], vendor=False)
    assert isinstance(found, Measurement), found  # verified against the whole chain
    made.prepare(replace(WORKLOAD, epilogue=parse_epilogue("bias+tanh")), host_reference)
    [refused] = made.final([(first, host_kernels)], vendor=False)
    assert isinstance(refused, Failure) and "does not begin with" in refused.reason


def test_preparing_again_gives_the_memory_back(host_reference: Path, host_kernels: Path) -> None:
    runtime = HostRuntime()
    made = Bench(runtime, lambda name: None, lambda text: None)
    made.prepare(WORKLOAD, host_reference)
    first = runtime.allocations
    for _ in range(3):
        made.prepare(WORKLOAD, host_reference)
    assert runtime.allocations == first
    absent = Candidate(Kernel("host", (), parse_epilogue("bias+relu"), stem="absent"))
    assert isinstance(made.screen(absent, host_kernels), Failure) and made.fatal == ""
