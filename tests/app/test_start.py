"""Starting: what is missing is said in one line, before Qt could abort; and nothing heavy is loaded early."""

import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QImage, QPainter, QPen

from app import start
from core.paths import ROOT


def test_no_display_is_one_line_with_a_way_out() -> None:
    with pytest.raises(start.DisplayError) as told:
        start.check_display({})
    assert "DISPLAY" in str(told.value)
    assert "\n" not in str(told.value)


def test_missing_libraries_name_the_line_to_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_loads", lambda library: library not in ("libGL.so.1", "libxcb-icccm.so.4"))
    with pytest.raises(start.DisplayError) as told:
        start.check_display({"DISPLAY": ":0"})
    assert told.value.remedy == "run: sudo apt-get install -y --no-install-recommends libgl1 libxcb-icccm4"


def test_xcb_libraries_are_not_asked_for_offscreen_or_on_wayland(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(start, "_loads", lambda library: library not in start.XCB_LIBRARIES)
    start.check_display({"QT_QPA_PLATFORM": "offscreen"})
    (tmp_path / "wayland-0").touch()
    start.check_display({"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("environ", [{"DISPLAY": ":987"}, {"WAYLAND_DISPLAY": "gone", "XDG_RUNTIME_DIR": "/nowhere"}])
def test_a_display_that_does_not_answer_is_told_before_qt_aborts(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "missing_libraries", lambda wanted: {})
    if start._loads("libxcb.so.1"):
        with pytest.raises(start.DisplayError, match="does not answer"):
            start.check_display(environ)


def test_the_loader_is_really_asked() -> None:
    assert start.missing_libraries({"libc.so.6": "libc6", "libnothere-9.so.9": "libnothere9"}) == {
        "libnothere-9.so.9": "libnothere9"
    }


def test_two_models_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert start.run(["a.onnx", "b.onnx"]) == 2
    assert "one model at a time" in capsys.readouterr().err


def test_the_window_is_built_without_the_heavy_packages() -> None:
    code = (
        "import sys; from PySide6.QtWidgets import QApplication; a = QApplication([]); from app import theme;"
        "from app.window import MainWindow; w = MainWindow(theme.theme('light')); w.show();"
        "heavy = {'onnx', 'onnxruntime', 'pyqtgraph', 'netron', 'cuda', 'rich'} & set(sys.modules);"
        "w.close(); print('heavy:', sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={"QT_QPA_PLATFORM": "offscreen", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, check=False,
    )  # fmt: skip
    assert "heavy: []" in done.stdout, done.stdout + done.stderr


def test_painting_keeps_the_references_of_none() -> None:
    """PySide6 6.12 drops one reference to None with every void call on Python 3.11 and aborts after some thousands."""
    image = QImage(8, 8, QImage.Format.Format_RGB32)
    painter, pen = QPainter(image), QPen()
    for _ in range(50):
        painter.setPen(pen)
    before = sys.getrefcount(None)
    for _ in range(200):
        painter.setPen(pen)
    after = sys.getrefcount(None)
    painter.end()
    assert abs(after - before) < 100
