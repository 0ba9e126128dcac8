"""Prints how fast the window is: `QT_QPA_PLATFORM=offscreen python -m tests.app.bench_window [--events N] [--nodes N]`.

The event loop's longest stall is the longest gap between two beats of a 5 ms timer.
"""

import argparse
import os
import random
import threading
import time
from contextlib import nullcontext

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
from PySide6.QtCore import QEventLoop, QRectF, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app import theme
from app.document import Document
from app.graph.layout import never
from app.loading import Opened, open_session
from app.window import MainWindow
from core.fusion.plan import FusionPlan, Kind, Region
from core.graph.ir import Graph, Node, TensorType
from core.session import Session
from core.tuner.events import Event
from templates.types import DType
from tests.app import simulated

OPS = ("Conv", "Relu", "Add", "MatMul", "Concat", "Mul", "Softmax", "Transpose")


class Heartbeat:
    """The longest time that the event loop did not come round."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.last = time.perf_counter()
        self.timer = QTimer()
        self.timer.setTimerType(Qt.TimerType.PreciseTimer)
        self.timer.setInterval(5)
        self.timer.timeout.connect(self._beat)
        self.timer.start()

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self.last)
        self.last = now

    def reset(self) -> None:
        self.longest, self.last = 0.0, time.perf_counter()


def branchy(count: int, seed: int = 1) -> Graph:
    """A chain with parallel branches and residual skips, as a network search or a detector makes them."""
    rng = random.Random(seed)
    nodes = [Node("n0", "Conv", ("x",), ("t0",))]

    def add(*inputs: str) -> str:
        i = len(nodes)
        nodes.append(Node(f"n{i}", rng.choice(OPS), inputs, (f"t{i}",)))
        return f"t{i}"

    current = "t0"
    while len(nodes) < count:
        kind = rng.random()
        if kind < 0.45:
            current = add(current)
        elif kind < 0.75:
            ends = []
            for _ in range(rng.randint(2, 4)):
                end = current
                for _ in range(rng.randint(1, 6)):
                    end = add(end)
                ends.append(end)
            current = add(*ends)
        else:
            end = current
            for _ in range(rng.randint(2, 6)):
                end = add(end)
            current = add(end, current)
    kind = TensorType(DType.F16, (32, 64, 56, 56))
    types = {t: kind for n in nodes for t in n.outputs} | {"x": kind}
    return Graph("branchy", tuple(nodes), ("x",), (nodes[-1].output,), {}, types)


def plan_of(graph: Graph) -> FusionPlan:
    """Two nodes a region, in order: what is drawn, not what would run."""
    names = [n.name for n in graph.nodes]
    pairs = [tuple(names[i : i + 2]) for i in range(0, len(names), 2)]
    regions = tuple(Region(f"r{i}", Kind.POINTWISE, p, (), (), "made for the bench") for i, p in enumerate(pairs))
    return FusionPlan(graph.name, regions)


def spin(until, most_s: float = 120.0) -> float:  # type: ignore[no-untyped-def]
    """Run the event loop until a condition holds; returns the seconds it took."""
    start = time.perf_counter()
    app = QApplication.instance()
    assert app is not None
    while not until() and time.perf_counter() - start < most_s:
        app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 20)
    return time.perf_counter() - start


def say(what: str, value: float, unit: str = "ms") -> None:
    print(f"{what:58}{value:9.1f} {unit}", flush=True)


def bench_opening(window: MainWindow, beat: Heartbeat) -> None:
    start = time.perf_counter()
    beat.reset()
    window.open("resnet50")
    spin(lambda: window.document is not None)
    window.canvas.view.viewport().repaint()
    say("resnet50, open to painted", (time.perf_counter() - start) * 1e3)
    spin(lambda: False, 0.3)
    say("  longest stall", beat.longest * 1e3)


def bench_stream(window: MainWindow, beat: Heartbeat, wanted: int) -> None:
    assert window.document is not None
    per = wanted // (4 * len(window.document.plan.workloads)) + 1
    events: list[Event] = list(simulated.events(window.document.plan, per))
    for page, name in ((window.candidates, "table"), (window.charts, "charts"), (window.log, "log")):
        window.bottom.setCurrentWidget(page)
        window.candidates.table.sortByColumn(window.candidates.model.column("Time"), Qt.SortOrder.AscendingOrder)
        spin(lambda: False, 0.2)
        job = simulated.Job(events)
        beat.reset()
        start = time.perf_counter()
        window.tuning.start(lambda job=job: nullcontext(job), True)
        spin(lambda: not window.tuning.running)
        spin(lambda: False, 1.0)
        say(f"{len(events):,} events, {name} shown: all taken", (time.perf_counter() - start - 1) * 1e3)
        say("  longest stall", beat.longest * 1e3)


def bench_table(window: MainWindow) -> None:
    model = window.candidates.model
    assert window.document is not None
    rows = window.document.run.rows
    while len(rows) < 50_000:
        rows.extend(rows[: 50_000 - len(rows)])
    model.reset()
    for column in map(model.column, ("Time", "Candidate", "Reason", "Tile")):
        start = time.perf_counter()
        window.candidates.table.sortByColumn(column, Qt.SortOrder.DescendingOrder)
        QApplication.processEvents()
        say(f"50,000 rows sorted by {model.columns[column].title}", (time.perf_counter() - start) * 1e3)
    start = time.perf_counter()
    window.candidates.filter.setText("256x64")
    QApplication.processEvents()
    say("50,000 rows filtered", (time.perf_counter() - start) * 1e3)
    window.candidates.filter.clear()


def bench_graph(window: MainWindow, beat: Heartbeat, count: int) -> None:
    graph = branchy(count)
    session = Session(graph, plan_of(graph), graph.name, graph.name, None, DType.F16)
    done: list[object] = []

    def lay_out() -> None:
        done.append(open_session(session, None, False, 1.5, never))

    beat.reset()
    start = time.perf_counter()
    thread = threading.Thread(target=lay_out)
    thread.start()
    spin(lambda: bool(done))
    thread.join()
    say(f"{count:,} nodes: layout beside the window", (time.perf_counter() - start) * 1e3)
    say("  longest stall", beat.longest * 1e3)
    beat.reset()
    start = time.perf_counter()
    opened = done[0]
    assert isinstance(opened, Opened)
    window.documents.add(Document(session, None, opened))
    view = window.canvas.view
    view.viewport().repaint()
    say(f"{count:,} nodes: shown and painted", (time.perf_counter() - start) * 1e3)
    spin(lambda: False, 0.5)
    say("  longest stall", beat.longest * 1e3)
    for scale in (None, 0.1, 0.2, 0.3, 0.5, 1.0):
        if scale is not None:
            view.zoom_at(view.viewport().rect().center().toPointF(), scale / view.zoom)
        view.viewport().repaint()
        times = []
        for _ in range(7):
            start = time.perf_counter()
            view.viewport().repaint()
            times.append(time.perf_counter() - start)
        say(f"  full redraw at zoom {view.zoom:.3f}", float(np.median(times)) * 1e3)
    assert view.item is not None
    bounds = view.item.boundingRect()
    start = time.perf_counter()
    hit = view.item.inside(QRectF(bounds.left(), bounds.top(), bounds.width() / 2, bounds.height() / 2))
    say(f"  frame over {len(hit):,} nodes", (time.perf_counter() - start) * 1e3)


def memory_mb() -> float:
    """What the process holds now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    args = parser.parse_args()
    start = time.perf_counter()
    app = QApplication([])
    chosen = theme.theme("light")
    theme.apply(app, chosen)
    window = MainWindow(chosen)
    window.resize(1440, 900)
    window.show()
    app.processEvents()
    say("window built and shown, after imports", (time.perf_counter() - start) * 1e3)
    beat = Heartbeat()
    window.documents.warm_up()
    spin(lambda: not window.background.busy)
    bench_opening(window, beat)
    bench_stream(window, beat, args.events)
    bench_table(window)
    bench_graph(window, beat, args.nodes)
    say("memory", memory_mb(), "MB")
    window.documents.all.clear()
    window.close()


if __name__ == "__main__":
    main()
