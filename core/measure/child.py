"""A child process that is asked in JSON lines and may die or hang at any moment: the parent's side of it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import DeviceError
from core.measure.measurement import Stage
from core.paths import ROOT

QUIT_LIMIT_S = 5.0
KILL_LIMIT_S = 60.0  # the driver tears a hanging kernel's context down
_EXIT_LIMIT_S = 10.0  # of a process that has closed its output
_READER_LIMIT_S = 5.0  # of the threads that read a dead process's pipes
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
            status = self._process.wait(timeout=_EXIT_LIMIT_S)
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
            thread.join(timeout=_READER_LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):  # closing flushes what a dead reader will never take
                if pipe is not None:
                    pipe.close()
