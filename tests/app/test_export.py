"""Exporting from the window, with a stub in place of the core's exporter."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from pytestqt.qtbot import QtBot

from app.exporting import ExportDialog, Exported, ExportRequest, Report, core_export, valid_name
from app.window import MainWindow
from core.device import GpuIdentity, resolve_gpu
from core.errors import DeviceError, ExportError
from core.session import Session, open_model
from tests.app.conftest import WAIT_MS
from tests.core.test_half_range import growing


class Stub:
    """Records what it was asked; waits until it is let go or stopped."""

    def __init__(self, error: ExportError | None = None, hold: bool = False) -> None:
        self.error, self.go = error, threading.Event()
        self.latency_us: float | None = None
        self.request: ExportRequest | None = None
        self.session: Session | None = None
        if not hold:
            self.go.set()

    def __call__(self, session: Session, request: ExportRequest, report: Report, stop: threading.Event) -> Exported:
        self.session, self.request = session, request
        report("3 of 9 files compiled", 1 / 3)
        while not self.go.wait(0.01):
            if stop.is_set():
                return Exported("stopped")
        if self.error is not None:
            raise self.error
        return Exported(f"Exported lib{request.name}.so.", self.latency_us, "NVIDIA H200")


def dialog_of(window: MainWindow) -> ExportDialog:
    window.commands["export"].trigger()
    (dialog,) = window.findChildren(ExportDialog)
    return dialog


def test_export_with_the_edited_plan(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, tmp_path: Path
) -> None:
    stub = Stub()
    window = make_window(small_model, stub)
    assert window.document is not None
    window.document.select([window.document.model.index["conv1"]])
    window.commands["split"].trigger()
    dialog = dialog_of(window)
    dialog.name.setText("fast_net")
    dialog.folder.setText(str(tmp_path / "lib"))
    dialog.vendor.setChecked(True)
    dialog.go.click()
    qtbot.waitUntil(lambda: window.messages.level == "done" and window.messages.isVisible(), timeout=WAIT_MS)
    assert stub.request == ExportRequest(tmp_path / "lib", "fast_net", "h200", True)
    assert stub.session is not None
    assert stub.session.plan is window.document.plan
    assert window.messages.text.text() == "Exported libfast_net.so."
    assert window.messages.act.text() == "Open folder"
    assert "Exported libfast_net.so." in window.log.text.toPlainText()


def test_progress_is_shown_and_one_export_runs_at_a_time(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, tmp_path: Path
) -> None:
    stub = Stub(hold=True)
    window = make_window(small_model, stub)
    window.exports.start(ExportRequest(tmp_path / "lib", "net", "h200", False))
    qtbot.waitUntil(lambda: "3 of 9" in window.status.job.text(), timeout=WAIT_MS)
    assert window.status.bar.value() == 333
    assert not window.commands["export"].isEnabled()
    stub.go.set()
    qtbot.waitUntil(lambda: window.exports.job is None, timeout=WAIT_MS)
    assert window.commands["export"].isEnabled()


def test_a_failed_export_says_why_and_what_to_do(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, tmp_path: Path
) -> None:
    window = make_window(small_model, Stub(ExportError("the disk is full", "free some space")))
    window.exports.start(ExportRequest(tmp_path / "lib", "net", "h200", False))
    qtbot.waitUntil(window.messages.isVisible, timeout=WAIT_MS)
    assert window.messages.text.text() == "The disk is full.\nFree some space."


def test_closing_stops_an_export(
    make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot, tmp_path: Path
) -> None:
    stub = Stub(hold=True)
    window = make_window(small_model, stub)
    window.exports.start(ExportRequest(tmp_path / "lib", "net", "h200", False))
    qtbot.waitUntil(lambda: stub.request is not None, timeout=WAIT_MS)
    window.close()
    assert not window.background.busy


@pytest.mark.parametrize("name", ["", "9lives", "a b", "a-b", "a;b", "naïve", '"', "a\nb"])
def test_names_that_are_no_identifier_are_refused(qtbot: QtBot, name: str) -> None:
    dialog = ExportDialog("net", "h200", "")
    qtbot.addWidget(dialog)
    dialog.name.setText(name)
    assert not valid_name(name)
    assert not dialog.go.isEnabled()
    assert "C identifier" in dialog.warning.text()


def test_a_model_name_becomes_a_legal_library_name(qtbot: QtBot) -> None:
    dialog = ExportDialog("9-net v2.onnx", "h200", "")
    qtbot.addWidget(dialog)
    assert dialog.name.text() == "m9_net_v2_onnx"
    assert dialog.go.isEnabled()


def test_folders_with_other_files_are_refused(qtbot: QtBot, tmp_path: Path) -> None:
    dialog = ExportDialog("net", "h200", "")
    qtbot.addWidget(dialog)
    (tmp_path / "letter.txt").write_text("dear")
    for folder, words in (
        (tmp_path, "no exported library"),
        (tmp_path / "letter.txt", "is a file"),
        ("", "Choose a folder"),
    ):
        dialog.folder.setText(str(folder))
        assert not dialog.go.isEnabled()
        assert words in dialog.warning.text()
    dialog.folder.setText(str(tmp_path / "new"))
    assert dialog.go.isEnabled()


CHECKED = {
    "outputs": [{"name": "y", "relative_l2": 5e-4, "ok": True}], "latency_ms": 0.41600001,
    "notes": ["it is constant"], "ok": True,
}  # fmt: skip


def through_core(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch, gpu: str | None, checked: dict[str, Any]
) -> tuple[Exported, list[str]]:
    """The line and the reports of an export for an H200 on a machine with the GPU `gpu`; nothing is compiled or run."""

    def detected() -> GpuIdentity:
        if gpu is None:
            raise DeviceError("no GPU")
        return resolve_gpu(gpu)

    def built(folder: Path, name: str, *rest: object) -> None:
        (folder / f"lib{name}.so").touch()

    monkeypatch.setattr("core.device.detect_gpu", detected)
    monkeypatch.setattr("core.export.exporter.build_library", built)
    monkeypatch.setattr("core.export.verify.verify", lambda folder, cancel: checked)
    reports: list[str] = []
    request = ExportRequest(folder, "net", "h200", False)
    return core_export(session, request, lambda text, share: reports.append(text), threading.Event()), reports


@pytest.mark.parametrize("gpu", [None, "a100"])
def test_without_the_gpu_the_export_says_that_it_is_not_verified(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str | None
) -> None:
    made, reports = through_core(small_session, tmp_path / "out", monkeypatch, gpu, {})
    assert made.line.endswith("not verified: this GPU is not here.") and made.latency_us is None
    assert not any("verifying" in r for r in reports)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert Path(manifest["source"]).is_absolute()


def test_where_the_gpu_is_the_export_is_verified(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, reports = through_core(small_session, tmp_path / "out", monkeypatch, "h200", CHECKED)
    assert made.latency_us == pytest.approx(416.0)
    assert made.line.endswith("verified against ONNX Runtime, relative L2 5.0e-04, 0.416 ms; it is constant.")
    assert reports[-1] == "verifying net against ONNX Runtime"


def test_a_library_that_computes_something_else_is_an_error(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {**CHECKED, "outputs": [{"name": "y", "relative_l2": 0.3, "ok": False}], "ok": False}
    with pytest.raises(ExportError, match=r"output 'y' differs by a relative L2 of 0\.3"):
        through_core(small_session, tmp_path / "out", monkeypatch, "h200", wrong)


def test_rescaled_weights_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(growing(), tmp_path / "growing.onnx")
    made, _ = through_core(open_model(tmp_path / "growing.onnx"), tmp_path / "out", monkeypatch, None, {})
    assert "Weights rescaled by powers of two so that" in made.line
