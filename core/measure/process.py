"""The measurer the tuner uses: a child process per GPU, restarted when a candidate takes it down."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.build.artifact import BuiltKernel
from core.device import GpuIdentity
from core.errors import DeviceError
from core.measure.child import Worker, WorkerGone
from core.measure.measurement import Failure, Outcome, Stage
from core.measure.wire import identity_from_dict, outcome_from_dict
from templates.family import Candidate, candidate_to_dict
from templates.workload import Workload

START_LIMIT_S = 120.0  # driver and context of a large machine
PREPARE_LIMIT_S = 120.0
VENDOR_LIMIT_S = 120.0  # building cuDNN's plans
STEP_LIMIT_S = 20.0  # loading, verifying and timing one candidate takes well under a second
_SLOWEST_FLOPS = 0.5e12  # a kernel below half a TFLOP/s has no chance; the limit leaves room for one
_RUNS_PER_STEP = 20


@dataclass
class _Answer:
    """What came of a request. `error`: refused as a whole. `lost`: the child is gone, `doing` names what it ran."""

    outcomes: list[Outcome] = field(default_factory=list)
    error: str = ""
    lost: str = ""
    more: bool = False
    stage: Stage = Stage.LOAD
    doing: str = ""
    log: str = ""


def _failure(workload: Workload, candidate: Candidate, answer: _Answer) -> Failure:
    reason = answer.lost or answer.error or "the measuring process answered without an outcome"
    return Failure(workload.key, candidate.name, answer.stage, reason, answer.log)


class ProcessMeasurer:
    """`core.tuner.ports.Measurer`: measures in a child process; a candidate that kills or hangs it costs itself only.

    Args:
        runtime: "cuda-bindings", "pycuda", or "module:Class" of another adapter.
        ordinal: which GPU, in the CUDA driver's order.
        reference: the measuring library; None compiles it for the GPU when it is first needed.
        step_limit_s: seconds a candidate may take for loading, verifying and timing, on top of an allowance for the
            workload's size.
        visible: what the child sees as its only GPU, as an entry of CUDA_VISIBLE_DEVICES; all that are here if None.
        name: see ports.Measurer.

    `notes` gathers what the user should be told (a vendor library that is absent, an algorithm that was not counted);
    each is said once, and whoever reads them may take them out.
    """

    def __init__(
        self, runtime: str = "cuda-bindings", ordinal: int = 0, reference: Path | None = None,
        step_limit_s: float = STEP_LIMIT_S, command: Sequence[str] | None = None, visible: str | None = None,
        name: str = "GPU 0",
    ) -> None:  # fmt: skip
        module = [sys.executable, "-m", "core.measure.worker"]
        self._command = [*(command or module), runtime, str(ordinal)]
        self._environment = None if visible is None else {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
        self.name = name
        self._reference = reference
        self._step_limit_s = step_limit_s
        self._worker: Worker | None = None
        self._identity: GpuIdentity | None = None
        self._prepared = ""
        self._unprepared: dict[str, str] = {}  # workloads whose operands took the child along, and the reason
        self._vendor_ready: set[str] = set()  # in the child that runs
        self._vendor_broken: set[str] = set()
        self.notes: list[str] = []
        self._said: set[str] = set()

    def identity(self) -> GpuIdentity:
        """Raises DeviceError when there is no usable GPU or its runtime does not work."""
        if self._identity is None:
            self._started()
        assert self._identity is not None
        return self._identity

    def get_ready(self, workload: Workload, vendor: bool) -> bool:
        """One step of what the workload's measuring needs beside kernels: the reference library, the vendor's plans.

        False when nothing is left. Raises DeviceError or ToolchainError. What breaks here is told by `final`.
        """
        if self._reference is None:
            self._reference_library()
            return True
        if not vendor or workload.key in self._vendor_ready | self._vendor_broken:
            return False
        answer = self._ask(workload, "vendor", key=workload.key)
        if not answer.more:
            (self._vendor_broken if answer.lost else self._vendor_ready).add(workload.key)
        return answer.more

    def screen(self, workload: Workload, candidates: Sequence[tuple[Candidate, BuiltKernel]]) -> Iterator[Outcome]:
        """One outcome for each candidate, in order. Raises DeviceError or ToolchainError, never for a candidate."""
        for candidate, built in candidates:
            yield self._screen_one(workload, candidate, built)

    def _screen_one(self, workload: Workload, candidate: Candidate, built: BuiltKernel) -> Outcome:
        refused = self._prepare(workload)
        if refused:
            return Failure(workload.key, candidate.name, Stage.LAUNCH, refused)
        item = {"candidate": candidate_to_dict(candidate), "library": str(built.library)}
        answer = self._ask(workload, "screen", **item)
        self._clear_errors(answer.outcomes)
        if answer.outcomes:
            return answer.outcomes[0]
        return _failure(workload, candidate, answer)

    def _clear_errors(self, outcomes: Sequence[Outcome]) -> None:
        """Starts afresh after a failed launch: a library keeps its CUDA runtime's last error, and the next kernel in
        it would be blamed for that one."""
        if any(isinstance(o, Failure) and o.stage == Stage.LAUNCH for o in outcomes):
            self.close()

    def final(
        self, workload: Workload, finalists: Sequence[tuple[Candidate, BuiltKernel]], vendor: bool
    ) -> list[Outcome]:
        """Outcomes of the finals. After a crash or a hang the others are measured again without the culprit."""
        left = list(finalists)
        failures: list[Outcome] = []
        while left or vendor:
            refused = self._prepare(workload)
            if refused:
                return failures + [Failure(workload.key, c.name, Stage.LAUNCH, refused) for c, _ in left]
            items = [{"candidate": candidate_to_dict(c), "library": str(b.library)} for c, b in left]
            answer = self._ask(workload, "final", items=items, vendor=vendor)
            if not answer.lost and not answer.error:
                self._clear_errors(answer.outcomes)
                return failures + answer.outcomes
            found: list[Outcome] = [o for o in answer.outcomes if isinstance(o, Failure)]
            known = {o.candidate for o in found}
            found += [
                _failure(workload, c, answer)
                for c, _ in left
                if c.name not in known and (answer.error or c.name == answer.doing)
            ]
            failures += found
            known = {o.candidate for o in found}
            before, left = left, [pair for pair in left if pair[0].name not in known]
            if len(left) < len(before):
                continue
            if vendor:
                vendor = False
                self._note(f"{answer.doing} not compared on {workload.key}: {answer.lost or answer.error}")
            else:  # lost between two candidates: nobody to blame, and trying again could go on for ever
                return failures + [_failure(workload, c, answer) for c, _ in left]
        return failures

    def close(self) -> None:
        """Ends the child process. Safe to call twice."""
        if self._worker is not None:
            self._worker.quit()
        self._forget()

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._forget()

    def _forget(self) -> None:
        self._worker, self._prepared = None, ""
        self._vendor_ready.clear()

    def _started(self) -> Worker:
        if self._worker is not None:
            return self._worker
        worker = self._worker = Worker(self._command, self._environment)
        try:
            while True:
                answer = worker.receive(START_LIMIT_S)
                if "ready" in answer:
                    self._identity = identity_from_dict(answer["ready"])
                    return worker
                if "error" in answer:
                    raise DeviceError(answer["error"])
                self._heard(answer)
        except WorkerGone as gone:
            log = worker.log.splitlines()
            self._drop()
            last = f": {log[-1]}" if log else ""
            raise DeviceError(f"the GPU can't be measured on: {gone}{last}", "run `python3 main.py doctor`") from None
        except BaseException:
            self._drop()
            raise

    def _heard(self, answer: dict[str, Any]) -> None:
        if "note" in answer:
            self._note(str(answer["note"]))

    def _note(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.notes.append(text)

    def _prepare(self, workload: Workload) -> str:
        """Makes the child hold this workload's operands. Gives the reason when the workload can't be measured."""
        if self._prepared == workload.key and self._worker is not None:
            return ""
        if workload.key in self._unprepared:
            return self._unprepared[workload.key]
        self._started()
        reference = self._reference_library()
        self._prepared = ""
        answer = self._ask(workload, "prepare", key=workload.key, reference=str(reference))
        if answer.lost:  # not tried again: after a hang that would take minutes for each candidate
            return self._unprepared.setdefault(workload.key, f"the operands could not be prepared: {answer.lost}")
        if answer.error:
            return answer.error
        self._prepared = workload.key
        return ""

    def _reference_library(self) -> Path:
        if self._reference is None:
            from core.measure.reference import build

            self._reference = build(self.identity().spec.nvcc_arch)
        return self._reference

    def _limit(self, workload: Workload, doing: str) -> float:
        if doing == "prepare":
            return PREPARE_LIMIT_S
        own = self._step_limit_s + _RUNS_PER_STEP * workload.flops / _SLOWEST_FLOPS
        return max(own, VENDOR_LIMIT_S) if doing == "vendor" else own

    def _ask(self, workload: Workload, verb: str, **request: Any) -> _Answer:
        """Sends a request and gathers its answers. A child that is lost on the way is not there afterwards."""
        worker = self._started()
        found = _Answer(doing=verb)
        try:
            worker.send(do=verb, **request)
            while not self._take(worker.receive(self._limit(workload, found.doing)), found):
                pass
        except WorkerGone as gone:
            found.lost, found.stage, found.log = str(gone), gone.stage, worker.log
        except BaseException:  # the user's stop: what still runs on the GPU is of no use any more
            self._drop()
            raise
        if found.lost:
            self._drop()
        return found

    def _take(self, message: dict[str, Any], found: _Answer) -> bool:
        """Adds one message of the child to what was found. True: it was the last one."""
        if "begin" in message:
            found.doing = str(message["begin"])
        elif "outcome" in message:
            found.outcomes.append(outcome_from_dict(message["outcome"]))
        elif "more" in message:
            found.more = bool(message["more"])
        elif "fatal" in message:
            found.lost, found.stage = f"the GPU context is lost: {message['fatal']}", Stage.CRASH
        elif "error" in message:
            found.error = str(message["error"])
        else:
            self._heard(message)
        return bool({"done", "error", "fatal"} & message.keys())
