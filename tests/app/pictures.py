"""Draws the pictures of the README without a display: `python -m tests.app.pictures [NAME...]`, all of them by default.

What they show was measured: the shipped H200 runs are replayed, machine code is compiled here. Look at each afterwards.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app import edits, theme, tuning
from app.graph.item import Mode
from app.listing import Form
from app.panels.charts import PLANS
from app.window import MainWindow
from core.paths import RESOURCES
from tests.app.screenshot import wait

SIZE = (1440, 900)
ASCENDING = Qt.SortOrder.AscendingOrder


@contextmanager
def shown(name: str, model: str = "", batch: str = "", dark: bool = False, lower: int = 250) -> Iterator[MainWindow]:
    """A window with a model, `lower` pixels of it for the panels below; saved as a picture when the body is done."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    chosen = theme.theme("dark" if dark else "light")
    theme.apply(app, chosen)
    window = MainWindow(chosen)
    window.canvas.view.motion.wanted = False
    window.resize(*SIZE)
    window.show()
    window.resizeDocks([window.docks[2]], [lower], Qt.Orientation.Vertical)
    if model:
        window.open(model)
        wait(app, lambda: window.document is not None)
    if batch:
        first, box = window.document, window.commands.batch
        box.setCurrentText(batch)
        box.activated.emit(box.currentIndex())
        wait(app, lambda: window.document is not first)
    yield window
    settle(window)
    folder = RESOURCES if name == "screenshot" else RESOURCES / "screenshots"
    window.messages.hide()
    window.grab().save(str(folder / f"{name}.png"))
    window.documents.all.clear()
    window.close()


def settle(window: MainWindow) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    wait(app, lambda: not window.background.busy)
    wait(app, lambda: False, 0.4)


def replay(window: MainWindow) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication) and window.document is not None
    window.tuning.start(tuning.best_replay(window.document.plan, "h200", 0), replayed=True)
    wait(app, lambda: not window.tuning.running)
    window.messages.hide()
    settle(window)


def select(window: MainWindow, region: str) -> None:
    assert window.document is not None
    window.document.select_region(next(r for r in window.document.plan.regions if r.id == region))
    window.zoom_to_selection()


def main_picture() -> None:
    with shown("screenshot", "resnet18", "32") as window:
        replay(window)
        window.canvas.legend.mode.setCurrentText(Mode.SPEEDUP)
        window.candidates.table.sortByColumn(window.candidates.model.column("Time"), ASCENDING)


def region() -> None:
    with shown("region", "resnet18", "32") as window:
        replay(window)
        select(window, "r3")
        window.candidates.only_selected.setChecked(True)
        window.candidates.table.sortByColumn(window.candidates.model.column("Time"), ASCENDING)


def charts() -> None:
    with shown("charts", "resnet50", "32", dark=True, lower=420) as window:
        replay(window)
        window.bottom.setCurrentWidget(window.charts)
        window.charts.panes[1].kind.setCurrentText("Roofline")


def plans() -> None:
    """The automatic plan against one without the residual additions in the kernels."""
    with shown("plans", "resnet18", "32", lower=360) as window:
        replay(window)
        document = window.document
        assert document is not None
        adds = [r.nodes for r in document.plan.regions if "add" in str(r.workload)]
        for nodes in adds:
            document.select_names(nodes)
            edits.split(document)
        edits.keep(document, "residuals apart")
        document.select([])
        window.regions.list.scrollToTop()
        window.bottom.setCurrentWidget(window.charts)
        window.charts.panes[0].kind.setCurrentText(PLANS)
        window.charts.panes[0].plans[1].setCurrentText("residuals apart")


def source() -> None:
    with shown("source", "resnet18", "32", lower=420) as window:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        replay(window)
        select(window, "r3")
        window.bottom.setCurrentWidget(window.source)
        window.source.form.setCurrentIndex(window.source.form.findData(Form.SASS))
        settle(window)
        if window.source.act.isVisible():
            window.source.act.click()
        wait(app, lambda: bool(window.source.text.toPlainText()), 600)
        lines = window.source.text.toPlainText().splitlines()
        at = next((i for i, line in enumerate(lines) if "HGMMA" in line), 0)
        window.source.text.verticalScrollBar().setValue(max(0, at - 4))


def folded() -> None:
    with shown("folded", "bert-base") as window:
        if window.document is not None and not window.document.model.folds:
            window.documents.fold(True)


def records() -> None:
    with shown("records", "resnet18", "32", lower=360) as window:
        window.bottom.setCurrentWidget(window.records)


def welcome() -> None:
    with shown("welcome"):
        pass


PICTURES: dict[str, Callable[[], None]] = {
    "screenshot": main_picture, "region": region, "charts": charts, "plans": plans, "source": source,
    "folded": folded, "records": records, "welcome": welcome,
}  # fmt: skip


def main() -> None:
    _app = QApplication([])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BOLT_CONFIG"] = os.environ["BOLT_CACHE"] = folder  # nobody's recent files, layout and records
        for name in sys.argv[1:] or PICTURES:
            PICTURES[name]()


if __name__ == "__main__":
    main()
