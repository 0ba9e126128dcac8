"""What the parent makes of a measuring process that does not keep to the protocol."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.build.artifact import BuiltKernel
from core.errors import DeviceError
from core.measure import child as child_module
from core.measure.measurement import Failure, Measurement, Stage
from core.measure.process import ProcessMeasurer
from templates.epilogue import Epilogue
from templates.family import Candidate, Kernel
from templates.workload import GemmWorkload

WORKLOAD = GemmWorkload(8, 8, 8)
Measurers = Callable[[str], ProcessMeasurer]


@pytest.fixture
def measurer() -> Iterator[Measurers]:
    made: list[ProcessMeasurer] = []

    def make(scenario: str) -> ProcessMeasurer:
        command = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
        made.append(ProcessMeasurer(scenario, reference=Path("none.so"), step_limit_s=2, command=command))
        return made[-1]

    yield make
    for each in made:
        each.close()


def items(*names: str) -> list[tuple[Candidate, BuiltKernel]]:
    kernels = [Kernel("fake", (), Epilogue(), stem=name) for name in names]
    return [(Candidate(k), BuiltKernel(k, Path("none.so"), 0.0, True)) for k in kernels]


def test_a_process_that_ends_at_once_is_a_device_error(measurer: Measurers) -> None:
    with pytest.raises(DeviceError, match=r"status 7: libsomething\.so is not there; run .* doctor"):
        measurer("exits").identity()


def test_its_own_refusal_is_passed_on(measurer: Measurers) -> None:
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        measurer("refuses").identity()


def test_a_program_that_is_not_there(measurer: Measurers) -> None:
    made = ProcessMeasurer(command=["/nonexistent/python"])
    with pytest.raises(DeviceError, match="can't be started"):
        made.identity()


def test_notes_are_kept_once(measurer: Measurers) -> None:
    made = measurer("good")
    made.identity()
    made.final(WORKLOAD, items("a"), vendor=False)
    assert made.notes == ["NVML is not there"]
    made.notes.clear()
    made._drop()
    made.final(WORKLOAD, items("a"), vendor=False)
    assert made.notes == [], "a restarted process says it again, the user has heard it"


@pytest.mark.parametrize("scenario", ["garbage", "array"])
def test_what_is_not_a_json_object_costs_the_candidate(measurer: Measurers, scenario: str) -> None:
    made = measurer(scenario)
    found = list(made.screen(WORKLOAD, items("a")))
    assert isinstance(found[0], Failure) and found[0].stage == Stage.CRASH and "not with JSON" in found[0].reason


def test_a_request_that_is_refused_fails_its_candidate(measurer: Measurers) -> None:
    [found] = measurer("error").screen(WORKLOAD, items("a"))
    assert isinstance(found, Failure) and found.reason == "not a workload key"


def test_no_outcome_at_all_is_a_failure(measurer: Measurers) -> None:
    [found] = measurer("good").screen(WORKLOAD, items("a"))
    assert isinstance(found, Failure) and "without an outcome" in found.reason


@pytest.mark.parametrize("scenario", ["vendor-crash", "vendor-fatal"])
def test_a_vendor_that_breaks_costs_only_the_comparison(measurer: Measurers, scenario: str) -> None:
    made = measurer(scenario)
    found = made.final(WORKLOAD, items("a", "b"), vendor=True)
    assert [o.candidate for o in found] == ["a", "b"] and all(isinstance(o, Measurement) for o in found)
    assert any("cublasLt 13.0.0 algo 1 not compared" in note for note in made.notes)


def test_a_loss_nobody_is_to_blame_for_ends(measurer: Measurers) -> None:
    found = measurer("between").final(WORKLOAD, items("a", "b"), vendor=True)
    assert len(found) == 2
    assert all(isinstance(o, Failure) and o.stage == Stage.CRASH for o in found)


def test_a_process_that_will_not_quit_is_killed(measurer: Measurers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "QUIT_LIMIT_S", 0.2)
    made = measurer("stubborn")
    made.identity()
    assert made._worker is not None
    child = made._worker._process
    made.close()
    assert child.poll() == -9


def test_operands_that_take_the_process_along_are_tried_once(measurer: Measurers) -> None:
    made = measurer("no-operands")
    [first] = made.screen(WORKLOAD, items("a"))
    assert made._worker is None
    rest = [*made.screen(WORKLOAD, items("b", "c")), *made.final(WORKLOAD, items("a"), vendor=True)]
    assert made._worker is None, "no process was started for the others"
    assert (
        all(isinstance(o, Failure) and "could not be prepared" in o.reason for o in (first, *rest)) and len(rest) == 3
    )


def test_the_time_limit_grows_with_the_work() -> None:
    made = ProcessMeasurer(step_limit_s=5)
    small = made._limit(GemmWorkload(1, 1, 1), "x")
    large = made._limit(GemmWorkload(8192, 8192, 8192), "x")
    assert small == pytest.approx(5, abs=0.1) and 20 < large < 120
    assert made._limit(GemmWorkload(1, 1, 1), "vendor") > small


def test_the_vendor_is_made_ready_step_by_step_and_again_in_a_new_process(measurer: Measurers) -> None:
    made = measurer("good")
    assert [made.get_ready(WORKLOAD, True) for _ in range(4)] == [True, False, False, False]
    assert not made.get_ready(GemmWorkload(16, 8, 8), False), "the vendor is not wanted"
    made.close()
    assert [made.get_ready(WORKLOAD, True) for _ in range(3)] == [True, False, False]


def test_a_vendor_that_breaks_while_made_ready_is_left_to_the_finals(measurer: Measurers) -> None:
    made, other = measurer("vendor-crash"), GemmWorkload(16, 8, 8)
    assert [made.get_ready(w, True) for w in (WORKLOAD, other, WORKLOAD, other)] == [False] * 4
    assert made._worker is None, "neither was tried a second time"


def test_the_reference_is_compiled_first(measurer: Measurers, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def build(arch: str) -> Path:
        compiled.append(arch)
        return Path("none.so")

    monkeypatch.setattr("core.measure.reference.build", build)
    made = measurer("good")
    made._reference = None
    assert [made.get_ready(WORKLOAD, False) for _ in range(2)] == [True, False] and compiled == ["90a"]
    list(made.screen(WORKLOAD, items("a")))
    assert compiled == ["90a"]
