"""Every action of the window once, with its icon, shortcut and tip; the toolbar and the menus are made of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
    "open": Spec("Open…", "open", "Ctrl+O", "Open an ONNX model or a project"),
    "save_project": Spec("Save project", "save", "Ctrl+S", "Keep the model, the plan and the view in a project file"),
    "save_project_as": Spec("Save project as…", keys="Ctrl+Shift+S"),
    "load_plan": Spec("Load plan…", tip="Load a fusion plan from a file"),
    "save_plan": Spec("Save plan…", tip="Save the fusion plan to a file"),
    "export": Spec("Export…", "export", "Ctrl+E", "Write the tuned model as a CUDA library"),
    "report": Spec("Write report…", "info", tip="One HTML page: the model, its plan, every figure and the charts"),
    "netron": Spec(
        "Open in Netron (browser)", "graph", "", "Show the model in Netron's page, served from this machine"
    ),
    "close_tab": Spec("Close model", keys="Ctrl+W"),
    "quit": Spec("Quit", keys="Ctrl+Q"),
    "fuse": Spec("Fuse selected nodes", "fuse", "Ctrl+G"),
    "split": Spec("Split region", "split", "Ctrl+Shift+G"),
    "pin": Spec("Pin region", "pin", "Ctrl+P"),
    "forbid": Spec("Forbid fusing these", "forbid", "Ctrl+Shift+F"),
    "allow": Spec("Allow fusing again", keys="Ctrl+Shift+L"),
    "rf": Spec("Keep intermediate in registers (RF)", keys="Ctrl+1", checkable=True),
    "smem": Spec("Keep intermediate in shared memory (smem)", keys="Ctrl+2", checkable=True),
    "anywhere": Spec("Keep intermediate where it is fastest", keys="Ctrl+3", checkable=True),
    "reset": Spec("Reset to the automatic plan", keys="Ctrl+Shift+A"),
    "keep_plan": Spec("Keep plan as…", keys="Ctrl+Shift+K", tip="Keep the plan by a name, to switch to and compare"),
    "rename_plan": Spec("Rename plan…", tip="Give the plan in use another name"),
    "delete_plan": Spec("Delete plan", tip="Forget the name of the plan in use; undo brings it back"),
    "compare_plans": Spec("Compare plans…", "compare", "Ctrl+D", "Two plans side by side: time, and every difference"),
    "copy": Spec("Copy name", "copy", "Ctrl+Shift+C", "Copy the names of the selected nodes"),
    "find": Spec("Find…", "search", "Ctrl+F", "Find nodes by name, operator, shape or tensor"),
    "fit": Spec("Fit graph\tF", "fit", "", "Show the whole graph (F)"),
    "lasso": Spec(
        "Lasso\tL", "lasso", "", "Draw a line round nodes to select them (L; or hold Alt and drag)", checkable=True
    ),
    "zoom": Spec("Zoom to selection", keys="Ctrl+Return"),
    "fold": Spec("Fold repeats", "fold", "Ctrl+R", "Show one of each repeated block", checkable=True),
    "back": Spec("Back", "back", "Alt+Left", "Select what was selected before"),
    "forward": Spec("Forward", "forward", "Alt+Right", "Undo Back"),
    "producers": Spec("Go to makers", keys="Ctrl+Up", tip="Select what makes the inputs of the selection"),
    "consumers": Spec("Go to readers", keys="Ctrl+Down", tip="Select what reads the outputs of the selection"),
    "select_region": Spec("Select whole region", keys="Ctrl+Shift+R"),
    "theme": Spec("Switch light and dark", "theme", tip="Switch between light and dark"),
    "theme_system": Spec("System theme", checkable=True),
    "theme_light": Spec("Light theme", checkable=True),
    "theme_dark": Spec("Dark theme", checkable=True),
    "reset_layout": Spec("Reset the layout", tip="Every panel back in its place"),
    "settings": Spec("Settings…", keys="Ctrl+,"),
    "palette": Spec("Commands…", "command", "Ctrl+K", "Every command by name"),
    "shortcuts": Spec("Shortcuts", keys="?"),
    "doctor": Spec(
        "Check this machine…", tip="GPU, driver, compiler, disk: what is found, and how to mend what is not"
    ),
    "tune": Spec("Tune", "tune", "Ctrl+T", "Measure candidates for every region"),
    "tune_selected": Spec(
        "Tune selected regions",
        "tune",
        "Ctrl+Shift+T",
        "Measure the selected regions only; while a job runs they wait in the queue",
    ),
    "retune": Spec("Measure selected regions anew", tip="Leave aside what the records hold of them"),
    "pause": Spec("Pause", "pause", tip="Start nothing new until resumed", checkable=True),
    "cancel": Spec("Cancel", "cancel", tip="Stop; what was measured is kept"),
    "replay": Spec("Replay a recorded run…", "replay", tip="Play a recorded tuning run; nothing is measured"),
    "replay_records": Spec(
        "Replay what is recorded", "replay", "Ctrl+Shift+P", "Play the run or records of the chosen GPU"
    ),
}

PLAN = (
    "fuse split pin | forbid allow | rf smem anywhere | reset | keep_plan rename_plan delete_plan compare_plans"
    " | load_plan save_plan"
)
MENUS = {
    "&File": "open samples recent | save_project save_project_as | export report netron | close_tab quit",
    "&Edit": "undo redo | copy find select_region",
    "&Plan": PLAN,
    "&View": "fit zoom fold lasso | back forward producers consumers | theme_system theme_light theme_dark"
    " | panels reset_layout",
    "&Run": "tune tune_selected retune | pause cancel | replay replay_records",
    "&Help": "palette shortcuts doctor settings",
}


class Actions:
    """The actions by name, the toolbar's choices, and the menus."""

    def __init__(self, window: QMainWindow, theme: Theme) -> None:
        self.window = window
        self.by_name: dict[str, QAction] = {}
        for name, spec in SPECS.items():
            action = QAction(spec.text, window)
            action.setToolTip(_tip(spec))
            action.setData(spec.text)  # what it is called, whatever it says of the selection now
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

    def allow(self, name: str, unless: str = "") -> None:
        """Enable an action; or grey it, with the reason as its tip."""
        action = self.by_name[name]
        action.setEnabled(not unless)
        action.setToolTip(unless or _tip(SPECS[name]))
        action.setStatusTip(unless)

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        more = self.window.findChild(QToolButton, "qt_toolbar_ext_button")
        if more is not None:  # Qt's own arrow to what has no room; it knows no dark
            more.setIcon(icon("forward", theme))
        tokens = {"tune": "accent_text", "cancel": "bad"}
        for name, spec in SPECS.items():
            if spec.icon:
                self.by_name[name].setIcon(icon(spec.icon, theme, tokens.get(name, "muted")))

    def build(self, undo: QAction, redo: QAction) -> QToolBar:
        self._menus(undo, redo)
        return self._toolbar()

    def _menus(self, undo: QAction, redo: QAction) -> None:
        bar = self.window.menuBar()
        self.samples_menu, self.recent_menu, self.panels_menu = (
            QMenu("Open sample", self.window),
            QMenu("Open recent", self.window),
            QMenu("Panels", self.window),
        )
        self.samples_menu.addActions(self.sample_actions)
        own: dict[str, QMenu | QAction] = {"samples": self.samples_menu, "recent": self.recent_menu}
        own |= {"panels": self.panels_menu, "undo": undo, "redo": redo}
        for title, names in MENUS.items():
            menu = bar.addMenu(title)
            self.fill(menu, names, own)
        self.fill(self.plan_menu, PLAN)

    def fill(self, menu: QMenu, names: str, own: Mapping[str, QMenu | QAction] = MappingProxyType({})) -> None:
        """Actions by name, and what the menu alone knows by other names; "|" is a line between."""
        menu.setToolTipsVisible(True)
        for name in names.split():
            item = None if name == "|" else own.get(name) or self.by_name[name]
            if item is None:
                menu.addSeparator()
            elif isinstance(item, QMenu):
                menu.addMenu(item)
            else:
                menu.addAction(item)

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
        for name in ("palette", "theme"):
            self._button(bar, name, small=True)
        self.set_theme(self.theme)
        return bar

    def small_button(self, name: str) -> QToolButton:
        """An action as its icon alone."""
        button = QToolButton()
        button.setDefaultAction(self[name])
        button.setIconSize(QSize(16, 16))
        button.setAccessibleName(self[name].text().replace("…", "").partition("\t")[0])
        return button

    def _button(self, bar: QToolBar, name: str, primary: bool = False, small: bool = False) -> QToolButton:
        if small:
            bar.addWidget(button := self.small_button(name))
            return button
        button = QToolButton()
        button.setDefaultAction(self[name])
        button.setIconSize(QSize(18, 18))
        button.setToolButtonStyle(button.toolButtonStyle().ToolButtonTextBesideIcon)
        button.setAccessibleName(self[name].text().replace("…", "").partition("\t")[0])
        if primary:
            button.setObjectName("primary")
        bar.addWidget(button)
        return button

    def _choices(self, bar: QToolBar) -> None:
        for label, box, tip, width in (
            ("GPU", self.gpu, "The GPU to tune for", 150),
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


def _tip(spec: Spec) -> str:
    return f"{spec.tip or spec.text.replace('…', '')}{f' ({spec.keys})' if spec.keys else ''}"
