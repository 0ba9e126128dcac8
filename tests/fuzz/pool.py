"""Long-lived child processes that try inputs; one that crashes, hangs or runs out of memory costs itself only."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

from core.paths import ROOT

TIME_LIMIT_S = 10.0  # of processor time, as the input counts it itself
_SLACK = 6  # until a silent process is ended: the processor may be busy with others
_START_LIMIT_S = 120.0


class Child:
    """One worker process. `ask` gives its answer, or a fault in its place when the process is lost."""

    def __init__(self, seed: int) -> None:
        self._command = [sys.executable, "-m", "tests.fuzz.worker", str(seed)]
        self._start()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        if not self._lines.get(timeout=_START_LIMIT_S):
            raise RuntimeError(f"the worker does not start: {self._said()}")

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-300:].decode(errors="replace").strip()

    def ask(self, number: int, limit_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            return self._lost(f"no answer within {limit_s:.0f} s", limit_s)
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        return self._lost(f"the process ended with status {self._process.wait()}: {self._said()}", 0.0)

    def _lost(self, said: str, seconds: float) -> dict[str, Any]:
        self.close()
        self._start()
        return {"how": "?", "kind": "fault", "stage": "process", "said": said, "seconds": seconds, "peak_mb": 0.0}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def try_all(
    numbers: Iterable[int], seed: int, jobs: int, heard: Callable[[int, dict[str, Any]], None],
    limit_s: float = TIME_LIMIT_S,
) -> None:  # fmt: skip
    """Tries every input on `jobs` processes; `heard(number, answer)` is called for each, one at a time."""
    waiting, lock = iter(numbers), threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        child = Child(seed)
        try:
            while not errors:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                answer = child.ask(number, _SLACK * limit_s)
                with lock:
                    heard(number, answer)
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            child.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
