"""What the plans of a document are called, what is known of their time, and how a comparison reads. No widgets."""

from collections.abc import Iterable, Mapping

from app.document import Document
from app.format import micros
from app.graph.model import box_line
from core.fusion.compare import Comparison, Figure, Side
from core.fusion.plan import FusionPlan

AS_IT_STANDS = "As it stands"
AUTOMATIC = "Automatic plan"


def named_plans(document: Document) -> dict[str, FusionPlan]:
    """The automatic plan, the kept ones and the one as it stands, by what lists call them."""
    return {AUTOMATIC: document.automatic, **document.plans.kept, AS_IT_STANDS: document.plan}


def known_figures(document: Document) -> dict[str, Figure]:
    """Every time that is known: of this run, of the one before it, else estimated."""
    found = {key: Figure(e.us, "estimated", False) for key, e in document.estimates.items()}
    for run, when in ((document.baseline, " in an earlier run"), (document.run, "")):
        for key, work in run.workloads.items() if run is not None else ():
            if run is not None and work.best is not None:
                found[key] = Figure(work.best.us, run.provenance + when, True)
    return found


def side_line(side: Side, known: Mapping[str, Figure]) -> str:
    """ "412 us replayed, 12.0 us estimated (2 regions), 14 regions not measured"."""
    parts = [f"{micros(side.measured_us)} {sources([side], known)}"] if side.measured_us else []
    if side.estimated:
        parts.append(f"{micros(side.estimated_us)} estimated ({_regions(len(side.estimated))})")
    if side.unknown:
        parts.append(f"{_regions(len(side.unknown))} not measured")
    return ", ".join(parts)


def sources(sides: Iterable[Side], known: Mapping[str, Figure]) -> str:
    """Where the measured times of some regions come from: "replayed", "measured, from records in an earlier run"."""
    keys = {r.workload.key for side in sides for r in side.regions if r.workload is not None}
    return ", ".join(sorted({known[key].source for key in keys if key in known and known[key].measured}))


def _regions(count: int) -> str:
    return f"{count} region{'s' * (count != 1)}"


def verdict(found: Comparison, source: str) -> str:
    """The comparison in a sentence; what is not known is said first."""
    if not found.differences:
        return "Both plans run the same regions."
    count = len(found.differences)
    said = f"{count} difference{'s' * (count != 1)}, {_regions(found.same)} the same. "
    gain = found.gain_us
    if gain is None:
        return f"{said}No total: {_unknown(found)}"
    word = "saves" if gain >= 0 else "costs"
    return f"{said}Plan B {word} {micros(abs(gain))} ({source})."


def _unknown(found: Comparison) -> str:
    """Why the differences have no sum, and what would give one."""
    unknown = [d for d in found.differences if d.gain_us is None]
    untimed = dict.fromkeys(r.id for d in unknown for s in (d.a, d.b) for r in s.unknown if r.workload is None)
    if untimed:
        are, them = ("is", "it") if len(untimed) == 1 else ("are", "them")
        return f"{box_line(list(untimed), 3)} {are} not tuned, so nobody timed {them}."
    verb = "is" if len(unknown) == 1 else "are"
    return f"{len(unknown)} of the differences {verb} not measured on both sides. Tune both plans to know."
