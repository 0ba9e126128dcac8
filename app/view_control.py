"""How things are looked at: zoom, folding, back and forward, themes, panels, the palette and the sheet of keys."""

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QActionGroup, QGuiApplication
from PySide6.QtWidgets import QApplication

from app import theme
from app.doctor import Doctor
from app.document import Document
from app.graph.item import Mode
from app.graph.motion import desktop_wants_motion
from app.palette import Entry, Palette, entry_of
from app.settings import THEMES
from app.settings_dialog import SettingsDialog
from app.shortcuts import ShortcutSheet

if TYPE_CHECKING:
    from app.window import MainWindow

MOST_NODES = 4000  # that the palette lists


class ViewControl(QObject):
    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        a, canvas = window.commands, window.canvas
        a["find"].triggered.connect(canvas.finder.open_finder)
        a["fit"].triggered.connect(canvas.view.fit_all)
        a["lasso"].toggled.connect(canvas.view.set_lasso)
        canvas.view.lasso_wanted.connect(a["lasso"].setChecked)
        self._desktop_moves = True  # until it has said otherwise
        self._choose_motion()
        window.background.start(
            "asking for reduced motion", lambda job: desktop_wants_motion(), self._desktop_said, lambda error: None
        )
        a["zoom"].triggered.connect(self.zoom_to_selection)
        a["copy"].triggered.connect(self.copy_names)
        a["fold"].triggered.connect(window.documents.fold)
        a["back"].triggered.connect(lambda: self._travel(back=True))
        a["forward"].triggered.connect(lambda: self._travel(back=False))
        a["producers"].triggered.connect(lambda: self._neighbours(downwards=False))
        a["consumers"].triggered.connect(lambda: self._neighbours(downwards=True))
        a["select_region"].triggered.connect(self.select_region)
        a["palette"].triggered.connect(self.open_palette)
        a["shortcuts"].triggered.connect(self.open_shortcuts)
        a["settings"].triggered.connect(self.open_settings)
        a["doctor"].triggered.connect(self.open_doctor)
        a["reset_layout"].triggered.connect(window.reset_layout)
        self._themes()

    def _themes(self) -> None:
        group = QActionGroup(self)
        for name in THEMES:
            action = self.window.commands[f"theme_{name}"]
            group.addAction(action)
            action.setChecked(name == self.window.settings.theme)
            action.triggered.connect(lambda _=False, name=name: self.choose_theme(name))
        self.window.commands["theme"].triggered.connect(
            lambda: self.choose_theme("light" if self.window.theme.name == "dark" else "dark")
        )
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._system_changed)

    def choose_theme(self, name: str) -> None:
        self.window.settings.theme = name
        self.window.commands[f"theme_{name}"].setChecked(True)
        self.set_theme(theme.theme(theme.system_theme() if name == "system" else name))

    def _system_changed(self, scheme: Qt.ColorScheme) -> None:
        if self.window.settings.theme == "system":
            self.set_theme(theme.theme(theme.system_theme()))

    def set_theme(self, chosen: theme.Theme) -> None:
        window = self.window
        window.theme = chosen
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        theme.apply(app, chosen)
        for part in (window.commands, window.messages, window.canvas, window.welcome):
            part.set_theme(chosen)
        for panel in window.panels:
            panel.set_theme(chosen)

    def take_view(self, document: Document) -> None:
        """What the project says of the view, once."""
        view, document.wanted_view = document.wanted_view, {}
        document.select_names([str(n) for n in view.get("selection") or ()])
        mode = self.window.canvas.legend.mode.findText(str(view.get("mode", "")))
        if mode >= 0:
            self.window.canvas.legend.mode.setCurrentIndex(mode)
        place = view.get("place") or document.place
        if isinstance(place, list | tuple) and len(place) == 3 and all(isinstance(v, int | float) for v in place):
            self.window.canvas.view.go_to((float(place[0]), float(place[1]), float(place[2])))

    # The graph ----------------------------------------------------------------------------------------------------

    def enable(self) -> None:
        document, a = self.window.document, self.window.commands
        for name in ("find", "fit", "lasso", "save_project", "save_project_as", "report", "netron", "close_tab"):
            a[name].setEnabled(document is not None)
        for name in ("copy", "zoom", "producers", "consumers"):
            a[name].setEnabled(document is not None and bool(document.selection))
        a["select_region"].setEnabled(document is not None and document.selected_region() is not None)
        a["back"].setEnabled(document is not None and document.can_go_back)
        a["forward"].setEnabled(document is not None and document.can_go_forward)
        foldable = document is not None and bool(document.repeats)
        a["fold"].setEnabled(foldable)
        a["fold"].setChecked(document is not None and bool(document.model.folds))
        a["fold"].setToolTip(
            "Show one of each repeated block, and how often it comes" if foldable else "No block repeats in this model"
        )

    def zoom_to_selection(self) -> None:
        if self.window.document is not None:
            self.window.canvas.view.reveal(self.window.document.selection)

    def copy_names(self) -> None:
        if self.window.document is not None:
            QGuiApplication.clipboard().setText("\n".join(self.window.document.selected_nodes()))

    def select_region(self) -> None:
        document = self.window.document
        if document is not None and (region := document.selected_region()) is not None:
            document.select_region(region)
            self.zoom_to_selection()

    def _travel(self, back: bool) -> None:
        document = self.window.document
        if document is not None:
            (document.back if back else document.forward)()
            self.zoom_to_selection()

    def _neighbours(self, downwards: bool) -> None:
        document = self.window.document
        if document is not None and (boxes := document.neighbours(downwards)):
            document.select(boxes)
            self.zoom_to_selection()

    # Dialogs ------------------------------------------------------------------------------------------------------

    def open_palette(self) -> None:
        Palette(self.entries(), self.window.theme, self.window).open()

    def entries(self) -> list[Entry]:
        """Every command, sample and panel; of the open model its regions and nodes."""
        window = self.window
        commands = [a for n, a in window.commands.by_name.items() if n != "palette"]
        found = [entry_of(a) for a in (*commands, window.undo_action, window.redo_action)]
        found += [entry_of(a, "Open sample ") for a in window.commands.sample_actions]
        bottom, modes = window.bottom, window.canvas.legend.mode
        found += [Entry(f"Show {bottom.tabText(i)}", partial(bottom.setCurrentIndex, i)) for i in range(bottom.count())]
        found += [Entry(f"Colour by {m.value.lower()}", partial(modes.setCurrentIndex, i)) for i, m in enumerate(Mode)]
        found += window.plans.kept.entries()
        document = window.document
        if document is not None:
            names = [n.name for n in document.graph.nodes[:MOST_NODES]]
            found += [Entry(f"Go to region {r.id}", partial(self._go, list(r.nodes))) for r in document.plan.regions]
            found += [Entry(f"Go to node {n}", partial(self._go, [n])) for n in names]
        return found

    def _go(self, names: list[str]) -> None:
        if self.window.document is not None:
            self.window.document.select_names(names)
            self.zoom_to_selection()

    def open_shortcuts(self) -> None:
        sheet = ShortcutSheet([*self.window.commands.by_name.values()], self.window)
        sheet.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        sheet.open()

    def open_settings(self) -> None:
        dialog = SettingsDialog(self.window.settings, self.window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self._take_settings(dialog))
        dialog.open()

    def _take_settings(self, dialog: SettingsDialog) -> None:
        self.choose_theme(dialog.theme_name)
        self._choose_motion()
        self.window.tuning.enable()  # a scheduler's workers may be named now

    def _desktop_said(self, moves: bool) -> None:
        self._desktop_moves = moves
        if not moves:
            self._choose_motion()

    def _choose_motion(self) -> None:
        self.window.canvas.view.motion.wanted = self.window.settings.motion and self._desktop_moves

    def open_doctor(self) -> None:
        doctor = Doctor(self.window.background, self.window.theme, self.window)
        doctor.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        doctor.open()
