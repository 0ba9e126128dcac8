"""Plans by name: keep, switch, rename, delete, compare; and plans in files of their own."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QFileDialog, QInputDialog, QLineEdit

from app import edits
from app.palette import Entry
from app.plan_compare import PlanCompare
from core.errors import BoltError
from core.fusion.files import load_plan, save_plan

if TYPE_CHECKING:
    from app.window import MainWindow

FILES = "Fusion plans (*.json);;All files (*)"


class KeptPlans(QObject):
    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self.comparison: PlanCompare | None = None
        self._listed: list[QAction] = []
        self._group = QActionGroup(self)
        a = window.commands
        a["keep_plan"].triggered.connect(self.keep)
        a["rename_plan"].triggered.connect(self.rename)
        a["delete_plan"].triggered.connect(self.delete)
        a["compare_plans"].triggered.connect(self.compare)
        a["save_plan"].triggered.connect(self.save)
        a["load_plan"].triggered.connect(self.load)
        a.plan_menu.aboutToShow.connect(self._list)

    @property
    def names(self) -> list[str]:
        """The kept plans; "" for the automatic one comes first."""
        document = self.window.document
        return ["", *document.plans.kept] if document is not None else []

    def enable(self, running: bool) -> None:
        document, a = self.window.document, self.window.commands
        here = document is not None
        named = document is not None and bool(document.plans.name)
        why = "A tuning job is running." if running else "" if here else "Open a model first."
        unnamed = why or ("" if named else "The plan is none of those that are kept by name.")
        alone = "" if document is not None and (document.plans.kept or document.plan != document.automatic) else (
            "There is one plan only: change it, or keep one by name, to have two to compare."
        )  # fmt: skip
        for name, reason in (
            ("keep_plan", "" if here else "Open a model first."),
            ("rename_plan", unnamed),
            ("delete_plan", unnamed),
            ("compare_plans", alone if here else "Open a model first."),
            ("load_plan", why),
            ("save_plan", "" if here else "Open a model first."),
        ):
            a.allow(name, reason)
        a.plan.setText(f"Plan: {document.plan_title}" if document is not None else "Plan: automatic")

    def _list(self) -> None:
        """The menu's first lines: every plan, the one in use ticked."""
        menu, document = self.window.commands.plan_menu, self.window.document
        for action in self._listed:
            menu.removeAction(action)
            action.deleteLater()
        self._listed = []
        before = menu.actions()[0]
        for name in self.names:
            action = QAction(name.replace("&", "&&") or "Automatic plan", self, checkable=True)
            action.setChecked(document is not None and document.plan_title == (name or "automatic"))
            action.setEnabled(document is not None and self.window.tuning.tuned is not document)
            action.triggered.connect(partial(self.switch, name))
            self._group.addAction(action)
            menu.insertAction(before, action)
            self._listed.append(action)
        if self._listed:
            self._listed.append(menu.insertSeparator(before))

    def entries(self) -> list[Entry]:
        """The palette's lines for them."""
        document = self.window.document
        busy = document is not None and self.window.tuning.tuned is document
        reason = "A tuning job is running." if busy else ""
        return [Entry(f"Switch to plan {n or 'automatic'}", partial(self.switch, n), "", reason) for n in self.names]

    def switch(self, name: str, *_: object) -> None:
        if self.window.document is not None:
            edits.switch(self.window.document, name)

    def keep(self) -> None:
        """Keep the plan by a name that is asked for; the same name again replaces what it named."""
        document = self.window.document
        if document is None:
            return
        name = self._ask("Keep the plan", "Name of the plan", document.plans.name or f"plan {len(self.names)}")
        if name:
            edits.keep(document, name)

    def rename(self) -> None:
        document = self.window.document
        if document is None or not document.plans.name:
            return
        old = document.plans.name
        new = self._ask("Rename the plan", f"New name of {old}", old)
        if new in document.plans.kept and new != old:
            self.window.messages.show_text("warning", f"There is a plan named {new} already. Choose another name.")
        elif new:
            edits.rename(document, old, new)

    def delete(self) -> None:
        """Undo brings it back, so nothing is asked."""
        document = self.window.document
        if document is not None and document.plans.name:
            edits.drop(document, document.plans.name)

    def _ask(self, title: str, label: str, name: str) -> str:
        text, accepted = QInputDialog.getText(self.window, title, label, QLineEdit.EchoMode.Normal, name)
        name = " ".join(text.split())
        if accepted and name.lower() == "automatic":
            self.window.messages.show_text("warning", "The automatic plan has that name. Choose another one.")
            return ""
        return name if accepted else ""

    def compare(self) -> None:
        document = self.window.document
        if document is None:
            return
        if self.comparison is None:
            self.comparison = PlanCompare(self.window)
        self.comparison.open_for(document)

    # Files ----------------------------------------------------------------------------------------------------------

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
            lambda plan: edits.replace_plan(document, plan, f"load {Path(chosen).name}"),
            self.window.messages.show_error,
        )
