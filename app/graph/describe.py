"""What is said of a box and its region: tooltips and the details panel share these words."""

from html import escape

from app.document import Document
from app.format import micros, ratio, workload_line
from app.graph.model import box_line, region_title
from core.fusion.plan import Region


def tooltip(document: Document, box: int) -> str:
    """Rich text for the hover: what it is, its region, why, and how fast."""
    shown = document.model.boxes[box]
    if shown.members:
        names = escape(box_line(shown.members))
        return (
            f"<b>{escape(shown.title)}</b><br>{escape(shown.detail)}: {names}<br>Unfold them with View, Fold repeats."
        )
    if shown.node is None:
        return f"<b>{escape(shown.name)}</b><br>{escape(shown.detail)}"
    region = document.region_at(box)
    lines = [f"<b>{escape(shown.title)}</b>&nbsp; {escape(shown.name)}"]
    if shown.detail:
        lines.append(escape(shown.detail))
    if region is not None:
        lines.append(f"<br><b>{escape(region.id)}</b>: {escape(region_title(region, document.graph))}")
        if region.workload:
            lines.append(escape(workload_line(region.workload)))
        lines.append(f"<i>{escape(reason(document, region, shown.name))}</i>")
        lines.extend(escape(line) for line in speed_lines(document, region))
    return "<p style='white-space:pre-wrap; margin:0'>" + "<br>".join(lines) + "</p>"


def reason(document: Document, region: Region, node: str) -> str:
    """Why the node runs where it does; a node left alone has its own reason."""
    alone = document.left_alone.get(node)
    return alone.reason if alone is not None else region.reason


def speed_lines(document: Document, region: Region) -> list[str]:
    """Ours, the vendor's, and the ratio, each with where the number comes from."""
    run = document.workload_run(region)
    if run is None or run.best is None:
        estimate = document.estimate(region)
        return [f"not measured, estimated {micros(estimate.us)}"] if estimate else []
    said = "from records" if run.from_records and document.run.measured_here else document.run.provenance
    lines = [f"ours {micros(run.best.us)} ({said})"]
    if run.vendor is not None:
        lines.append(f"{run.vendor.source} {micros(run.vendor.us)}, {ratio(run.vendor.us / run.best.us)} ({said})")
    else:
        lines.append("not compared with the vendor")
    return lines
