"""The export dialog, and the call of the core's exporter behind it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from core.errors import ExportError
from core.session import Session
from templates.gpu import known_gpu


@dataclass(frozen=True)
class ExportRequest:
    """What the user asked for. `gpu` is a short or driver's name."""

    folder: Path
    name: str
    gpu: str
    allow_vendor: bool


@dataclass(frozen=True)
class Exported:
    """What came of it in a line; the library's time as one graph, where it was verified, and on which GPU."""

    line: str
    latency_us: float | None = None
    gpu: str = ""


Report = Callable[[str, float | None], None]  # what is done now, and how far (0 to 1) if known
# The event stops it.
Exporter = Callable[[Session, ExportRequest, Report, threading.Event], Exported]


def core_export(session: Session, request: ExportRequest, report: Report, stop: threading.Event) -> Exported:
    """Kernels from the records of the GPU, estimates where there is none; compiled by nvcc, verified where the GPU is.

    Raises BoltError, ExportError among them for a library that computes something else.
    """
    from core.build.toolchain import find_toolchain
    from core.device import is_here, resolve_gpu
    from core.export.exporter import Origins, complete_choices, export
    from core.records.store import Records
    from core.session import fitted
    from core.tuner.choice import Origin, choose

    report("looking for nvcc and CUTLASS", None)
    toolchain, gpu = find_toolchain(), resolve_gpu(request.gpu)
    report("measuring the range of the activations", None)
    session = fitted(session)
    records = Records()
    try:
        choices = choose(session.plan, records, gpu.name, request.allow_vendor)
    finally:
        records.close()
    complete = complete_choices(session.plan, choices, gpu)

    def compiled(done: int, of: int, file: str) -> None:
        report(f"exporting {request.name}: {done} of {of} files compiled", done / max(1, of))

    origins = Origins(session.origin, session.batch, session.notes)
    export(
        session.graph, session.plan, complete, gpu, request.folder, toolchain, origins, name=request.name,
        progress=compiled, cancel=stop,
    )  # fmt: skip
    guessed = sum(c.origin is Origin.ESTIMATE for c in complete.values())
    chosen = f"{guessed} of {len(complete)} kernels are estimates" if guessed else "every kernel has a record"
    checked, latency_us = "not verified: this GPU is not here", None
    if is_here(gpu):
        checked, latency_us = _verified(session, request, report, stop)
    line = f"Exported lib{request.name}.so for {gpu.name} to {request.folder}; {chosen}; {checked}."
    notes = [f"{note[0].upper()}{note[1:]}." for note in session.notes]
    return Exported(" ".join([line, *notes]), latency_us, gpu.name)


def _verified(session: Session, request: ExportRequest, report: Report, stop: threading.Event) -> tuple[str, float]:
    """How far the library is from ONNX Runtime, and how fast, in us too. Raises ExportError if it is too far."""
    from core.export.verify import verify

    report(f"verifying {request.name} against ONNX Runtime", None)
    data = verify(request.folder, cancel=stop)
    wrong = next((o for o in data["outputs"] if not o["ok"]), None)
    if wrong is not None:
        raise ExportError(
            f"the library in {request.folder} does not compute what {session.source} computes: output "
            f"{wrong['name']!r} differs by a relative L2 of {wrong['relative_l2']:.3g}", "please report this defect",
        )  # fmt: skip
    worst = max(o["relative_l2"] for o in data["outputs"])
    notes = "".join(f"; {note}" for note in data["notes"])
    said = f"verified against ONNX Runtime, relative L2 {worst:.1e}, {data['latency_ms']:.3f} ms{notes}"
    return said, data["latency_ms"] * 1000


def gpu_title(name: str) -> str:
    """The driver's name of a GPU that is known by a short one."""
    known = known_gpu(name)
    return known.name if known else name


def valid_name(name: str) -> bool:
    """Whether a library can be called so: lib<name>.so and a C identifier."""
    return name.isidentifier() and name.isascii()


class ExportDialog(QDialog):
    """Where to, under what name, for which GPU. `request` once accepted."""

    def __init__(self, name: str, gpu: str, note: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Export the library")
        self.setMinimumWidth(520)
        self._gpu = gpu
        clean = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        self.name = QLineEdit(clean if valid_name(clean) else f"m{clean}")
        self.folder = QLineEdit(str(Path.cwd() / "out" / self.name.text()))
        browse = QPushButton("Browse")
        browse.setAutoDefault(False)
        browse.clicked.connect(self._browse)
        row = QHBoxLayout()
        row.addWidget(self.folder, 1)
        row.addWidget(browse)
        self.gpu = QLabel(gpu_title(gpu))
        self.vendor = QCheckBox("Allow the vendor's kernels where they were faster")
        self.warning = QLabel(wordWrap=True)
        note_label = QLabel(note, wordWrap=True)
        form = QFormLayout()
        form.setVerticalSpacing(10)
        form.addRow("Name", self.name)
        form.addRow("Folder", row)
        form.addRow("For GPU", self.gpu)
        form.addRow("", self.vendor)
        form.addRow("", note_label)
        form.addRow("", self.warning)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.go = buttons.addButton("Export", QDialogButtonBox.ButtonRole.AcceptRole)
        self.go.setDefault(True)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 20, 20, 16)
        layout.setSpacing(16)
        layout.addLayout(form)
        layout.addWidget(buttons)
        self.name.textChanged.connect(self._check)
        self.folder.textChanged.connect(self._check)
        self._check()

    @property
    def request(self) -> ExportRequest:
        folder = Path(self.folder.text().strip()).expanduser()
        return ExportRequest(folder, self.name.text().strip(), self._gpu, self.vendor.isChecked())

    def _browse(self) -> None:
        chosen = QFileDialog.getExistingDirectory(self, "Folder for the library", self.folder.text())
        if chosen:
            self.folder.setText(chosen)

    def _check(self) -> None:
        request = self.request
        if not valid_name(request.name):
            problem = "The name must be a C identifier: letters, digits and underscores, not starting with a digit."
        elif not self.folder.text().strip():
            problem = "Choose a folder."
        elif request.folder.is_file():
            problem = f"{request.folder} is a file, not a folder."
        elif _holds_other_files(request.folder):
            problem = "The folder holds files that are no exported library. Choose an empty or a new one."
        else:
            problem = ""
        self.warning.setText(problem)
        self.go.setEnabled(not problem)


def _holds_other_files(folder: Path) -> bool:
    """An earlier export may be replaced; anything else may not."""
    from core.export.exporter import read_manifest

    try:
        return folder.is_dir() and any(folder.iterdir()) and read_manifest(folder) is None
    except OSError:
        return True
