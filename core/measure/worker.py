"""The measuring process: `python -m core.measure.worker RUNTIME ORDINAL`, one JSON object a line in and out.

Requests: {"do": "prepare", "key", "reference"}, {"do": "screen", "candidate", "library"},
{"do": "final", "items": [{"candidate", "library"}], "vendor"}, {"do": "vendor", "key"} (one step of making the
vendor's side ready), {"do": "quit"}.
Answers, in any number before the last: {"begin": name} (what runs next), {"note": text}, {"outcome": {...}}, {"more":
whether a step is left}; the last of a request is {"done": true}, {"error": text} (the request as a whole failed), or
{"fatal": text}: this process ends now, because a CUDA context does not survive such an error. The first line of all is
{"ready": identity}.

A crash or a hang of a kernel takes this process along and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from core.errors import BoltError
from core.measure.alone import alone
from core.measure.bench import Bench
from core.measure.runtime import open_runtime
from core.measure.wire import identity_to_dict, outcome_to_dict
from core.vendor import prepare as prepare_vendor
from templates.family import candidate_from_dict
from templates.workload import parse_workload

EXIT_FATAL = 3


class Channel:
    """The JSON lines of one process, on file descriptors of their own.

    Descriptor 1 becomes a copy of 2 and 0 reads nothing, so a library that prints or reads can't touch the protocol.
    """

    def __init__(self) -> None:
        self.reader: TextIO = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self.writer: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._owner = os.getpid()

    def send(self, **message: Any) -> None:
        if os.getpid() != self._owner:  # a library forked: its copy of this process has no part in the protocol
            os._exit(EXIT_FATAL)
        self.writer.write(json.dumps(message) + "\n")


def _die_with(parent: int) -> None:
    """Ends this process when its parent is gone, even while a kernel hangs."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _first_to_go() -> None:
    """When a candidate eats the host's memory, the kernel ends this process and not the one that tunes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(bench: Bench, channel: Channel, request: dict[str, Any], pci_bus: str) -> None:
    verb = request["do"]
    if verb == "vendor":  # compiling and no kernel: it may run beside another process's measuring
        channel.send(begin="vendor")
        channel.send(more=prepare_vendor(parse_workload(request["key"])))
        return
    with alone(pci_bus, lambda: channel.send(note="another program measures on this GPU, the two take turns")):
        _measure(bench, channel, request)


def _measure(bench: Bench, channel: Channel, request: dict[str, Any]) -> None:
    verb = request["do"]
    if verb == "prepare":
        bench.prepare(parse_workload(request["key"]), Path(request["reference"]))
    elif verb == "screen":
        outcome = bench.screen(candidate_from_dict(request["candidate"]), Path(request["library"]))
        channel.send(outcome=outcome_to_dict(outcome))
    elif verb == "final":
        items = [(candidate_from_dict(i["candidate"]), Path(i["library"])) for i in request["items"]]
        for outcome in bench.final(items, request["vendor"]):
            channel.send(outcome=outcome_to_dict(outcome))
    else:
        raise ValueError(f"no request is called {verb!r}")


def main(argv: list[str]) -> int:
    """Serves requests until the input ends. Exit status 0, or 3 after a fatal CUDA error."""
    _die_with(os.getppid())
    _first_to_go()
    channel = Channel()
    try:
        runtime = open_runtime(argv[1], int(argv[2]))
        pci_bus = runtime.facts().pci_bus
        bench = Bench(runtime, lambda name: channel.send(begin=name), lambda text: channel.send(note=text))
    except BoltError as error:
        channel.send(error=str(error))
        return 1
    channel.send(ready=identity_to_dict(bench.identity))
    for line in channel.reader:
        request = json.loads(line)
        if request["do"] == "quit":
            break
        last: dict[str, Any] = {"done": True}
        try:
            _answer(bench, channel, request, pci_bus)
        except (BoltError, ValueError) as error:
            last = {"error": " ".join(str(error).split())}
        fatal = bench.fatal or runtime.broken()
        if fatal:
            channel.send(fatal=fatal)
            os._exit(EXIT_FATAL)  # destructors would only meet the broken context again
        channel.send(**last)
    runtime.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
