"""Fuse, split, reset, save and load: the plan's actions."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app import edits
from app.document import Document
from app.format import tip
from core.errors import BoltError
from core.fusion.files import load_plan, save_plan

if TYPE_CHECKING:
    from app.window import MainWindow

FILES = "Fusion plans (*.json);;All files (*)"
NO_MODEL = edits.Offer(False, "Open a model first.")


class PlanControl(QObject):
    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        a = window.commands
        a["fuse"].triggered.connect(lambda: self._edit(edits.fuse))
        a["split"].triggered.connect(lambda: self._edit(edits.split))
        a["reset"].triggered.connect(lambda: self._edit(edits.reset))
        a["save_plan"].triggered.connect(self.save)
        a["load_plan"].triggered.connect(self.load)

    def enable(self) -> None:
        """Refused actions are grey and their tooltip says why."""
        document, a = self.window.document, self.window.commands
        offers = {
            "fuse": edits.fuse_offer(document) if document else NO_MODEL,
            "split": edits.split_offer(document) if document else NO_MODEL,
            "reset": edits.reset_offer(document) if document else NO_MODEL,
        }
        running = document is not None and self.window.tuning.tuned is document
        for name, offer in offers.items():
            a[name].setEnabled(offer.possible and not running)
            reason = "A tuning job is running." if running and offer.possible else offer.reason
            a[name].setToolTip(tip(reason))
            a[name].setStatusTip("" if a[name].isEnabled() else reason)
        a["load_plan"].setEnabled(document is not None and not running)
        a["save_plan"].setEnabled(document is not None)
        edited = document is not None and document.plan != document.automatic
        a.plan.setText("Plan: edited" if edited else "Plan: automatic")

    def _edit(self, change: Callable[[Document], None]) -> None:
        document = self.window.document
        if document is None:
            return
        try:
            change(document)
        except BoltError as error:
            self.window.messages.show_error(error)

    def save(self) -> bool:
        """Whether it was saved."""
        document = self.window.document
        if document is None:
            return False
        chosen, _ = QFileDialog.getSaveFileName(self.window, "Save the plan", f"{document.title}.plan.json", FILES)
        if not chosen:
            return False
        try:
            save_plan(document.plan, Path(chosen))
        except BoltError as error:
            self.window.messages.show_error(error)
            return False
        document.undo.setClean()
        self.window.log.add("info", f"saved the plan to {chosen}")
        return True

    def load(self) -> None:
        chosen, _ = QFileDialog.getOpenFileName(self.window, "Load a plan", "", FILES)
        document = self.window.document
        if not chosen or document is None:
            return
        graph, dtype = document.graph, document.session.dtype
        self.window.background.start(
            f"loading {Path(chosen).name}",
            lambda job: load_plan(chosen, graph, dtype),
            lambda plan: edits.replace(document, plan, f"load {Path(chosen).name}"),
            self.window.messages.show_error,
        )
