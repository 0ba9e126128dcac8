"""Fills the advice panel from the records, leads to the nodes, and follows advice in a copy of the model."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.background import Job
from app.document import Document
from app.panels.advice import LOOKING, NONE_YET, AdvicePanel
from app.panels.advice_view import AdviceView
from core.advise.advice import Advice
from core.errors import BoltError
from core.session import Session
from templates.gpu import known_gpu

if TYPE_CHECKING:
    from app.window import MainWindow

_DTYPES = {"f16": "fp16", "f32": "fp32"}  # as the command line calls them


@dataclass(frozen=True)
class Found:
    """Advice, the measured time of the whole model if all of it is, and how many workloads have no record."""

    advice: list[Advice]
    total_us: float | None
    missing: int


class AdviceControl(QObject):
    """Advice is worked out when the panel is seen, and again when what it rests on has changed."""

    def __init__(self, window: "MainWindow", panel: AdvicePanel) -> None:
        super().__init__(window)
        self.window = window
        self.panel = panel
        self.view = AdviceView()
        self._job: Job | None = None
        panel.pages.addWidget(self.view)
        panel.outdated.connect(self.refresh)
        window.commands.gpu.currentIndexChanged.connect(self.refresh)
        self.view.chosen.connect(self._show)
        self.view.table.activated.connect(window.zoom_to_selection)
        self.view.apply_wanted.connect(self.ask)
        self.view.copy_wanted.connect(self._copy)

    def refresh(self) -> None:
        document = self.panel.document
        if self._job is not None:
            self._job.cancel()
            self._job = None
        if document is None or not self.panel.isVisible():
            return
        if self.panel.pages.currentWidget() is not self.view or not self.view.model.advice:
            self.panel.say(LOOKING)
        session, gpu = document.current_session(), self.window.tuning.gpu
        self._job = self.window.background.start(
            "looking for advice", lambda job: _find(session, gpu, job), lambda f: self._found(document, f), self._failed
        )

    def _found(self, document: Document, found: Found) -> None:
        self._job = None
        if document is not self.panel.document:
            return
        if not found.advice:
            self.panel.say(NONE_YET)
            return
        note = "Every price was measured." if not found.missing else f"{found.missing} workloads are not measured yet."
        self.view.show_advice(found.advice, found.total_us, note)
        self.view.copy.setEnabled(bool(found.missing))
        self.panel.fill(self.view)

    def _failed(self, error: BoltError) -> None:
        self._job = None
        self.panel.say(f"No advice: {error}")

    def _show(self, advice: Advice | None) -> None:
        document = self.panel.document
        if advice is not None and document is not None and advice.nodes:
            document.select_names(advice.nodes)

    # Following it ---------------------------------------------------------------------------------------------------

    def ask(self, advice: Advice) -> None:
        document = self.panel.document
        if document is None or advice.change is None:
            return
        name = f"{document.title}-{advice.id}.onnx"
        chosen, _ = QFileDialog.getSaveFileName(self.window, "Write the changed model", name, "ONNX models (*.onnx)")
        if chosen:
            self.apply(advice, Path(chosen if chosen.endswith(".onnx") else f"{chosen}.onnx"))

    def apply(self, advice: Advice, path: Path) -> None:
        """Write the changed copy in the background and open it in a tab of its own."""
        document = self.panel.document
        if document is None:
            return
        source = document.session.source
        self.window.status.show_busy(f"writing {path.name}")
        self.window.background.start(
            "writing the changed model",
            lambda job: _write(advice, source, path),
            lambda _: self._written(advice, path),
            self._not_written,
        )

    def _written(self, advice: Advice, path: Path) -> None:
        self.window.status.show_busy("")
        self.window.open(str(path))
        kept = advice.change is not None and advice.change.keeps
        said = "it computes what the model does" if kept else "it computes another function, so train it again"
        self.window.log.add("info", f"{path}: {advice.what}; {said}")

    def _not_written(self, error: BoltError) -> None:
        self.window.status.show_busy("")
        self.window.messages.show_error(error)

    def _copy(self) -> None:
        document = self.panel.document
        if document is None:
            return
        session = document.session
        words = ["python3", "main.py", "advise", session.source]
        words += ["--batch", str(session.batch)] if session.batch is not None else []
        words += ["--dtype", _DTYPES.get(session.dtype, str(session.dtype))] if session.dtype != "f16" else []
        QGuiApplication.clipboard().setText(shlex.join([*words, "--measure"]))


def _find(session: Session, gpu: str, job: Job) -> Found:
    from core.advise.find import advise
    from core.advise.subject import subject_of
    from core.device import detect_gpu
    from core.records.store import Records

    records = Records()
    try:
        subject = subject_of(session, known_gpu(gpu) or detect_gpu().spec, records)
        found = advise(subject)
        job.check()
        times = [(subject.times(w.key), len(regions)) for w, regions in subject.groups()]
        total = sum(t.ours * n for t, n in times if t is not None) if all(t is not None for t, _ in times) else None
        missing = {key for a in found for way in a.ways for key in way.price.missing}
        return Found(found, total or None, len(missing))
    finally:
        records.close()


def _write(advice: Advice, source: str, path: Path) -> None:
    from core.advise.apply import apply
    from core.advise.file import save

    assert advice.change is not None
    save(apply(advice.change, source), path)
