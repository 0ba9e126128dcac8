"""The few things a user may set."""

from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QLineEdit,
    QWidget,
)

from app.settings import SPEEDS, THEMES, Settings


class SettingsDialog(QDialog):
    """Edits a Settings in place when accepted. `theme_name` is what was chosen."""

    def __init__(self, settings: Settings, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.setMinimumWidth(420)
        self.settings = settings
        self.theme, self.speed = QComboBox(), QComboBox()
        for name in THEMES:
            self.theme.addItem(name.capitalize(), name)
        self.theme.setCurrentIndex(THEMES.index(settings.theme))
        for speed in SPEEDS:
            self.speed.addItem(f"{speed}x", float(speed))
        self.speed.setCurrentIndex(min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - settings.speed)))
        self.budget = QDoubleSpinBox()
        self.budget.setRange(0, 24 * 60)
        self.budget.setDecimals(0)
        self.budget.setSuffix(" min")
        self.budget.setSpecialValueText("no limit")
        self.budget.setValue(settings.budget_minutes or 0)
        self.scheduler = QLineEdit(settings.scheduler)
        self.scheduler.setPlaceholderText("this machine")
        self.scheduler.setToolTip("The address of a Dask scheduler whose workers compile and measure: 127.0.0.1:8786")
        self.autosave = QCheckBox("Keep edited plans, to restore them after a crash")
        self.autosave.setChecked(settings.autosave)
        self.motion = QCheckBox("Move smoothly when zooming, where the system allows motion")
        self.motion.setChecked(settings.motion)
        form = QFormLayout(self)
        form.setContentsMargins(20, 20, 20, 16)
        form.setVerticalSpacing(12)
        form.addRow("Theme", self.theme)
        form.addRow("Replay at", self.speed)
        form.addRow("A tuning job takes at most", self.budget)
        form.addRow("Tune on the workers of", self.scheduler)
        form.addRow("", self.autosave)
        form.addRow("", self.motion)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        form.addRow(buttons)

    @property
    def theme_name(self) -> str:
        return str(self.theme.currentData())

    def accept(self) -> None:
        self.settings.speed = float(self.speed.currentData())
        self.settings.budget_minutes = self.budget.value() or None
        self.settings.scheduler = self.scheduler.text()
        self.settings.autosave = self.autosave.isChecked()
        self.settings.motion = self.motion.isChecked()
        super().accept()
