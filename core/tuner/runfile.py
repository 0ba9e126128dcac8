"""Run files: the events of a tuning run as JSON lines, gzipped, to be replayed or looked at later.

The first line is a header; each further line an event with `t`, the seconds since the start, and `event`, its class.
"""

import gzip
import json
import time
import types
import typing
import zlib
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from core.errors import RecordError
from core.paths import RESOURCES
from core.tuner.events import Event

FORMAT, VERSION = "bolt-run", 1
RUNS = RESOURCES / "runs"
EVENTS: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(Event)}
_LARGEST = 256 << 20
_LOG_CHARACTERS = 2_000


@dataclass(frozen=True)
class TimedEvent:
    """An event and the seconds since the run's start."""

    t: float
    event: Event


def encode(event: Event) -> dict[str, Any]:
    """Plain JSON values; `decode` reads them back. A failure's log is cut."""
    data = {"event": type(event).__name__, **asdict(event)}
    if "failure" in data:
        data["failure"]["log"] = data["failure"]["log"][:_LOG_CHARACTERS]
    return data


def decode(data: Any) -> Event:
    """Raises ValueError on anything that `encode` did not write."""
    if not isinstance(data, dict) or not isinstance(data.get("event"), str) or data["event"] not in EVENTS:
        raise ValueError("a line is no event")
    values = {k: v for k, v in data.items() if k != "event"}
    event: Event = _value(EVENTS[data["event"]], values)
    return event


def _value(kind: Any, data: Any) -> Any:
    """The value of a type as the events use it: dataclass, enum, tuple, optional or plain."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        (kind,) = (k for k in inner if k is not type(None))
        return _value(kind, data)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{data!r} is no list")
        kinds = [inner[0]] * len(data) if inner[-1] is ... else inner
        if len(kinds) != len(data):
            raise ValueError(f"{data!r} has another length")
        return tuple(_value(k, d) for k, d in zip(kinds, data, strict=True))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        needed = {f.name for f in fields(kind) if f.default is MISSING}  # a run of before a field was there has none
        if not isinstance(data, dict) or not needed <= set(data) <= hints.keys():
            raise ValueError(f"not the fields of {kind.__name__}: {data!r:.80}")
        return typing.cast(Callable[..., Any], kind)(**{n: _value(hints[n], d) for n, d in data.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and type(data) is int:
        return float(data)
    if type(data) is not kind:
        raise ValueError(f"{data!r:.80} is no {kind.__name__}")
    return data


class RunWriter:
    """A listener that writes every event to a file. Close it, or use it in a `with`. Raises RecordError."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._now, self._start = now, now()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = typing.cast(TextIO, gzip.open(path, "wt", encoding="utf-8"))  # noqa: SIM115 - close() ends it
        except OSError as error:
            raise self._refused(error) from error
        self._write({"format": FORMAT, "version": VERSION})

    def __call__(self, event: Event) -> None:
        self._write({"t": round(self._now() - self._start, 3), **encode(event)})

    def _write(self, data: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(data, allow_nan=False) + "\n")
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> RecordError:
        return RecordError(f"the run file {self.path} can't be written ({error.strerror or error})", "choose another")

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def read_run(path: Path) -> list[TimedEvent]:
    """The events of a run file in order. Raises RecordError."""
    try:
        with gzip.open(path) as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError("it is larger than 256 MB")
        header, *lines = (json.loads(line) for line in data.decode().splitlines())
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("its first line is another one")
        if header.get("version") != VERSION:
            raise ValueError(f"its version is {header.get('version')}, not {VERSION}")
        return [_timed(line) for line in lines]
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError) as error:
        raise RecordError(f"{path} is not a whole run file ({error})", "record the run again") from error
    except OSError as error:
        raise RecordError(f"{path} can't be read ({error.strerror or error})", "give a run file") from error


def _timed(line: Any) -> TimedEvent:
    if not isinstance(line, dict) or type(line.get("t")) not in (int, float):
        raise ValueError("a line has no time")
    return TimedEvent(float(line["t"]), decode({k: v for k, v in line.items() if k != "t"}))


def find_run(name: str, folder: Path = RUNS) -> Path:
    """A run file by path, or by the name of a shipped one. Raises RecordError naming those there are."""
    for path in (Path(name), folder / name, folder / f"{name}.jsonl.gz"):
        if path.is_file():
            return path
    raise RecordError(f"there is no run {name}", f"give a file, or one of: {', '.join(shipped_runs(folder)) or 'none'}")


def shipped_runs(folder: Path = RUNS) -> list[str]:
    """Names of the runs that come with the program."""
    return sorted(p.name.removesuffix(".jsonl.gz") for p in folder.glob("*.jsonl.gz"))
