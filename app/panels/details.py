"""The details of the selection: workload, shapes, best candidate, vendor, spread, error, and why."""

from html import escape

import numpy as np
from PySide6.QtWidgets import QTextBrowser, QVBoxLayout, QWidget

from app import edits
from app.document import Document
from app.explaining import Explaining
from app.follow import Follower
from app.format import micros, nbytes, rate, ratio, shape, spread, workload_line
from app.graph.describe import reason
from app.graph.model import box_line, region_title
from app.panels.region_html import kernel_html, reproduce
from app.run import Changes
from app.theme import Theme
from core.fusion.plan import Region
from core.graph.ir import Graph, Node

EMPTY = (
    "<p class='muted'>No model is open. Open one, or a sample: its regions, their kernels and what each costs are told "
    "here.</p>"
)
HOW = (
    "<p class='head'>SELECT</p><p class='muted'>Click a node, or a region in the list. Shift-click, drag a frame, or "
    "hold Alt and draw a line round nodes (the lasso, L) to select several; right-click to fuse or split them.</p>"
)
MOST_NODES = 12
SAMPLE = 200_000  # elements of a constant that its statistics look at


class DetailsPanel(QWidget):
    """Rich text that can be selected and copied."""

    def __init__(self, theme: Theme, explaining: Explaining, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.explaining = explaining
        self.gpu = ""  # the one that is meant, by the window
        self._links = Follower()
        self.document: Document | None = None
        self.theme = theme
        self.text = QTextBrowser()
        self.text.setOpenLinks(False)
        self.text.setAccessibleName("Details of the selection")
        self.text.document().setDocumentMargin(12)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.text)
        explaining.ready.connect(self.refresh)
        self.set_theme(theme)

    def set_document(self, document: Document | None) -> None:
        self.document = document
        if document is None:
            self._links.follow()
        else:
            self._links.follow(
                (document.selection_changed, self.refresh),
                (document.plan_changed, self.refresh),
                (document.run_changed, self._run_changed),
                (document.estimates_changed, self.refresh),
            )
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self.text.document().setDefaultStyleSheet(
            f".title {{ font-size: 16px; font-weight: 600; margin: 0 0 2px 0; }}"
            f" .head {{ font-size: 11px; font-weight: 600; color: {theme.hex('faint')}; margin: 16px 0 4px 0; }}"
            f" p {{ margin: 0 0 4px 0; }} .muted {{ color: {theme.hex('muted')}; }}"
            f" .bad {{ color: {theme.hex('bad')}; }}"
            f" .good {{ color: {theme.hex('good')}; }} td {{ padding: 2px 12px 2px 0; }}"
            f" .label {{ color: {theme.hex('muted')}; }}"
        )
        self.refresh()

    def _run_changed(self, changes: Changes) -> None:
        region = self.document.selected_region() if self.document else None
        key = region.workload.key if region is not None and region.workload else None
        if changes.started or changes.finished or key in changes.workloads:
            self.refresh()

    def refresh(self) -> None:
        where = self.text.verticalScrollBar().value()
        self.text.setHtml(self._html())
        self.text.verticalScrollBar().setValue(where)

    def _html(self) -> str:
        document = self.document
        if document is None:
            return EMPTY
        if not document.selection:
            return summary_html(document)
        region = document.selected_region()
        nodes = [document.model.boxes[i] for i in document.selection]
        if len(nodes) == 1 and nodes[0].members and region is None:
            return fold_html(document, nodes[0].title, nodes[0].members)
        if len(nodes) == 1 and nodes[0].node is None and region is None:
            return f"<p class='title'>{escape(nodes[0].name)}</p><p class='muted'>{escape(nodes[0].detail)}</p>"
        if len(nodes) == 1 and nodes[0].node is not None and region is not None:
            return node_html(document.graph, nodes[0].node) + "<hr>" + self._region(document, region, nodes[0].name)
        if region is not None:
            return self._region(document, region, nodes[0].name if nodes[0].name in region.nodes else region.nodes[0])
        return selection_html(document)

    def _region(self, document: Document, region: Region, node: str) -> str:
        parts = [region_html(document, region, node)]
        if region.workload is not None:
            run, estimate = document.workload_run(region), document.estimate(region)
            if run is not None and run.best is not None:
                name = run.best.candidate if run.best.source == "template" else ""
            else:
                name = estimate.candidate if estimate is not None else ""
            story = self.explaining.story(region.workload, self.gpu, name) if name else None
            parts += kernel_html(document, region, story, name)
            line = escape(reproduce(document, self.gpu))
            parts += ["<p class='head'>REPRODUCE</p>", f"<p><code>{line}</code></p>"]
            if "--plan" in line:
                parts.append("<p class='muted'>once the plan is saved there (Plan, Save plan).</p>")
        return "".join(parts)


def summary_html(document: Document) -> str:
    """The model as a whole, for when nothing is selected."""
    graph, plan = document.graph, document.plan
    tuned = [r for r in plan.regions if r.workload]
    fused = sum(len(r.nodes) for r in plan.regions if len(r.nodes) > 1)
    flops = sum(r.workload.flops for r in tuned if r.workload)
    rows = [
        ("Nodes", f"{len(graph.nodes)}, {fused} of them in fused regions"),
        ("Regions", f"{len(plan.regions)}, {len(tuned)} tuned, {len(plan.workloads)} different workloads"),
        ("Left alone", f"{len(plan.left_alone)} node{'s' * (len(plan.left_alone) != 1)}"),
        ("Arithmetic", f"{flops / 1e9:,.3g} GFLOP in the tuned regions"),
        *((f"in {i}", _tensor(graph, t)) for i, t in enumerate(graph.inputs)),
        *((f"out {i}", _tensor(graph, t)) for i, t in enumerate(graph.outputs)),
    ]
    parts = [
        f"<p class='title'>{escape(document.title)}</p>",
        f"<p class='muted'>{escape(document.session.source)}</p>",
    ]
    return "".join([*parts, "<p class='head'>MODEL</p>", table(rows), *_total(document, tuned), HOW])


def fold_html(document: Document, title: str, members: tuple[str, ...]) -> str:
    """Folded repeats: how many nodes and regions they hide."""
    regions = {r.id for n in members if (r := document.plan.region_of(n)) is not None}
    rows = [("Nodes", str(len(members))), ("Regions", str(len(regions)))]
    return (
        f"<p class='title'>{escape(title)}</p><p class='muted'>Equal to the block above them: the same operators, "
        f"shapes and wiring. Unfold them with View, Fold repeats.</p>{table(rows)}"
        f"<p class='muted'>{escape(box_line(members, MOST_NODES))}</p>"
    )


def _total(document: Document, tuned: "list[Region]") -> list[str]:
    """Sums over the tuned regions that have both figures; not the time of the whole model."""
    runs = [run for r in tuned if (run := document.workload_run(r)) is not None and run.best and run.vendor]
    if not runs:
        return []
    ours = sum(run.best.us for run in runs if run.best)
    vendor = sum(run.vendor.us for run in runs if run.vendor)
    said = document.run.provenance
    rows = [
        ("Ours", f"<b>{escape(micros(ours))}</b> <span class='muted'>{said}</span>"),
        ("Vendor", f"{escape(micros(vendor))} <span class='muted'>{said}</span>"),
        ("Ratio", f"<b>{ratio(vendor / ours)}</b>"),
    ]
    note = f"<p class='muted'>Sums over {len(runs)} of {len(tuned)} tuned regions, each timed alone.</p>"
    return ["<p class='head'>TUNED REGIONS</p>", table(rows), note]


def selection_html(document: Document) -> str:
    """Nodes of several regions: what they are, and whether they could be one."""
    names = document.selected_nodes()
    parts = [f"<p class='title'>{len(names)} nodes</p><p class='muted'>{escape(box_line(names, MOST_NODES))}</p>"]
    if len(names) < 2:
        return "".join(parts)
    offer = edits.fuse_offer(document)
    if offer.possible:
        parts.append(f"<p class='head'>CAN BE FUSED: {escape(offer.kind.upper())}</p><p>{escape(offer.reason)}</p>")
        parts.append(f"<p class='muted'>{escape(offer.price)}</p><p class='muted'>Ctrl+G fuses them.</p>")
    else:
        parts.append("<p class='head'>NOT FUSIBLE</p><p class='bad'>These nodes can't be one region.</p>")
        parts.append(f"<p>{escape(offer.reason)}</p>")
        if offer.offending:
            parts.append(f"<p class='muted'>In the way: <b>{escape(offer.offending)}</b></p>")
    return "".join(parts)


def region_html(document: Document, region: Region, node: str) -> str:
    parts = [f"<p class='title'>{escape(region.id)}: {escape(region_title(region, document.graph))}</p>"]
    if region.workload is not None:
        parts.append(f"<p class='muted'>{escape(workload_line(region.workload))}</p>")
    parts += ["<p class='head'>WHY</p>", f"<p>{escape(reason(document, region, node))}</p>"]
    if region.workload is not None:
        parts += _speed(document, region)
        w = region.workload
        rows = [
            ("Identity", escape(w.key)),
            ("Arithmetic", f"{w.flops / 1e9:,.3g} GFLOP"),
            ("Least traffic", nbytes(w.bytes)),
            ("Intensity", f"{w.flops / w.bytes:,.3g} FLOP/byte"),
        ]
        parts += ["<p class='head'>WORKLOAD</p>", table(rows)]
    refused = [r for r in document.plan.refusals if r.anchor in region.nodes]
    if refused:
        parts.append("<p class='head'>NOT FUSED</p>")
        parts += [
            f"<p><b>{escape(r.node)}</b> <span class='muted'>{escape(r.reason)}</span></p>"
            for r in refused[:MOST_NODES]
        ]
    ops = [(escape(document.graph.node(n).op), escape(n)) for n in region.nodes[:MOST_NODES]]
    parts += [f"<p class='head'>{len(region.nodes)} NODES</p>", table(ops)]
    return "".join(parts)


def _speed(document: Document, region: Region) -> list[str]:
    run = document.workload_run(region)
    if run is None:
        return [
            "<p class='head'>SPEED</p>",
            "<p class='muted'>Not measured. Press Tune.</p>",
            *_estimate(document, region),
        ]
    said = document.run.provenance
    rows = []
    if run.best is not None:
        assert region.workload is not None
        best = run.best
        rows += [
            ("Best", f"<b>{escape(micros(best.us))}</b> <span class='muted'>{said}</span>"),
            ("Rate", escape(rate(region.workload, best.us))),
            ("Spread", escape(spread(best))),
            ("Error", f"{best.relative_l2:.1e} relative L2, {best.max_abs:.1e} largest"),
            ("Kernel", escape(best.candidate if best.source == "template" else f"{best.source} {best.detail}")),
        ]
    if run.vendor is not None:
        rows.append(
            (
                "Vendor",
                f"{escape(micros(run.vendor.us))} <span class='muted'>{escape(run.vendor.source)}, {said}</span>",
            )
        )
        rows.append(("", f"<span class='muted'>{escape(run.vendor.detail)}</span>"))
    elif run.best is not None:
        rows.append(("Vendor", "<span class='muted'>not compared</span>"))
    if run.speedup is not None:
        rows.append(("Speed-up", f"<b class='{'good' if run.speedup >= 1 else 'bad'}'>{ratio(run.speedup)}</b>"))
    rows.append(
        (
            "Candidates",
            f"{run.measured} measured, {run.failed} failed, {run.skipped} ranked out, {run.illegal} not legal",
        )
    )
    return [f"<p class='head'>SPEED ({escape(run.state)})</p>", table(rows)]


def _estimate(document: Document, region: Region) -> list[str]:
    estimate = document.estimate(region)
    if estimate is None:
        return []
    rows = [
        ("Estimate", f"{escape(micros(estimate.us))} <span class='muted'>by the ranking rules</span>"),
        ("First try", escape(estimate.candidate)),
        ("Because", f"<span class='muted'>{escape(estimate.why)}</span>"),
    ]
    return [table(rows)]


def node_html(graph: Graph, node: Node) -> str:
    rows = [(f"in {i}", _tensor(graph, t)) for i, t in enumerate(node.inputs) if t]
    rows += [(f"out {i}", _tensor(graph, t)) for i, t in enumerate(node.outputs) if t]
    parts = [
        f"<p class='title'>{escape(node.op)}</p><p class='muted'>{escape(node.name)}</p>",
        "<p class='head'>TENSORS</p>",
        table(rows),
    ]
    if node.attrs:
        attrs = [(escape(k), escape(_short(v))) for k, v in sorted(node.attrs.items())]
        parts += ["<p class='head'>ATTRIBUTES</p>", table(attrs)]
    return "".join(parts)


def _tensor(graph: Graph, name: str) -> str:
    kind = graph.types.get(name)
    said = f"{kind.dtype} {shape(kind.shape)}" if kind else "type unknown"
    return (
        f"{escape(said)}<br><span class='muted'>{escape(name)}{', constant' if name in graph.constants else ''}</span>"
        f"{_statistics(graph.constants[name]) if name in graph.constants else ''}"
    )


def _statistics(values: np.ndarray) -> str:
    """Range, mean, deviation and zeros of a constant; of a large one by an even sample."""
    if not values.size or values.dtype.kind not in "fiu":
        return ""
    step = max(1, values.size // SAMPLE)
    some = values.reshape(-1)[::step].astype(np.float64) if step == 1 else values.flat[::step].astype(np.float64)
    about = "about " if step > 1 else ""
    line = (
        f"{about}{some.min():.3g} to {some.max():.3g}, mean {some.mean():.3g}, deviation {some.std():.3g}, "
        f"{np.mean(some == 0):.1%} zeros"
    )
    return f"<br><span class='muted'>{line}</span>"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."


def table(rows: "list[tuple[str, str]]") -> str:
    """Label and value; both are HTML already."""
    return "<table>" + "".join(f"<tr><td class='label'>{a}</td><td>{b}</td></tr>" for a, b in rows) + "</table>"
