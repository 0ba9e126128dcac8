"""Windows are drawn offscreen. Every test ends with no window and no thread of ours left."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import theme
from app.document import Document
from app.exporting import Exporter
from app.window import MainWindow
from core.session import Session, open_model
from tests.app import models

WAIT_MS = 20_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, kernels and settings of a test go to its own folder."""
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BOLT_CONFIG", str(tmp_path / "config"))


@pytest.fixture(autouse=True)
def nothing_left(qapp: QApplication) -> Iterator[None]:
    """No top-level widget and no thread of the window survives its test (qtbot closes first)."""
    before = set(threading.enumerate())
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    qapp.processEvents()
    left = [w for w in qapp.topLevelWidgets() if w.isVisible()]
    threads = [t for t in set(threading.enumerate()) - before if t.name.startswith("bolt")]
    assert not left, f"windows left: {left}"
    assert not threads, f"threads left: {threads}"


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file: two convs with ReLU, a residual Add, pooling, a Gemm and a Softmax."""
    return models.write_small(tmp_path_factory.mktemp("models") / "small.onnx")


@pytest.fixture(scope="session")
def small_session(small_model: Path) -> Session:
    return open_model(str(small_model))


@pytest.fixture
def document(small_session: Session, qapp: QApplication) -> Document:
    return Document(small_session)


@pytest.fixture
def make_window(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MainWindow]:
    """A shown window; `window.document` is set when a model was named. Edited plans never ask on close.

    The view goes to a place at once; tests of motion turn it on.
    """
    monkeypatch.setattr(MainWindow, "may_drop_edits", lambda self, document: True)

    def make(model: Path | str | None = None, exporter: Exporter | None = None) -> MainWindow:
        chosen = theme.theme("light")
        theme.apply(QApplication.instance(), chosen)  # type: ignore[arg-type]
        window = MainWindow(chosen, exporter)
        qtbot.addWidget(window, before_close_func=_settle)
        window.canvas.view.motion.wanted = False
        window.resize(1440, 900)
        window.show()
        if model is not None:
            window.open(str(model))
            qtbot.waitUntil(lambda: window.document is not None, timeout=WAIT_MS)
            QApplication.processEvents()  # layouts settle, so that a place in the view stays where a test found it
        return window

    def _settle(window: MainWindow) -> None:
        if window.tuning.running:
            window.tuning.cancel()
            qtbot.waitUntil(lambda: not window.tuning.running, timeout=WAIT_MS)

    return make


@pytest.fixture
def window(make_window: Callable[..., MainWindow], small_model: Path) -> MainWindow:
    return make_window(small_model)
