"""The status bar: the GPU's state, what runs and how far, the records."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QLabel, QProgressBar, QStatusBar, QWidget

from app.format import seconds
from app.run import Run
from app.settings import SPEEDS
from core.measure.measurement import GpuState


class Status(QStatusBar):
    """Three fields that stay, and a thin bar while something runs."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizeGripEnabled(False)
        self.gpu, self.job, self.records = QLabel("GPU: looking"), QLabel(), QLabel()
        for label in (self.gpu, self.job, self.records):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(140)
        self.bar.hide()
        self.addWidget(self.gpu)
        self.addWidget(self.bar)
        self.addWidget(self.job, 1)
        self.speed = QComboBox()
        self.speed.setAccessibleName("Replay speed")
        self.speed.setToolTip("How many times faster than it was recorded")
        for times in SPEEDS:
            self.speed.addItem(f"{times}x", float(times))
        self.speed.hide()
        self.addPermanentWidget(self.speed)
        self.addPermanentWidget(self.records)
        self._gpu_name = ""

    def show_gpu(self, text: str) -> None:
        self._gpu_name = text
        self.gpu.setText(text)

    def show_busy(self, text: str) -> None:
        """Something whose end is not known; "" ends it."""
        self.bar.setVisible(bool(text))
        self.bar.setRange(0, 0)
        self.job.setText(text)

    def show_share(self, text: str, share: float | None) -> None:
        """Something that tells how far it is, 0 to 1; None if it does not."""
        self.bar.show()
        self.bar.setRange(0, 0 if share is None else 1000)
        if share is not None:
            self.bar.setValue(round(share * 1000))
        self.job.setText(text)

    def show_run(self, run: Run, paused: bool) -> None:
        self._show_state(run.state, run.replayed)
        text = progress_text(run, paused)
        self.job.setText(text)
        self.speed.setVisible(run.running and run.replayed)
        progress = run.progress
        self.bar.setVisible(run.running)
        if progress is not None and progress.workloads:
            self.bar.setRange(0, progress.workloads)
            self.bar.setValue(progress.workloads_done)

    def show_records(self, text: str) -> None:
        self.records.setText(text)

    def _show_state(self, state: GpuState | None, replayed: bool) -> None:
        if state is None or not state.sm_mhz:
            self.gpu.setText(self._gpu_name)
            return
        said = "recorded: " if replayed else ""
        throttled = ", held back" if state.throttled else ""
        self.gpu.setText(f"{said}{state.sm_mhz} MHz  {state.temperature_c} °C  {state.power_w:.0f} W{throttled}")


def progress_text(run: Run, paused: bool = False) -> str:
    """ "region 13 of 57, 212 measured, 9 failed, about 1 min 40 s left"; what is known only."""
    p = run.progress
    said = "" if run.provenance == "measured" else f" ({run.provenance})"
    if run.result is not None and not run.workloads:
        return "the job did not start"
    if run.result is not None:
        verb = "failed" if run.result.error else "stopped" if run.result.cancelled else "finished"
        done = sum(1 for w in run.workloads.values() if w.best or w.vendor)
        failed = sum(w.failed for w in run.workloads.values())
        return (
            f"{verb}: {done} of {len(run.workloads)} workloads, {run.measurements:,} measured, {failed:,} failed{said}"
        )
    if p is None:
        return f"starting{said}" if run.workloads else ""
    parts = [f"workload {min(p.workloads_done + 1, p.workloads)} of {p.workloads}"]
    if p.to_build:
        parts.append(f"{p.built:,} of {p.to_build:,} built")
    parts += [f"{p.measured:,} measured", f"{p.failed:,} failed"]
    if p.eta_s is not None:
        parts.append(f"about {seconds(p.eta_s)} left")
    return ("paused, " if paused else "") + ", ".join(parts) + said
