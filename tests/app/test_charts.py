"""Charts as data, then drawn, hovered and exported by the real panel."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from math import log10
from pathlib import Path

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app import edits, tuning
from app.charts import compare, gains, regions
from app.charts.picture import Bars, Context, Dots, Line, Picture, Whole
from app.charts.view import ChartView, log_ticks
from app.document import Document
from app.estimates import Estimate
from app.panels.charts import CHARTS, PLANS
from app.plan_figures import AS_IT_STANDS, AUTOMATIC
from app.run import Run
from app.window import MainWindow
from core.errors import BoltError
from core.fusion.compare import compare as compare_core
from core.gains import Gain, Gains, Way
from core.paths import ROOT
from core.tuner.runfile import RunWriter
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
    steps, total = (
        bars(picture)["a region, replayed"],
        bars(picture)[f"sum of {len(tuned.plan.workloads)} regions, ours"],
    )
    assert steps.base[0] == 0
    assert [b + h for b, h in zip(steps.base, steps.height, strict=True)][:-1] == pytest.approx(list(steps.base[1:]))
    assert total.height[0] == pytest.approx(sum(steps.height))
    assert f"{len(tuned.plan.regions) - len(steps.x)} regions that are not tuned" in picture.note


def test_the_waterfall_draws_estimates_apart_and_calls_their_sum_one(tuned: Document) -> None:
    key, *others = tuned.plan.workloads
    tuned.run.workloads[key].best = tuned.run.workloads[key].vendor = None
    tuned.estimates = {key: Estimate(50.0, "c", "a rule")}
    picture = regions.waterfall(tuned, H200)
    found = bars(picture)
    assert found["a region, estimated"].hatched and found["a region, estimated"].height == [50.0]
    total = found[f"sum of {len(others) + 1} regions, ours"]
    assert total.hatched and total.height[0] == pytest.approx(50.0 + sum(found["a region, replayed"].height))
    assert "1 of them estimated" in picture.tips[-1].text
    assert {r[3] for r in picture.rows[: len(others) + 1]} == {"replayed", "estimated"}


def test_the_whole_models_time_stands_beside_the_sum_of_its_regions(tuned: Document) -> None:
    total = sum(w.best.us for w in tuned.run.workloads.values() if w.best)
    picture = regions.waterfall(tuned, Context("h200", whole=Whole(total - 10.0, "recorded 2026-11-29")))
    whole = bars(picture)["whole model as one graph, recorded 2026-11-29"]
    assert whole.height == [total - 10.0]
    assert "10.0 us less" in picture.tips[-1].text


def test_no_region_of_the_roofline_is_off_its_workload(tuned: Document) -> None:
    picture = regions.roofline(tuned, H200)
    ours = next(m for m in picture.marks if isinstance(m, Dots) and m.name.startswith("ours"))
    works = {k: r[0].workload for k, r in tuned.plan.workloads.items()}
    assert len(ours.x) == len(works)
    assert sorted(ours.x) == pytest.approx(sorted(w.flops / w.bytes for w in works.values() if w))
    assert any(isinstance(m, Line) and "roof" in m.name for m in picture.marks)
    measured = [r for r in tuned.run.rows if r.us]
    assert len(next(m for m in picture.marks if m.name == "candidates").x) == len(measured) > len(ours.x)


def test_regions_that_nobody_measured_are_crosses_on_the_roofline(document: Document) -> None:
    document.estimates = {key: Estimate(20.0, "c", "a rule") for key in document.plan.workloads}
    (dots, roof) = regions.roofline(document, H200).marks
    assert isinstance(dots, Dots) and dots.crosses and dots.name == "ours, estimated"
    assert len(dots.x) == len(document.plan.workloads) and isinstance(roof, Line)


def test_ticks_of_a_logarithmic_axis() -> None:
    assert [text for _, text in log_ticks(0.9, 2.1)] == ["10", "20", "50", "100"]
    assert [at for at, _ in log_ticks(-1, 4)] == [-1, 0, 1, 2, 3, 4]
    assert len(log_ticks(-900.0, 700.0)) == 31
    assert log_ticks(300.0, 700.0) == []
    assert [text for _, text in log_ticks(log10(2.5), log10(5.5))] == ["3", "4", "5"]
    assert [text for _, text in log_ticks(log10(30), log10(33))] == ["30", "31", "32", "33"]


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
    assert len(picture.names) == 1 and list(bars(picture)) == [f"A: {AUTOMATIC}, replayed"]
    assert "No total" in picture.note and "not measured" in picture.tips[0].text
    assert {r[0] for r in picture.rows} == {AUTOMATIC, AS_IT_STANDS}


def test_any_two_plans_are_compared(tuned: Document) -> None:
    before = tuned.plan
    tuned.select_region(before.regions[0])
    edits.split(tuned)
    edits.keep(tuned, "one by one")
    edits.switch(tuned, "")
    (difference,) = compare_core(before, tuned.plans.kept["one by one"], {}).differences
    parts = [r.workload.key for r in difference.b.regions if r.workload]
    tuned.estimates = {key: Estimate(50.0, "c", "a rule") for key in parts}
    picture = compare.plans(tuned, Context("h200", plans=("one by one", AUTOMATIC)))
    assert [m.hatched for m in bars(picture).values()] == [True, False]
    assert list(bars(picture)) == ["A: one by one without 1 untimed region, estimated", f"B: {AUTOMATIC}, replayed"]
    assert {r[0] for r in picture.rows} == {"one by one", AUTOMATIC}
    assert "same regions" in compare.plans(tuned, Context("h200", plans=(AUTOMATIC, AUTOMATIC))).empty


def test_the_run_before_is_compared_with_this_one(tuned: Document) -> None:
    before: Run = tuned.run
    tuned.start_run(replayed=False)
    tuned.apply(list(simulated.events(tuned.plan, seed=11)))
    assert tuned.baseline is before
    found = bars(compare.runs(tuned, H200))
    assert set(found) == {"before, replayed", "now, measured"}
    assert list(found["before, replayed"].height) != list(found["now, measured"].height)


def test_a_recorded_run_stands_in_for_the_one_before(tuned: Document) -> None:
    assert "Reading b32" in compare.runs(tuned, Context("h200", other_name="b32")).empty
    other = Run(replayed=True)
    other.apply(list(simulated.events(tuned.plan, seed=5)))
    found = bars(compare.runs(tuned, Context("h200", other_name="b32", other_run=other)))
    assert set(found) == {"b32, replayed", "now, replayed"}
    assert all(len(b.spread) == len(b.height) for b in found.values())
    strange = compare.runs(tuned, Context("h200", other_name="b32", other_run=Run()))
    assert "share no finished workload" in strange.empty


def test_gains_are_of_measured_figures_and_say_what_the_parts_leave_out(document: Document) -> None:
    assert "Looking for" in gains.fusion(document, H200).empty
    assert "Split a region" in gains.fusion(document, Context("h200", gains=Gains((), 3))).empty
    found = (
        Gain("r0", Way.EPILOGUE, True, 12.0, (("bare", 11.5),), "relu", "replayed"),
        Gain("r1+r2", Way.PERSISTENT, False, 9.0, (("a", 6.0), ("b", 5.0)), "", "from records"),
        Gain("r3", Way.PERSISTENT, True, 9.0, (("a", 4.0), ("b", 4.0)), "", "replayed"),
    )
    picture = gains.fusion(document, Context("h200", gains=Gains(found, 2)))
    marks = bars(picture)
    assert not any(m.hatched for m in marks.values())
    assert marks["one kernel"].height == [12.0, 9.0] and marks["one kernel, not in this plan"].height == [9.0]
    assert marks["second part"].base == [6.0, 4.0] and marks["second part"].height == [5.0, 4.0]
    assert "without relu 11.5 us: those cost 0.5 us fused" in picture.tips[0].text
    assert "saves 2.00 us" in picture.tips[1].text and "loses 1.00 us" in picture.tips[2].text
    assert "2 fusions are without a figure" in picture.note
    assert [r[5] for r in picture.rows] == [-0.5, 2.0, -1.0]


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


def test_plans_are_chosen_above_the_chart(shown: MainWindow) -> None:
    document, pane = shown.document, shown.charts.panes[0]
    assert document is not None
    pane.kind.setCurrentText(PLANS)
    assert pane.plans[0].isVisible() and "same regions" in pane.empty.text()
    document.select_region(document.plan.regions[0])
    edits.split(document)
    edits.keep(document, "one by one")
    edits.switch(document, "")
    pane.plans[1].setCurrentText("one by one")
    assert "one by one" in pane.view.picture.csv() and pane.view.picture.marks
    pane.kind.setCurrentText("Roofline")
    assert not pane.plans[0].isVisible()


def test_a_verified_export_is_the_whole_models_time(shown: MainWindow) -> None:
    document, pane = shown.document, shown.charts.panes[0]
    assert document is not None
    pane.kind.setCurrentText("Latency by region")
    document.set_whole(document.plan, 416.0, "NVIDIA H200")
    whole = bars(regions.waterfall(document, shown.charts._context(pane)))
    assert whole["whole model as one graph, measured on NVIDIA H200 by the export"].height == [416.0]
    document.select_region(document.plan.regions[0])
    edits.split(document)  # the export was of another plan
    assert not [n for n in bars(regions.waterfall(document, shown.charts._context(pane))) if "whole" in n]


def test_a_run_file_is_chosen_read_and_compared(
    shown: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown.document is not None
    path = tmp_path / "yesterday.jsonl.gz"
    with RunWriter(path, lambda: 0.0) as writer:
        for event in simulated.events(shown.document.plan, seed=3):
            writer(event)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *a: (str(path), ""))
    pane = shown.charts.panes[0]
    pane.kind.setCurrentText("Run A against B")
    pane.run.setCurrentIndex(pane.run.count() - 1)
    qtbot.waitUntil(lambda: "yesterday us" in pane.view.picture.header, timeout=WAIT_MS)
    assert pane.run.currentText() == "yesterday" and pane.run.isVisible()
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *a: ("", ""))
    pane.run.setCurrentIndex(pane.run.count() - 1)
    assert pane.run.currentData() == "" and "second" not in pane.empty.text()


def test_a_run_file_that_is_cut_off_is_told_and_the_chart_says_what_is_left(
    shown: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(b"\x1f\x8bcut")
    pane = shown.charts.panes[0]
    pane.kind.setCurrentText("Run A against B")
    pane.choose_run(str(path))
    qtbot.waitUntil(lambda: "cut.jsonl.gz is not a whole run file" in shown.messages.text.text(), timeout=WAIT_MS)
    assert "share no finished workload" in pane.empty.text()


def test_gains_and_the_whole_models_time_are_looked_up_in_the_background(
    make_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = make_window("resnet18")
    window.bottom.setCurrentWidget(window.charts)
    first = window.document
    window.commands.batch.setCurrentText("32")
    window.commands.batch.activated.emit(window.commands.batch.currentIndex())
    qtbot.waitUntil(lambda: window.document is not first, timeout=WAIT_MS)
    assert window.document is not None
    window.tuning.start(tuning.best_replay(window.document.plan, "h200", 0), True)
    qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)
    one, other = window.charts.panes
    one.kind.setCurrentText("Latency by region")
    other.kind.setCurrentText(gains.TITLE)
    qtbot.waitUntil(lambda: "whole" in [n for _, n in one.view.picture.names], timeout=WAIT_MS)
    qtbot.waitUntil(lambda: other.empty.text() == gains.NOTHING, timeout=WAIT_MS)
    assert "whole model as one graph, recorded" in one.view.picture.tips[-1].text


@pytest.mark.parametrize("width", [260, 420, 1200])
def test_the_whole_key_is_read_at_any_width(shown: MainWindow, qtbot: QtBot, width: int) -> None:
    picture = regions.waterfall(shown.document, H200)  # type: ignore[arg-type]
    view = ChartView(shown.theme)
    qtbot.addWidget(view)
    view.resize(width, 300)
    view.show()
    view.draw(picture)
    label = view.plot.getPlotItem().titleLabel
    said = label.item.toPlainText().replace("\xa0", " ")
    for mark in picture.marks:
        assert mark.name[:20] in said
    assert label.item.boundingRect().width() <= width
    assert label.item.boundingRect().height() <= label.maximumHeight() + 8


def test_the_pointer_reads_the_column_it_is_over(shown: MainWindow) -> None:
    view = shown.charts.panes[0].view
    box = view.plot.getPlotItem().vb
    assert view.tip_at(box.mapViewToScene(QPointF(1.1, 2.0))) == view.picture.tips[1].text
    assert view.tip_at(box.mapViewToScene(QPointF(-5.0, 2.0))) == ""
    dots = shown.charts.panes[1].view
    tip = dots.picture.tips[3]
    assert dots.tip_at(dots.plot.getPlotItem().vb.mapViewToScene(QPointF(tip.x, log10(tip.y)))) == tip.text


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


def test_a_copied_chart_does_not_crash_the_end_of_the_program(tmp_path: Path) -> None:
    script = (
        "from PySide6.QtWidgets import QApplication\n"
        "from app import theme\n"
        "from app.charts.picture import Dots, Picture\n"
        "from app.charts.view import ChartView\n"
        "app = QApplication([])\n"
        "view = ChartView(theme.theme('light'))\n"
        "view.draw(Picture('t', marks=(Dots('d', [1.0], [1.0], 'ours'),)))\n"
        "view.copy()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
