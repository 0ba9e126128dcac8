"""The Export action: asks, runs the exporter in the background, tells how far it is and how it went."""

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices

from app.background import Job
from app.document import Document
from app.exporting import ExportDialog, Exported, Exporter, ExportRequest, core_export
from app.format import tip
from core.errors import BoltError
from core.fusion.plan import FusionPlan

if TYPE_CHECKING:
    from app.window import MainWindow


class ExportControl(QObject):
    _progress = Signal(str, object)

    def __init__(self, window: "MainWindow", exporter: Exporter | None) -> None:
        super().__init__(window)
        self.window = window
        self.exporter = exporter or core_export
        self.job: Job | None = None
        self._progress.connect(window.status.show_share, Qt.ConnectionType.QueuedConnection)
        window.commands["export"].triggered.connect(self.ask)

    def enable(self) -> None:
        document, action = self.window.document, self.window.commands["export"]
        supported = document is not None and document.plan.supported
        action.setEnabled(supported and self.job is None)
        if document is not None and not supported:
            region = next(r for r in document.plan.regions if not r.supported)
            action.setToolTip(tip(f"Not possible: {region.id}: {region.reason}"))
        else:
            action.setToolTip(
                "An export is running." if self.job else "Write the tuned model as a CUDA library (Ctrl+E)"
            )

    def ask(self) -> None:
        document = self.window.document
        if document is None:
            return
        note = "Kernels are chosen from the records of this GPU."
        if not self.window.tuning.gpu_is_here:
            note += " It is not in this machine: the library is compiled, but not verified here."
        dialog = ExportDialog(document.title, self.window.tuning.gpu, note, self.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self.start(dialog.request))
        dialog.open()

    def start(self, request: ExportRequest) -> None:
        """Export what is open, with its plan as it stands now."""
        document = self.window.document
        if document is None or self.job is not None:
            return
        session = document.current_session()
        self.window.messages.hide()
        self.window.status.show_share(f"exporting {request.name}", None)
        self.job = self.window.background.start(
            f"exporting {request.name}",
            lambda job: self.exporter(session, request, self._progress.emit, job.stop),
            lambda made: self._done(made, document, session.plan, request.folder),
            self._failed,
        )
        self.enable()

    def _done(self, made: Exported, document: Document, plan: FusionPlan, folder: Path) -> None:
        self._over()
        if made.latency_us is not None:
            document.set_whole(plan, made.latency_us, made.gpu)
        self.window.log.add("info", made.line)
        self.window.messages.show_text("done", made.line, "Open folder", lambda: _open_folder(folder))

    def _failed(self, error: BoltError) -> None:
        self._over()
        self.window.log.add("error", str(error))
        self.window.messages.show_error(error)

    def _over(self) -> None:
        self.job = None
        self.window.status.show_busy("")
        self.enable()


def _open_folder(folder: Path) -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
