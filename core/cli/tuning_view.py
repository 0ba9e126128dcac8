"""A tuning job on the terminal: a live line and finished workloads on stderr, the table of regions at the end."""

import io
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from core.cli import Reporter
from core.fusion.plan import FusionPlan, Region
from core.measure.measurement import Measurement
from core.tuner.events import (
    BuildFinished,
    CandidateFailed,
    Event,
    JobStarted,
    Note,
    Progress,
    WorkloadFinished,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_QUIET_LINE_S = 10.0  # where no line can be redrawn, progress is told this often


class TuningView(AbstractContextManager["TuningView"]):
    """A listener. On a terminal it draws a bar; elsewhere it prints a line now and then; with -q nothing."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._bar: Bar | None = None
        self._told = time.monotonic()
        self._failures = 0

    def __enter__(self) -> "TuningView":
        if not self._reporter.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
            self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, state="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobStarted):
            count = len(event.workloads)
            self._line(f"{event.model} on {event.gpu}: {count} workloads in {len(event.regions)} regions")
        elif isinstance(event, Note):
            self._line(event.text if event.level == "info" else f"{event.level}: {event.text}")
        elif isinstance(event, WorkloadFinished):
            self._line(finished_line(event))
        elif isinstance(event, CandidateFailed):
            self._failures += 1
            if self._failures <= 3:
                failure = event.failure
                self._line(f"failed ({failure.stage}): {failure.candidate}: {failure.reason}")
            elif self._failures == 4:
                self._line("further failures are kept in the records: `main.py records show`")
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, BuildFinished) and event.spill_bytes:
            self._line(f"{event.kernel} spills {event.spill_bytes} bytes of registers")

    def _line(self, text: str) -> None:
        text = " ".join(text.split())
        if self._bar is None:
            self._reporter.log(text)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def _progress(self, event: Progress) -> None:
        text = progress_line(event)
        if self._bar is not None:
            total = event.to_build + event.to_measure + event.workloads
            done = event.built + event.measured + event.failed + event.workloads_done
            description = f"{event.workloads_done}/{event.workloads} workloads"
            self._bar.update(self._task, description=description, total=total, completed=done, state=text)
        elif time.monotonic() - self._told >= _QUIET_LINE_S:
            self._told = time.monotonic()
            self._reporter.log(text)


def progress_line(event: Progress) -> str:
    """One line of what is known so far."""
    parts = [f"built {event.built}/{event.to_build}", f"measured {event.measured}/{event.to_measure}"]
    if event.failed:
        parts.append(f"{event.failed} failed")
    if event.eta_s is not None:
        parts.append(f"about {duration(event.eta_s)} left")
    if event.state is not None and event.state.throttled:
        parts.append("the GPU's clocks are held back")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def finished_line(event: WorkloadFinished) -> str:
    """One line of a workload's result."""
    if event.best is None:
        return f"{event.workload}: no candidate works ({event.failed} failed)"
    text = f"{event.workload}: {event.best.us:.2f} us {event.best.candidate}"
    if event.vendor is not None:
        text += f", {event.vendor.source} {event.vendor.us:.2f} us, {event.vendor.us / event.best.us:.2f}x"
    return text + (" (from records)" if event.from_records else "")


def result_json(
    plan: FusionPlan, gpu: str, results: Mapping[str, WorkloadFinished], seconds: float, measured: bool
) -> dict[str, Any]:
    """What `tune --json` prints; other programs rely on it."""
    return {
        "model": plan.model,
        "gpu": gpu,
        "regions": [_region_json(r, results.get(r.workload.key)) for r in plan.regions if r.workload is not None],
        "seconds": round(seconds, 3),
        "measured": measured,
    }


def _region_json(region: Region, result: WorkloadFinished | None) -> dict[str, Any]:
    best, vendor = (result.best, result.vendor) if result else (None, None)
    return {
        "id": region.id,
        "kind": str(region.kind),
        "workload": region.workload.key if region.workload else None,
        "best": {"family": family_of(best), "name": best.candidate, "us": best.us} if best else None,
        "vendor": {"library": vendor.source, "us": vendor.us} if vendor else None,
        "speedup": vendor.us / best.us if best and vendor else None,
        "candidates": result.measured if result else 0,
        "failed": result.failed if result else 0,
    }


def family_of(best: Measurement) -> str:
    """The family of a candidate, which its name begins with."""
    from templates import families

    fitting = [name for name in families() if best.candidate.startswith(f"{name}_")]
    return max(fitting, key=len, default="")


def result_text(data: Mapping[str, Any]) -> str:
    """The table of regions for a person."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = f"{data['model']} on {data['gpu']}" + ("" if data["measured"] else ": recorded figures, nothing measured")
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("region", "kind", "workload", "best template", "us", "vendor", "us", "speed-up", "tried", "failed"):
        table.add_column(column, justify="right" if column in ("us", "speed-up", "tried", "failed") else "left")
    for region in data["regions"]:
        best, vendor = region["best"] or {}, region["vendor"] or {}
        cells = (
            region["id"], region["kind"], region["workload"], best.get("name", "none works"), _us(best),
            vendor.get("library", "not compared"), _us(vendor),
            f"{region['speedup']:.2f}x" if region["speedup"] else "", region["candidates"], region["failed"],
        )  # fmt: skip
        table.add_row(*(Text(" ".join(str(c).split()), overflow="fold") for c in cells))
    width = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 240
    screen = Console(file=io.StringIO(), width=width, force_terminal=sys.stdout.isatty(), highlight=False)
    screen.print(table)
    screen.print(Text(_totals(data)))
    text: str = screen.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _us(figure: Mapping[str, Any]) -> str:
    return f"{figure['us']:.2f}" if figure else ""


def _totals(data: Mapping[str, Any]) -> str:
    both = [r for r in data["regions"] if r["best"] and r["vendor"]]
    ours, theirs = sum(r["best"]["us"] for r in both), sum(r["vendor"]["us"] for r in both)
    compared = f"; {len(both)} compared: {ours:.1f} us against {theirs:.1f} us" if both else ""
    return f"{len(data['regions'])} tuned regions in {data['seconds']:.1f} s{compared}"
