"""The measuring process with real child processes: kernels that crash, hang, lie or write where they may not."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.build.artifact import BuiltKernel
from core.errors import DeviceError
from core.measure.alone import alone
from core.measure.child import Worker
from core.measure.measurement import Failure, Measurement, Outcome, Phase, Stage
from core.measure.process import ProcessMeasurer
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel
from templates.workload import GemmWorkload
from tests.core.measure.conftest import host_library

HOST = "tests.core.measure.host_runtime:HostRuntime"
WORKLOAD = GemmWorkload(16, 8, 32, epilogue=parse_epilogue("bias+relu"))
OTHER = GemmWorkload(8, 16, 16, epilogue=parse_epilogue("bias+relu"))

Pair = tuple[Candidate, BuiltKernel]
Pairs = Callable[..., list[Pair]]


def candidate(behaviour: str) -> Candidate:
    return Candidate(Kernel("host", (), parse_epilogue("bias+relu"), stem=behaviour))


@pytest.fixture
def measurer(host_reference: Path) -> Iterator[ProcessMeasurer]:
    made = ProcessMeasurer(HOST, reference=host_reference, step_limit_s=3)
    yield made
    made.close()


@pytest.fixture
def pairs(host_kernels: Path) -> Pairs:
    def make(*behaviours: str) -> list[Pair]:
        found = [candidate(b) for b in behaviours]
        return [(c, BuiltKernel(c.kernel, host_kernels, 0.0, True)) for c in found]

    return make


def test_the_last_words_of_a_process_are_read_before_its_end_is_told(
    measurer: ProcessMeasurer, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Worker._read_log

    def late(worker: Worker) -> None:
        time.sleep(0.5)  # a busy machine
        read(worker)

    monkeypatch.setattr(Worker, "_read_log", late)
    [found] = measurer.screen(WORKLOAD, pairs("aborts"))
    assert isinstance(found, Failure) and "assertion in a kernel" in found.log


def test_identity(measurer: ProcessMeasurer) -> None:
    identity = measurer.identity()
    assert (identity.name, identity.sm, identity.sm_count, identity.cuda) == ("Host", 80, 4, "13.0")


def test_a_good_candidate_is_measured(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    [found] = measurer.screen(WORKLOAD, pairs("good"))
    assert isinstance(found, Measurement)
    assert (found.workload, found.candidate) == (WORKLOAD.key, candidate("good").name)
    assert (found.phase, found.source) == (Phase.SCREEN, "template")
    assert 3 <= len(found.samples_us) <= 10 and all(0 < s < math.inf for s in found.samples_us)
    assert 0 < found.relative_l2 < 1e-3 and found.max_abs > 0


FAULTS = [
    ("refuses", Stage.REFUSED, "BOLT_E_UNSUPPORTED"),
    ("greedy", Stage.REFUSED, "workspace"),
    ("absent", Stage.LOAD, "bolt_check_host"),
    ("fails", Stage.LAUNCH, "BOLT_E_LAUNCH"),
    ("wrong", Stage.VERIFY, "relative L2 error"),
    ("silent", Stage.VERIFY, "NaN"),
    ("races", Stage.VERIFY, "relative L2 error"),
    ("after", Stage.VERIFY, "around the output"),
    ("before", Stage.VERIFY, "around the output"),
    ("overrun", Stage.VERIFY, "around the workspace"),
    ("underrun", Stage.VERIFY, "around the workspace"),
    ("writes_a", Stage.VERIFY, "A (or memory beside it) was overwritten"),
    ("neighbour", Stage.VERIFY, "B (or memory beside it) was overwritten"),
    ("exits", Stage.CRASH, "ended with status 0"),
    ("forks", Stage.CRASH, "ended with status 9"),
    ("crashes", Stage.CRASH, "SIGSEGV"),
    ("aborts", Stage.CRASH, "SIGABRT"),
    ("hangs", Stage.TIMEOUT, "no answer within"),
    ("breaks", Stage.CRASH, "CUDA_ERROR_ILLEGAL_ADDRESS"),
]


def test_every_fault_is_named_and_the_next_good_candidate_is_right(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    order = [name for fault, _, _ in FAULTS for name in (fault, "good")]
    found = list(measurer.screen(WORKLOAD, pairs(*order)))
    assert len(found) == len(order)
    for (fault, stage, words), failure, good in zip(FAULTS, found[::2], found[1::2], strict=True):
        assert isinstance(failure, Failure), fault
        assert (failure.candidate, failure.stage) == (candidate(fault).name, stage), failure
        assert words in failure.reason and "\n" not in failure.reason
        assert isinstance(good, Measurement) and good.relative_l2 < 1e-3, (fault, good)
    aborted = found[2 * [f for f, _, _ in FAULTS].index("aborts")]
    assert isinstance(aborted, Failure) and "assertion in a kernel" in aborted.log


def test_a_copy_that_a_candidate_forks_does_not_speak(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    """Two processes would answer each request, and each answer would be taken for the next one's."""
    found = list(measurer.screen(WORKLOAD, pairs("forks_beside", "good", "wrong", "good")))
    assert [type(o) for o in found[1:]] == [Measurement, Failure, Measurement]
    assert [o.candidate for o in found] == [candidate(b).name for b in ("forks_beside", "good", "wrong", "good")]


def test_a_library_that_crashes_while_it_is_loaded(
    measurer: ProcessMeasurer, pairs: Pairs, host_kernels: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "crash_on_load.cpp"
    flag.write_text("#include <csignal>\n__attribute__((constructor)) static void load() { raise(SIGSEGV); }\n")
    library = host_library(flag, tmp_path / "crash.so")
    bad = candidate("good")
    crash, good = (
        *measurer.screen(WORKLOAD, [(bad, BuiltKernel(bad.kernel, library, 0.0, True))]),
        *measurer.screen(WORKLOAD, pairs("good")),
    )
    assert isinstance(crash, Failure) and crash.stage == Stage.CRASH and "SIGSEGV" in crash.reason
    assert isinstance(good, Measurement)


def test_a_workspace_within_its_size_is_right(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    [found] = measurer.screen(WORKLOAD, pairs("scratch"))
    assert isinstance(found, Measurement)


def test_a_failed_launch_is_not_the_next_kernels_fault(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    """Both lie in one library, whose CUDA runtime remembers the last error."""
    failed, after = measurer.screen(WORKLOAD, pairs("fails", "reads_last_error"))
    assert isinstance(failed, Failure) and failed.stage == Stage.LAUNCH
    assert isinstance(after, Measurement)


def test_what_a_kernel_prints_does_not_reach_the_protocol(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    found = list(measurer.screen(WORKLOAD, pairs("chatty", "good")))
    assert all(isinstance(o, Measurement) for o in found)


def test_workloads_alternate(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    for workload in (WORKLOAD, OTHER, WORKLOAD):
        [found] = measurer.screen(workload, pairs("good"))
        assert isinstance(found, Measurement) and found.workload == workload.key


def test_finals_interleave_and_keep_every_round(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    found = measurer.final(WORKLOAD, pairs("good", "scratch", "wrong"), vendor=False)
    by_name = {o.candidate: o for o in found}
    assert len(found) == 3
    for name in ("good", "scratch"):
        outcome = by_name[candidate(name).name]
        assert isinstance(outcome, Measurement) and outcome.phase == Phase.FINAL
        assert len(outcome.samples_us) >= 7
    wrong = by_name[candidate("wrong").name]
    assert isinstance(wrong, Failure) and wrong.stage == Stage.VERIFY


@pytest.mark.parametrize(
    ("fault", "stage"),
    [("crashes", Stage.CRASH), ("hangs", Stage.TIMEOUT), ("breaks", Stage.CRASH), ("late", Stage.CRASH)],
)
def test_a_fault_in_the_finals_costs_one_finalist(
    measurer: ProcessMeasurer, pairs: Pairs, fault: str, stage: Stage
) -> None:
    found = measurer.final(WORKLOAD, pairs("good", fault, "scratch"), vendor=False)
    by_name = {o.candidate: o for o in found}
    assert len(found) == 3
    culprit = by_name[candidate(fault).name]
    assert isinstance(culprit, Failure) and culprit.stage == stage
    assert all(isinstance(by_name[candidate(n).name], Measurement) for n in ("good", "scratch"))


def test_a_library_that_is_gone_is_a_load_failure(measurer: ProcessMeasurer, pairs: Pairs, tmp_path: Path) -> None:
    [(chosen, _)] = pairs("good")
    [found] = measurer.screen(WORKLOAD, [(chosen, BuiltKernel(chosen.kernel, tmp_path / "no.so", 0.0, True))])
    assert isinstance(found, Failure) and found.stage == Stage.LOAD


def test_a_workload_that_does_not_fit_fails_each_candidate(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    huge = GemmWorkload(1 << 15, 1 << 15, 32, epilogue=parse_epilogue("bias+relu"))
    found = list(measurer.screen(huge, pairs("good", "scratch")))
    assert len(found) == 2
    for outcome in found:
        assert isinstance(outcome, Failure) and "OUT_OF_MEMORY" in outcome.reason
    [after] = measurer.screen(WORKLOAD, pairs("good"))
    assert isinstance(after, Measurement)


def test_two_processes_take_turns_on_a_gpu(measurer: ProcessMeasurer, pairs: Pairs) -> None:
    measurer.identity()
    released = threading.Event()

    def hold() -> None:
        with alone("0:0:0.0", lambda: None):
            held.set()
            released.wait(30)

    held, done = threading.Event(), threading.Event()
    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(30)

    def measure() -> None:
        outcomes.extend(measurer.screen(WORKLOAD, pairs("good")))
        done.set()

    outcomes: list[Outcome] = []
    mine = threading.Thread(target=measure)
    mine.start()
    assert not done.wait(3.5), "longer than a time limit, which waiting does not use up"
    released.set()
    mine.join(30)
    other.join(30)
    assert isinstance(outcomes[0], Measurement)
    assert [n for n in measurer.notes if "take turns" in n] == [
        "another program measures on this GPU, the two take turns"
    ]


def test_a_busy_process_does_not_starve_another() -> None:
    stop, got = threading.Event(), threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with alone("busy", lambda: None):
                time.sleep(0.05)
            time.sleep(0.002)

    def wait() -> None:
        for _ in range(5):
            with alone("busy", lambda: None):
                continue
        got.set()

    threads = [threading.Thread(target=busy), threading.Thread(target=wait)]
    for thread in threads:
        thread.start()
    in_time = got.wait(20)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert in_time


def test_a_process_that_is_killed_gives_its_turn_back(
    measurer: ProcessMeasurer, host_reference: Path, pairs: Pairs
) -> None:
    other = ProcessMeasurer(HOST, reference=host_reference, step_limit_s=1)
    [hung] = other.screen(WORKLOAD, pairs("hangs"))
    [found] = measurer.screen(WORKLOAD, pairs("good"))
    assert isinstance(hung, Failure) and hung.stage == Stage.TIMEOUT and isinstance(found, Measurement)


def test_close_ends_the_child_and_may_be_repeated(measurer: ProcessMeasurer) -> None:
    measurer.identity()
    assert measurer._worker is not None
    pid = measurer._worker._process.pid
    measurer.close()
    measurer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_such_device(host_reference: Path) -> None:
    measurer = ProcessMeasurer(HOST, ordinal=1, reference=host_reference)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_DEVICE"):
        measurer.identity()
    measurer.close()


def test_the_child_goes_with_its_parent(host_reference: Path, tmp_path: Path) -> None:
    """kill -9 of the tuner leaves no measuring process behind."""
    import subprocess

    script = (
        "import sys, time\n"
        "from core.measure.process import ProcessMeasurer\n"
        f"m = ProcessMeasurer({HOST!r})\n"
        "m.identity(); print(m._worker._process.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the measuring process outlived its parent")
