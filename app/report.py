"""One HTML page of the whole project, complete in itself: facts, graph, plan, every figure, the charts."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QRectF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QFileDialog

from app.background import Job
from app.charts import gains
from app.charts.picture import Context
from app.charts.view import ChartView
from app.document import Document
from app.exporting import gpu_title
from app.format import micros, ratio, workload_line
from app.graph.item import GraphItem
from app.graph.model import region_title
from app.panels.chart_facts import whole_context
from app.panels.charts import CHARTS, PLANS, RUNS
from app.panels.region_html import reproduce
from app.theme import theme
from core.errors import BoltError, RecordError
from core.files import write_atomically

if TYPE_CHECKING:
    from app.window import MainWindow

IN_REPORT = ("Regions against the vendor", "Latency by region", "Roofline", gains.TITLE, PLANS, RUNS)
WIDTH = 2000  # pixels of the graph's picture
CHART = (1000, 320)


class ReportControl(QObject):
    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        window.commands["report"].triggered.connect(self.ask)

    def ask(self) -> None:
        document = self.window.document
        if document is None:
            return
        name = f"{document.title}-report.html"
        chosen, _ = QFileDialog.getSaveFileName(self.window, "Write the report", name, "Web pages (*.html)")
        if not chosen:
            return
        path = Path(chosen if chosen.endswith(".html") else f"{chosen}.html")
        gpu = self.window.tuning.gpu
        self.window.background.start(
            f"writing {path.name}",
            _context(document, gpu),
            lambda found: self._write(path, document, *found),
            self.window.messages.show_error,
        )

    def _write(self, path: Path, document: Document, context: Context, missing: str) -> None:
        try:
            write_atomically(path, report_html(document, context))
        except OSError as error:
            remedy = "choose another folder, or make room on the disk"
            what = f"can't write the report to {path}: {error.strerror or error}"
            self.window.messages.show_error(BoltError(what, remedy))
            return
        if missing:
            self.window.messages.show_text("warning", f"The report is in {path}, without fusion gains: {missing}")
        else:
            self.window.messages.show_text("done", f"The report is in {path}.")


def _context(document: Document, gpu: str) -> Callable[[Job], tuple[Context, str]]:
    """What the charts need, and why some of it is missing: records that can't be read must not cost the report."""
    wanted = whole_context(document, gpu)

    def work(job: Job) -> tuple[Context, str]:
        try:
            return wanted(job), ""
        except RecordError as error:
            return Context(gpu), str(error)

    return work


def report_html(document: Document, context: Context) -> str:
    """The page's text; figures that nobody measured are left out, the others say where they come from."""
    from jinja2 import Environment, FileSystemLoader

    gpu = context.gpu
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    said = document.run.provenance
    done = any(w.best for w in document.run.workloads.values())
    provenance = (
        f"Figures are {said}, of {document.run.gpu}; each region timed alone." if done else "Nothing was measured."
    )
    return environment.get_template("report.html.j2").render(
        title=document.title,
        subtitle=document.session.source,
        facts=_facts(document, gpu),
        graph=base64.b64encode(_graph(document)).decode(),
        provenance=provenance,
        regions=[_region(document, r) for r in document.plan.regions],
        charts=_charts(document, context),
        alone=document.plan.left_alone,
        command=reproduce(document, gpu),
    )


def _facts(document: Document, gpu: str) -> list[tuple[str, str]]:
    session, plan = document.session, document.plan
    return [
        ("GPU", gpu_title(gpu)),
        ("Batch", str(session.batch) if session.batch is not None else "the model's own"),
        ("Type", str(session.dtype)),
        ("Nodes", str(len(document.graph.nodes))),
        ("Regions", f"{len(plan.regions)}, {len(plan.workloads)} different workloads"),
        ("Plan", document.plan_title),
    ]


def _region(document: Document, region: Any) -> dict[str, str]:
    run = document.workload_run(region)
    best, vendor, speedup = (run.best, run.vendor, run.speedup) if run else (None, None, None)
    return {
        "id": region.id,
        "title": region_title(region, document.graph),
        "workload": workload_line(region.workload) if region.workload else "",
        "ours": micros(best.us) if best else "",
        "vendor": micros(vendor.us) if vendor else "",
        "speedup": ratio(speedup) if speedup else "",
        "verdict": "" if speedup is None else "good" if speedup >= 1 else "bad",
        "kernel": best.candidate if best else "",
    }


def _graph(document: Document) -> bytes:
    """The graph as a PNG, in light colours."""
    assert document.placement is not None
    item = GraphItem(document, document.placement, theme("light"))
    bounds = item.boundingRect()
    image = QImage(WIDTH, max(1, round(WIDTH * bounds.height() / bounds.width())), QImage.Format.Format_RGB32)
    image.fill(theme("light")["canvas"])
    painter = QPainter(image)
    item.paint_all(painter, QRectF(image.rect()))
    painter.end()
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    return bytes(data.data())


def _charts(document: Document, context: Context) -> list[tuple[str, Any]]:
    from markupsafe import Markup

    found = []
    for name in IN_REPORT:
        picture = CHARTS[name](document, context)
        if not picture.marks:
            continue
        view = ChartView(theme("light"))
        view.resize(*CHART)
        view.draw(picture)
        svg = view.svg().decode()
        found.append(
            (picture.title, Markup(svg[svg.index("<svg") :]))
        )  # our own drawing; names in it are escaped by Qt
        view.deleteLater()
    return found
