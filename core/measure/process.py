"""The measurer the tuner uses: a child process per GPU, restarted when a candidate takes it down."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.build.artifact import BuiltKernel
from core.device import GpuIdentity
from core.errors import DeviceError
from core.measure.measurement import Failure, Outcome, Stage
from core.measure.wire import identity_from_dict, outcome_from_dict
from core.paths import ROOT
from templates.family import Candidate, candidate_to_dict
from templates.workload import Workload

START_LIMIT_S = 120.0  # driver and context of a large machine
PREPARE_LIMIT_S = 120.0
VENDOR_LIMIT_S = 120.0  # building cuDNN's plans
STEP_LIMIT_S = 20.0  # loading, verifying and timing one candidate takes well under a second
QUIT_LIMIT_S = 5.0
KILL_LIMIT_S = 60.0  # the driver tears a hanging kernel's context down
_SLOWEST_FLOPS = 0.5e12  # a kernel below half a TFLOP/s has no chance; the limit leaves room for one
_RUNS_PER_STEP = 20
_LOG_LINES = 40
_LOOK_S = 0.5  # between two looks whether a silent process still runs
_LAST_WORDS_S = 5.0  # after the process's end; only something it left behind can hold its output longer


class WorkerGone(Exception):
    """The child process ended, hung or spoke nonsense. `stage` is CRASH or TIMEOUT; the text is the reason."""

    def __init__(self, stage: Stage, reason: str) -> None:
        self.stage = stage
        super().__init__(reason)


class Worker:
    """One child process and its JSON lines. Raises DeviceError when it can't be started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        try:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise DeviceError(f"the measuring process {command[0]} can't be started ({error})") from None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._threads = [
            threading.Thread(target=self._read_answers, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line.rstrip())

    @property
    def log(self) -> str:
        """The last lines the process wrote to its standard error."""
        return "\n".join(self._log)

    def send(self, **request: Any) -> None:
        """Raises WorkerGone when the process does not take it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerGone(Stage.CRASH, self._end()) from None

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next answer. Raises WorkerGone when none comes in time, the process ends, or it is no JSON object."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, min(_LOOK_S, deadline - time.monotonic())))
                break
            except queue.Empty:
                if self._process.poll() is not None and self._lines.empty():  # something it forked holds its output
                    raise WorkerGone(Stage.CRASH, self._end()) from None
                if time.monotonic() >= deadline:
                    what = f"no answer within {limit_s:.0f} s; the process was killed"
                    raise WorkerGone(Stage.TIMEOUT, what) from None
        if line is None:
            raise WorkerGone(Stage.CRASH, self._end())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise WorkerGone(Stage.CRASH, f"the measuring process answered with {line.strip()[:80]!r}, not with JSON")
        return answer

    def _end(self) -> str:
        """How the process ended, in words."""
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "the measuring process closed its output and did not end"
        self._kill_group()
        self._threads[1].join(timeout=_LAST_WORDS_S)  # what it said last may not have been read yet
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"the measuring process was killed by {signal.Signals(-status).name}"
        return f"the measuring process ended with status {status}"

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def quit(self) -> None:
        """Asks the process to end, then makes it."""
        with contextlib.suppress(WorkerGone):
            self.send(do="quit")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=QUIT_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """Ends the process and everything it started, at once. Safe to call twice.

        Raises DeviceError when the driver does not let go of it.
        """
        self._kill_group()
        try:
            self._process.wait(timeout=KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"the measuring process {self._process.pid} can't be ended, the GPU's driver holds it",
                "end the other programs on it, or restart the machine",
            ) from None
        for thread in self._threads:
            thread.join(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):  # closing flushes what a dead reader will never take
                if pipe is not None:
                    pipe.close()


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
