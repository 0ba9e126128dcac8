"""Charts as data, then drawn, hovered and exported by the real panel."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app import edits
from app.charts import compare, regions
from app.charts.picture import Bars, Context, Dots, Line, Picture
from app.charts.view import log_ticks
from app.document import Document
from app.panels.charts import CHARTS
from app.run import Run
from app.window import MainWindow
from core.errors import BoltError
from tests.app import simulated
from tests.app.conftest import WAIT_MS

H200 = Context("h200")


@pytest.fixture
def tuned(document: Document) -> Document:
    document.start_run(replayed=True)
    document.apply(list(simulated.events(document.plan)))
    return document


def bars(picture: Picture) -> dict[str, Bars]:
    return {m.name: m for m in picture.marks if isinstance(m, Bars)}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_without_figures_says_what_to_do(document: Document, name: str) -> None:
    picture = CHARTS[name](document, H200)
    assert picture.marks == ()
    assert picture.empty.endswith(".")


def test_regions_stand_beside_the_vendor_with_their_spread(tuned: Document) -> None:
    picture = regions.against_vendor(tuned, H200)
    works = [r for r in tuned.plan.regions if r.workload]
    assert [n for _, n in picture.names] == [r.id for r in works]
    found = bars(picture)
    assert set(found) == {"ours, replayed", "vendor, replayed"}
    ours = found["ours, replayed"]
    assert len(ours.height) == len(works) == len(ours.spread)
    assert all(low <= h <= high for h, (low, high) in zip(ours.height, ours.spread, strict=True))
    assert len(picture.csv().splitlines()) == len(works) + 1
    assert "replayed" in picture.tips[0].text and "cudnn" in picture.tips[0].text


def test_estimates_are_hatched(document: Document, window: MainWindow, qtbot: QtBot) -> None:
    shown = window.document
    assert shown is not None
    qtbot.waitUntil(lambda: bool(shown.estimates), timeout=WAIT_MS)
    (only,) = bars(regions.against_vendor(shown, H200)).values()
    assert only.name == "ours, estimated" and only.hatched


def test_the_waterfall_adds_up(tuned: Document) -> None:
    picture = regions.waterfall(tuned, H200)
    steps, total = bars(picture)["a region, ours"], bars(picture)["all regions, ours"]
    assert steps.base[0] == 0
    assert [b + h for b, h in zip(steps.base, steps.height, strict=True)][:-1] == pytest.approx(list(steps.base[1:]))
    assert total.height[0] == pytest.approx(sum(steps.height))
    assert f"{len(tuned.plan.regions) - len(steps.x)} regions are not timed" in picture.note


def test_no_region_of_the_roofline_is_off_its_workload(tuned: Document) -> None:
    picture = regions.roofline(tuned, H200)
    ours = next(m for m in picture.marks if isinstance(m, Dots) and m.name.startswith("ours"))
    works = {k: r[0].workload for k, r in tuned.plan.workloads.items()}
    assert len(ours.x) == len(works)
    assert sorted(ours.x) == pytest.approx(sorted(w.flops / w.bytes for w in works.values() if w))
    assert any(isinstance(m, Line) and "roof" in m.name for m in picture.marks)
    assert len(next(m for m in picture.marks if m.name == "candidates").x) > len(ours.x)


def test_ticks_of_a_logarithmic_axis() -> None:
    assert [text for _, text in log_ticks(0.9, 2.1)] == ["10", "20", "50", "100"]
    assert [at for at, _ in log_ticks(-1, 4)] == [-1, 0, 1, 2, 3, 4]
    assert len(log_ticks(-900.0, 700.0)) == 31
    assert log_ticks(300.0, 700.0) == []


def test_the_best_so_far_never_rises(tuned: Document) -> None:
    picture = regions.history(tuned, H200)
    line = next(m for m in picture.marks if isinstance(m, Line) and m.step)
    assert list(line.y) == sorted(line.y, reverse=True)
    assert len(picture.tips) == len(picture.rows)


def test_an_edited_plan_is_compared_with_the_automatic_one(tuned: Document) -> None:
    assert "Change the plan" in compare.plans(tuned, H200).empty
    tuned.select_region(tuned.plan.regions[0])
    edits.split(tuned)
    picture = compare.plans(tuned, H200)
    assert [n for _, n in picture.names] == ["automatic", "edited"]
    assert "1 without a figure" in picture.note
    assert {r[0] for r in picture.rows} == {"automatic", "edited"}


def test_the_run_before_is_compared_with_this_one(tuned: Document) -> None:
    before: Run = tuned.run
    tuned.start_run(replayed=False)
    tuned.apply(list(simulated.events(tuned.plan, seed=11)))
    assert tuned.baseline is before
    found = bars(compare.runs(tuned, H200))
    assert set(found) == {"before, replayed", "now, measured"}
    assert list(found["before, replayed"].height) != list(found["now, measured"].height)


def test_two_gpus_say_what_is_recorded_and_what_estimated(document: Document) -> None:
    keys = list(document.plan.workloads)
    context = Context("h200", "a100", {k: (10.0, True) for k in keys}, {k: (30.0, False) for k in keys})
    found = bars(compare.gpus(document, context))
    assert {n: b.hatched for n, b in found.items()} == {"H200, recorded": False, "A100-SXM4-80GB, estimated": True}


@pytest.fixture
def shown(window: MainWindow, qtbot: QtBot) -> MainWindow:
    """The charts' page over a finished run."""
    window.bottom.setCurrentWidget(window.charts)
    assert window.document is not None
    job = simulated.Job(list(simulated.events(window.document.plan)))
    window.tuning.start(lambda: nullcontext(job), True)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: all(p.view.picture.marks for p in window.charts.panes), timeout=WAIT_MS)
    return window


def test_every_chart_is_drawn_in_both_themes(shown: MainWindow, qtbot: QtBot) -> None:
    pane = shown.charts.panes[0]
    for name in CHARTS:
        pane.kind.setCurrentText(name)
        pane.grab()
    shown.views.choose_theme("dark")
    pane.kind.setCurrentIndex(0)
    image = pane.view.plot.grab().toImage()
    assert image.pixelColor(3, 3) == shown.theme["surface"]


def test_gpus_are_compared_once_their_figures_are_there(shown: MainWindow, qtbot: QtBot) -> None:
    pane = shown.charts.panes[0]
    pane.kind.setCurrentText("GPU A against B")
    pane.other.setCurrentIndex(pane.other.findData("a100"))
    qtbot.waitUntil(lambda: bool(pane.view.picture.marks) and "a100 us" in pane.view.picture.header, timeout=WAIT_MS)
    assert pane.other.isVisible()


def test_the_pointer_reads_the_column_it_is_over(shown: MainWindow) -> None:
    view = shown.charts.panes[0].view
    box = view.plot.getPlotItem().vb
    assert view.tip_at(box.mapViewToScene(QPointF(1.1, 2.0))) == view.picture.tips[1].text
    assert view.tip_at(box.mapViewToScene(QPointF(-5.0, 2.0))) == ""
    dots = shown.charts.panes[1].view
    tip = dots.picture.tips[3]
    assert dots.tip_at(dots.plot.getPlotItem().vb.mapViewToScene(QPointF(tip.x, tip.y))) == tip.text


def test_charts_are_saved_as_picture_drawing_and_table(
    shown: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = shown.charts.panes[0]
    for name, kind in (("a", "Picture (*.png)"), ("b", "Drawing (*.svg)"), ("c", "Table (*.csv)")):
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a, n=name, k=kind: (str(tmp_path / n), k))
        pane.save.click()
    assert not QImage(str(tmp_path / "a.png")).isNull()
    assert QSvgRenderer(str(tmp_path / "b.svg")).isValid()
    assert (tmp_path / "c.csv").read_text() == pane.view.picture.csv()
    pane.copy.click()
    data = QGuiApplication.clipboard().mimeData()
    assert data.hasImage() and data.text() == pane.view.picture.csv()


def test_a_chart_that_can_not_be_saved_is_told(
    shown: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "no" / "a.svg"), ""))
    shown.charts.panes[0].save.click()
    assert "an't write the chart" in shown.messages.text.text()
    with pytest.raises(BoltError, match=r"end its name with \.png"):
        shown.charts.panes[0].view.save(tmp_path / "a.bmp")


def test_pyqtgraph_that_is_missing_is_told(
    make_window: Callable[..., MainWindow], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise BoltError("pyqtgraph is not installed", "run setup")

    monkeypatch.setattr("app.panels.charts._import_charts", gone)
    monkeypatch.delitem(__import__("sys").modules, "pyqtgraph", raising=False)
    window = make_window("mlp")
    window.bottom.setCurrentWidget(window.charts)
    qtbot.waitUntil(lambda: "not installed" in window.charts.panes[0].empty.text(), timeout=WAIT_MS)
