"""Prints how fast the window is: `QT_QPA_PLATFORM=offscreen python -m tests.app.bench_window [--events N] [--nodes N]`.

Every line has the wall time, the CPU time of the whole process, and the limit it is held to. On a machine that others
use too only the CPU time says something. The event loop's longest stall is the longest gap between two beats of a 5 ms
timer, its CPU time that of the GUI's thread. What is repeated is the median.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from math import cos, pi, sin

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEvent, QEventLoop, QPoint, QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication

from app import theme
from app.document import Document
from app.graph.layout import never
from app.graph.view import GraphView
from app.loading import Opened, open_session
from app.window import MainWindow
from core.fusion.plan import FusionPlan, Kind, Region
from core.graph.ir import Graph, Node, TensorType
from core.session import Session
from core.tuner.events import Event
from templates.types import DType
from tests.app import simulated

OPS = ("Conv", "Relu", "Add", "Sigmoid", "Concat", "Mul", "Softmax", "Transpose")


# Prints its CPU seconds once the window is on the screen, then closes it.
COMMAND = """
import time
from PySide6.QtCore import QTimer
from app import start, window
shown = window.MainWindow.showEvent
def told(self):
    print(time.process_time(), flush=True)
    self.close()
def show(self, event):
    shown(self, event)
    QTimer.singleShot(0, lambda: told(self))
window.MainWindow.showEvent = show
start.run([])
"""


class Heartbeat:
    """The longest time that the event loop did not come round, and the most that its thread worked meanwhile."""

    def __init__(self) -> None:
        self.reset()
        self.timer = QTimer()
        self.timer.setTimerType(Qt.TimerType.PreciseTimer)
        self.timer.setInterval(5)
        self.timer.timeout.connect(self._beat)
        self.timer.start()

    def _beat(self) -> None:
        now, work = time.perf_counter(), time.thread_time()
        self.longest = max(self.longest, now - self.last)
        self.busiest = max(self.busiest, work - self.work)
        self.last, self.work = now, work

    def reset(self) -> None:
        self.longest = self.busiest = 0.0
        self.last, self.work = time.perf_counter(), time.thread_time()

    def say(self, limit_ms: float | None = 100) -> None:
        say("  longest stall of the event loop", self.longest, self.busiest, limit_ms)


class Meter:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def say(self, what: str, limit_ms: float | None = None) -> None:
        say(what, time.perf_counter() - self.wall, time.process_time() - self.cpu, limit_ms)


def say(what: str, wall_s: float, cpu_s: float, limit_ms: float | None = None) -> None:
    limit = f"   limit {limit_ms:,.0f} ms" if limit_ms else ""
    print(f"{what:52}{wall_s * 1e3:9.1f} ms{cpu_s * 1e3:9.1f} ms CPU{limit}", flush=True)


def repeated(what: str, action: Callable[[], object], limit_ms: float | None = None, times: int = 7) -> None:
    """The median of several runs, after one that fills caches."""
    action()
    taken = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    say(what, statistics.median(w for w, _ in taken), statistics.median(c for _, c in taken), limit_ms)


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


def spin(until: Callable[[], bool], most_s: float = 120.0) -> None:
    """Run the event loop until a condition holds. It sleeps until an event comes, as the window's own loop does: a busy
    one would keep the threads beside it waiting.
    """
    start = time.perf_counter()
    while not until() and time.perf_counter() - start < most_s:
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)


def pause(seconds: float) -> None:
    end = time.perf_counter() + seconds
    spin(lambda: time.perf_counter() >= end)


def bench_start() -> None:
    """In a process of its own, as the command starts it."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        cpu = float(process.stdout.readline())
        wall = time.perf_counter() - begin
    say("from the command to a shown window", wall, cpu, 1500)


def bench_opening(window: MainWindow, beat: Heartbeat) -> None:
    meter = Meter()
    beat.reset()
    window.open("resnet50")
    spin(lambda: window.document is not None)
    window.canvas.view.viewport().repaint()
    meter.say("resnet50, open to painted", 500)
    pause(0.3)
    beat.say()


def bench_stream(window: MainWindow, beat: Heartbeat, wanted: int) -> None:
    assert window.document is not None
    per = wanted // (4 * len(window.document.plan.workloads)) + 1
    events: list[Event] = list(simulated.events(window.document.plan, per))
    for page, name in ((window.candidates, "table"), (window.charts, "charts"), (window.log, "log")):
        window.bottom.setCurrentWidget(page)
        window.candidates.table.sortByColumn(4, Qt.SortOrder.AscendingOrder)
        pause(0.2)
        job = simulated.Job(events)
        beat.reset()
        meter = Meter()
        window.tuning.start(lambda job=job: nullcontext(job), True)
        spin(lambda: not window.tuning.running)
        meter.say(f"{len(events):,} events, {name} shown: all taken")
        pause(1.0)
        beat.say()


def bench_table(window: MainWindow) -> None:
    panel = window.candidates
    assert window.document is not None
    window.bottom.setCurrentWidget(panel)
    rows = window.document.run.rows
    while len(rows) < 50_000:
        rows.extend(rows[: 50_000 - len(rows)])
    panel.model.reset()
    for column in (4, 2, 9, 11):
        order = iter((Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder) * 2)

        def sort(column: int = column, order: "iter[Qt.SortOrder]" = order) -> None:
            panel.table.sortByColumn(column, next(order))
            QApplication.processEvents()

        repeated(f"50,000 rows sorted by {panel.model.columns[column].title}", sort, 100, 3)
    bar, port = panel.table.verticalScrollBar(), panel.table.viewport()
    assert bar.maximum() > 0, "there is nothing to scroll"
    places = iter(range(0, bar.maximum(), max(1, bar.maximum() // 200)))

    def scroll() -> None:
        bar.setValue(next(places))
        port.repaint()

    repeated("50,000 rows, a step of the scroll bar", scroll, 16, 100)
    words = iter(("256x64", "") * 4)

    def search() -> None:
        panel.filter.setText(next(words))
        QApplication.processEvents()

    repeated("50,000 rows filtered, or all again", search, 100, 5)
    panel.filter.clear()


def drag(view: GraphView, places: list[QPoint]) -> list[float]:
    """An Alt-drag through the points; the seconds of each move with what it paints, and of the release."""
    left, none, alt = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton, Qt.KeyboardModifier.AltModifier
    steps = [(QEvent.Type.MouseButtonPress, places[0], left)]
    steps += [(QEvent.Type.MouseMove, p, none) for p in places[1:]]
    steps += [(QEvent.Type.MouseButtonRelease, places[-1], left)]
    taken = []
    for kind, place, button in steps:
        at, held = QPointF(place), left if kind is not QEvent.Type.MouseButtonRelease else none
        start = time.process_time()
        QApplication.sendEvent(view.viewport(), QMouseEvent(kind, at, view.mapToGlobal(at), button, held, alt))
        view.viewport().repaint()
        taken.append(time.process_time() - start)
    return taken[1:]


def bench_lasso(window: MainWindow) -> None:
    """A line of some hundred corners round most of the graph, drawn with the mouse over all of it."""
    view = window.canvas.view
    view.fit()
    port = view.viewport().rect()
    middle, wide, high = port.center(), port.width() * 0.48, port.height() * 0.48
    turns = [2 * pi * i / 400 for i in range(400)]
    waves = [(t, 1 - 0.1 * (1 + sin(9 * t))) for t in turns]
    places = [QPoint(round(middle.x() + wide * r * cos(t)), round(middle.y() + high * r * sin(t))) for t, r in waves]
    moves = drag(view, places)
    line = [view.mapToScene(p) for p in view.lasso.points]
    assert view.item is not None and window.document is not None and len(window.document.selection) > 1000
    print(f"  lasso of {len(line)} corners took {len(window.document.selection):,} nodes")
    repeated("  lasso, hit test", lambda: view.item and view.item.enclosed(line), 16)
    say("  lasso, a move with its painting (CPU, median)", *[statistics.median(moves[:-1])] * 2, 16)
    say("  lasso, the release: hit test, selection, panels", *[moves[-1]] * 2, 100)


def bench_graph(window: MainWindow, beat: Heartbeat, count: int) -> None:
    graph = branchy(count)
    session = Session(graph, plan_of(graph), graph.name, graph.name, None, DType.F16)
    done: list[object] = []

    def lay_out() -> None:
        done.append(open_session(session, None, False, 1.5, never))

    beat.reset()
    whole = Meter()
    thread = threading.Thread(target=lay_out)
    thread.start()
    spin(lambda: bool(done))
    thread.join()
    opened = done[0]
    assert isinstance(opened, Opened)
    window.documents.add(Document(session, None, opened))
    view = window.canvas.view
    view.viewport().repaint()
    whole.say(f"{count:,} nodes, open to painted", 2000)
    pause(0.5)
    beat.say()
    for scale in (None, 0.1, 0.2, 0.3, 0.5, 1.0):
        if scale is not None:
            view.zoom_at(view.viewport().rect().center().toPointF(), scale / view.zoom)
        repeated(f"  full redraw at zoom {view.zoom:.3f}", view.viewport().repaint, 16)
    assert view.item is not None
    bounds = view.item.boundingRect()
    half = QRectF(bounds.left(), bounds.top(), bounds.width() / 2, bounds.height() / 2)
    repeated("  frame over a quarter, hit test", lambda: view.item and view.item.inside(half), 16)
    bench_lasso(window)
    say_memory("memory with the large model", 400)


def say_memory(what: str, limit_mb: float | None = None) -> None:
    limit = f"   limit {limit_mb:,.0f} MB" if limit_mb else ""
    print(f"{what:52}{memory_mb():9.1f} MB{limit}", flush=True)


def memory_mb() -> float:
    """What the process holds now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def made_window() -> tuple[MainWindow, Heartbeat]:
    meter = Meter()
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    chosen = theme.theme("light")
    theme.apply(app, chosen)
    window = MainWindow(chosen)
    window.canvas.view.motion.wanted = False
    window.resize(1440, 900)
    window.show()
    app.processEvents()
    meter.say("window built and shown, after imports")
    window.documents.warm_up()
    beat = Heartbeat()
    spin(lambda: not window.background.busy)
    return window, beat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--only-graph", action="store_true", help="the large model alone, in this process")
    args = parser.parse_args()
    if args.only_graph:
        window, beat = made_window()
        bench_graph(window, beat, args.nodes)
    else:
        bench_start()
        window, beat = made_window()
        bench_opening(window, beat)
        bench_stream(window, beat, args.events)
        bench_table(window)
        say_memory("memory with all that")
        sys.stdout.flush()
        command = [sys.executable, "-m", "tests.app.bench_window", "--only-graph"]
        # A process of its own, so that its memory is the large model's and the window's alone.
        subprocess.run([*command, "--nodes", str(args.nodes)], check=True)
    window.documents.all.clear()
    window.close()


if __name__ == "__main__":
    main()
