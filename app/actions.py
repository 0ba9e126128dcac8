"""Every action of the window once, with its icon, shortcut and tip; the toolbar and the menus are made of them."""

from dataclasses import dataclass

from PySide6.QtCore import QSize
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QComboBox, QLabel, QMainWindow, QMenu, QSizePolicy, QToolBar, QToolButton, QWidget

from app.theme import Theme, icon
from core.importer.samples import sample_names
from templates.gpu import KNOWN_GPUS

BATCHES = ("model's own", "1", "8", "16", "32", "64", "128")
DTYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}


@dataclass(frozen=True)
class Spec:
    text: str
    icon: str = ""
    keys: str = ""
    tip: str = ""
    checkable: bool = False


SPECS = {
    "open": Spec("Open…", "open", "Ctrl+O", "Open an ONNX model"),
    "load_plan": Spec("Load plan…", tip="Load a fusion plan from a file"),
    "save_plan": Spec("Save plan…", "save", "Ctrl+S", "Save the fusion plan to a file"),
    "export": Spec("Export…", "export", "Ctrl+E", "Write the tuned model as a CUDA library"),
    "netron": Spec(
        "Open in Netron (browser)", "graph", "", "Show the model in Netron's page, served from this machine"
    ),
    "quit": Spec("Quit", keys="Ctrl+Q"),
    "fuse": Spec("Fuse selected nodes", "fuse", "Ctrl+G"),
    "split": Spec("Split region", "split", "Ctrl+Shift+G"),
    "reset": Spec("Reset to the automatic plan"),
    "copy": Spec("Copy name", "copy", "Ctrl+Shift+C", "Copy the names of the selected nodes"),
    "find": Spec("Find…", "search", "Ctrl+F", "Find nodes by name, operator, shape or tensor"),
    "fit": Spec("Fit graph\tF", "fit", "", "Show the whole graph (F)"),
    "zoom": Spec("Zoom to selection", keys="Ctrl+Return"),
    "theme": Spec("Dark", "theme", tip="Switch between light and dark", checkable=True),
    "tune": Spec("Tune", "tune", "Ctrl+T", "Measure candidates for every region"),
    "pause": Spec("Pause", "pause", tip="Start nothing new until resumed", checkable=True),
    "cancel": Spec("Cancel", "cancel", tip="Stop; what was measured is kept"),
    "replay": Spec("Replay a recorded run…", "replay", tip="Play a recorded tuning run; nothing is measured"),
}


class Actions:
    """The actions by name, the toolbar's choices, and the menus."""

    def __init__(self, window: QMainWindow, theme: Theme) -> None:
        self.window = window
        self.by_name: dict[str, QAction] = {}
        for name, spec in SPECS.items():
            action = QAction(spec.text, window)
            action.setToolTip(f"{spec.tip or spec.text.replace('…', '')}{f' ({spec.keys})' if spec.keys else ''}")
            action.setCheckable(spec.checkable)
            if spec.keys:
                action.setShortcut(QKeySequence(spec.keys))
            self.by_name[name] = action
            window.addAction(action)
        self.sample_actions = [QAction(name, window) for name in sample_names()]
        self.plan_menu = QMenu("Plan", window)
        self.plan, self.gpu, self.batch, self.dtype = QToolButton(), QComboBox(), QComboBox(), QComboBox()
        self.set_theme(theme)

    def __getitem__(self, name: str) -> QAction:
        return self.by_name[name]

    def set_theme(self, theme: Theme) -> None:
        tokens = {"tune": "accent_text", "cancel": "bad"}
        for name, spec in SPECS.items():
            if spec.icon:
                self.by_name[name].setIcon(icon(spec.icon, theme, tokens.get(name, "muted")))

    def build(self, undo: QAction, redo: QAction) -> QToolBar:
        self._menus(undo, redo)
        return self._toolbar()

    def _menus(self, undo: QAction, redo: QAction) -> None:
        bar = self.window.menuBar()
        file = bar.addMenu("&File")
        file.addAction(self["open"])
        samples = file.addMenu("Open sample")
        samples.addActions(self.sample_actions)
        file.addSeparator()
        file.addActions([self["load_plan"], self["save_plan"]])
        file.addSeparator()
        file.addActions([self["export"], self["netron"]])
        file.addSeparator()
        file.addAction(self["quit"])
        edit = bar.addMenu("&Edit")
        edit.addActions([undo, redo])
        edit.addSeparator()
        edit.addActions([self["fuse"], self["split"], self["reset"]])
        edit.addSeparator()
        edit.addActions([self["copy"], self["find"]])
        view = bar.addMenu("&View")
        view.addActions([self["fit"], self["zoom"], self["theme"]])
        run = bar.addMenu("&Run")
        run.addActions([self["tune"], self["pause"], self["cancel"]])
        run.addSeparator()
        run.addAction(self["replay"])
        for menu in (file, edit, view, run, self.plan_menu):
            menu.setToolTipsVisible(True)
        self.plan_menu.addActions([self["fuse"], self["split"], self["reset"]])
        self.plan_menu.addSeparator()
        self.plan_menu.addActions([self["load_plan"], self["save_plan"]])

    def _toolbar(self) -> QToolBar:
        bar = self.window.addToolBar("Main")
        bar.setObjectName("Main")
        bar.setMovable(False)
        self._button(bar, "open")
        bar.addSeparator()
        self.plan.setMenu(self.plan_menu)
        self.plan.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.plan.setText("Plan: automatic")
        self.plan.setToolTip("The fusion plan: change it, save it, load one")
        bar.addWidget(self.plan)
        bar.addSeparator()
        self._choices(bar)
        bar.addSeparator()
        self._button(bar, "tune", primary=True)
        self._button(bar, "pause")
        self._button(bar, "cancel")
        bar.addSeparator()
        self._button(bar, "export")
        stretch = QWidget()
        stretch.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        bar.addWidget(stretch)
        for name in ("find", "fit", "theme"):
            button = self._button(bar, name)
            button.setToolButtonStyle(button.toolButtonStyle().ToolButtonIconOnly)
        return bar

    def _button(self, bar: QToolBar, name: str, primary: bool = False) -> QToolButton:
        button = QToolButton()
        button.setDefaultAction(self[name])
        button.setIconSize(QSize(18, 18))
        button.setText(self[name].text().replace("…", ""))
        button.setToolButtonStyle(button.toolButtonStyle().ToolButtonTextBesideIcon)
        button.setAccessibleName(self[name].text().replace("…", "").partition("\t")[0])
        if primary:
            button.setObjectName("primary")
        bar.addWidget(button)
        return button

    def _choices(self, bar: QToolBar) -> None:
        for label, box, tip, width in (
            ("GPU", self.gpu, "The GPU to tune for", 170),
            ("batch", self.batch, "Batch size: the first dimension of the model's inputs", 100),
            ("type", self.dtype, "What the kernels compute in; sums are fp32", 70),
        ):
            text = QLabel(label)
            text.setBuddy(box)
            box.setToolTip(tip)
            box.setAccessibleName(label)
            box.setMinimumWidth(width)
            bar.addWidget(text)
            bar.addWidget(box)
        self.batch.addItems(BATCHES)
        for shown, value in DTYPES.items():
            self.dtype.addItem(shown, value)
        self.set_gpus(None)

    def set_gpus(self, here: str | None) -> None:
        """This machine's GPU first, if it has one, then those that can be targeted without it."""
        self.gpu.blockSignals(True)
        self.gpu.clear()
        if here is not None:
            self.gpu.addItem(f"{here.removeprefix('NVIDIA ')} (here)", here)
        names = sorted(KNOWN_GPUS, key=lambda n: n != "h200")
        for name in names:
            self.gpu.addItem(KNOWN_GPUS[name].name.removeprefix("NVIDIA "), name)
        self.gpu.blockSignals(False)
