"""The command line: a table of verbs, each a module that is imported only when it runs."""

import argparse
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from core.errors import BoltError, Cancelled, printable

# verb -> one line of help; the module core.cli.<verb> has configure(parser) and run(args) -> result or None.
VERBS = {
    "setup": "prepare this checkout (environment, compiler, system libraries), then run the rest of the line",
    "inspect": "the graph, the fusion plan, the workloads, and a reason for each node left alone",
    "tune": "run the tuning job and print the table of regions: best template, vendor, speed-up",
    "export": "tune what has no record yet, write the library and verify it where the GPU is here",
    "verify": "load an exported library, compare it with ONNX Runtime, print errors and latency",
    "bench": "measure a suite against its peers, or print the newest committed record of it",
    "advise": "what to change in the model itself, with measured prices; write a changed copy",
    "records": "list, show, export, import, merge or prune the tuning records",
    "replay": "play a recorded tuning run, in the window or as text",
    "doctor": "GPU, compiler, libraries, memory: each found or not, and how to mend it",
    "test": "run the test suite",
}


_OURS = re.compile("(\n|\x1b\\[[0-9;]*m)")


class Reporter:
    """Where a verb writes: progress and logs to stderr, the result to stdout (as one JSON object with --json)."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def log(self, text: str) -> None:
        if not self.quiet:
            print(shown(text), file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any], text: Callable[[], str]) -> None:
        """Print the result: `data` with --json, else `text()`."""
        print(json.dumps(data) if self.as_json else shown(text()), flush=True)


def shown(text: str) -> str:
    """The text as it may go to a terminal: lines and our own colours stay, any other control is shown as an escape."""
    return "".join(part if _OURS.fullmatch(part) else printable(part) for part in _OURS.split(text))


def parser() -> argparse.ArgumentParser:
    """The top-level parser; verbs are described, not imported."""
    top = argparse.ArgumentParser(
        prog="main.py",
        description="Bolt Workbench: tune an ONNX model with CUTLASS templates on this GPU and export a CUDA library.",
        epilog="With no arguments, or with a MODEL alone, the window opens. `main.py VERB --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("verb", metavar="VERB|MODEL", nargs="?", help="a verb below, or a model to open in the window")
    lines = "\n".join(f"  {name:9}{text}" for name, text in VERBS.items())
    top.epilog = f"verbs:\n{lines}\n\n{top.epilog}"
    return top


def run(argv: Sequence[str]) -> int:
    """Run one command line. Returns the exit status: 0 done, 1 the work failed, 2 bad usage."""
    if not argv or argv[0] not in VERBS:
        if argv and argv[0].startswith("-"):
            parser().parse_args(list(argv))  # --help, or an unknown option: exits
        if len(argv) == 1 and not _names_model(argv[0]):
            print(
                f"main.py: {argv[0]!r} is no verb, no file and no built-in model; `main.py --help` lists the verbs",
                file=sys.stderr,
            )
            return 2
        return _guarded(lambda: importlib.import_module("app.start").run(list(argv)))
    name = argv[0]

    def work() -> int:
        verb = importlib.import_module(f"core.cli.{name}")
        verb_parser = argparse.ArgumentParser(prog=f"main.py {name}", description=VERBS[name])
        verb_parser.add_argument("--json", action="store_true", help="print one JSON object on stdout, nothing else")
        verb_parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no log")
        verb.configure(verb_parser)
        args = verb_parser.parse_args(list(argv[1:]))
        with _ended_in_order():
            return verb.run(args, Reporter(args.json, args.quiet)) or 0

    return _guarded(work)


def _last_word(text: str) -> None:
    with suppress(OSError):  # the terminal may be what went away
        print(text, file=sys.stderr)


def _names_model(text: str) -> bool:
    from core.importer.samples import sample_names

    return text in sample_names() or os.path.exists(text)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and a terminal that closes end a verb as Ctrl-C does: no compiler and no half-written folder is left."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # under nohup a closed terminal is to be outlived
                signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work() or 0
    except KeyboardInterrupt:
        _last_word("stopped; what was finished is kept, the same command goes on from there")
        return 130
    except Cancelled as stop:
        _last_word(str(stop))
        return 130
    except BoltError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("core", "app", "templates"):
            raise
        print(f"error: the package {error.name} is not installed; run `python3 main.py setup`", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone, there is nobody to tell
        return 1
    except OSError as error:
        where = f"{error.filename!r}: " if error.filename is not None else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: this machine's memory is full; close other programs or take a smaller batch", file=sys.stderr)
        return 1
