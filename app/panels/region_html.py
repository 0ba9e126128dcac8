"""The longer parts of a region's details: its kernel explained, the runners-up, how to reproduce it."""

import shlex
from html import escape

from app.document import Document
from app.explaining import Story
from app.format import micros, nbytes, ratio
from app.run import Row
from core.fusion.plan import Region
from core.paths import RESOURCES

RUNNERS_UP = 4


def kernel_html(document: Document, region: Region, story: Story | None, name: str) -> list[str]:
    """What the parameters mean, what the compiler said, and why this candidate."""
    if not name:
        return []
    if story is None:
        return ["<p class='head'>KERNEL</p>", "<p class='muted'>working it out</p>"]
    parts = ["<p class='head'>KERNEL</p>"]
    if story.explained is None:
        return [*parts, "<p class='muted'>No template makes it: it is the vendor's, or of an older version.</p>"]
    rows = [
        f"<tr><td class='label'>{escape(n)}</td><td><b>{escape(v)}</b> "
        f"<span class='muted'>{escape(meaning)}</span></td></tr>"
        for n, v, meaning in story.explained.params
    ]
    parts.append(f"<table>{''.join(rows)}</table>")
    parts += _compiled(document, region, name)
    parts += ["<p class='head'>WHY THIS ONE</p>", f"<p>{escape(story.explained.why)}</p>"]
    return parts + _runners_up(document, region, name)


def _rows(document: Document, region: Region) -> list[Row]:
    run = document.workload_run(region)
    return [document.run.rows[i] for i in run.rows] if run is not None else []


def _compiled(document: Document, region: Region, name: str) -> list[str]:
    row = next((r for r in _rows(document, region) if r.name == name), None)
    if row is None or row.registers is None:
        return []
    spills = f", {row.spill_bytes} bytes spilled" if row.spill_bytes else ", nothing spilled"
    spills += f", {nbytes(row.smem_bytes)} of static shared memory" if row.smem_bytes else ""
    took = f", compiled in {row.build_s:.1f} s" if row.build_s and not row.cached else ""
    return [f"<p class='muted'>{row.registers} registers a thread{spills}{took}.</p>"]


def _runners_up(document: Document, region: Region, name: str) -> list[str]:
    """The fastest others, each with how much slower it was."""
    rows = sorted((r for r in _rows(document, region) if r.us is not None), key=lambda r: r.us or 0.0)
    best = next((r for r in rows if r.name == name), None)
    others = [r for r in rows if r.name != name][:RUNNERS_UP]
    if best is None or best.us is None or not others:
        return []
    place = rows.index(best) + 1
    ranked = f"The rules ranked it {_ordinal(best.rank + 1)}; measured, it was {_ordinal(place)}."
    said = document.run.provenance
    cells = "".join(
        f"<tr><td class='label'>{escape(micros(r.us))}</td><td>{ratio((r.us or 0.0) / best.us)} "
        f"<span class='muted'>{escape(r.name)}</span></td></tr>"
        for r in others
        if r.us is not None
    )
    return [f"<p class='muted'>{ranked} The next ones, {said}:</p>", f"<table>{cells}</table>"]


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def reproduce(document: Document, gpu: str) -> str:
    """The command line that does what the window shows, for the automatic plan or a saved one."""
    session, run = document.session, document.run
    if run.file is not None:
        shipped = run.file.parent == RESOURCES / "runs"
        name = run.file.name.removesuffix(".jsonl.gz") if shipped else str(run.file)
        return shlex.join(["python3", "main.py", "replay", name])
    words = ["python3", "main.py", "tune", session.source]
    if session.batch is not None:
        words += ["--batch", str(session.batch)]
    dtype = {"f16": "fp16"}.get(str(session.dtype), str(session.dtype))
    if dtype != "fp16":
        words += ["--dtype", dtype]
    words += ["--gpu", gpu]
    if document.plan != document.automatic:
        words += ["--plan", f"{document.title}.plan.json"]
    if run.replayed or run.provenance == "from records":
        words.append("--replay")
    return shlex.join(words)
