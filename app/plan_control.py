"""Fuse, split, pin, forbid, place, reset: the edits of a region, and which of them the selection allows."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app import edits
from app.document import Document
from app.format import tip
from app.kept_plans import KeptPlans
from core.errors import BoltError
from templates.gpu import known_gpu
from templates.types import Residence

if TYPE_CHECKING:
    from app.window import MainWindow

NO_MODEL = edits.Offer(False, "Open a model first.")
EDITS: dict[str, Callable[[Document], None]] = {
    "fuse": edits.fuse,
    "split": edits.split,
    "pin": edits.pin,
    "forbid": edits.forbid,
    "allow": edits.allow,
    "rf": lambda document: edits.place(document, Residence.RF),
    "smem": lambda document: edits.place(document, Residence.SMEM),
    "anywhere": lambda document: edits.place(document, None),
    "reset": edits.reset,
}
OFFERS: dict[str, Callable[[Document], edits.Offer]] = {
    "fuse": edits.fuse_offer,
    "split": edits.split_offer,
    "pin": edits.pin_offer,
    "forbid": edits.forbid_offer,
    "allow": edits.allow_offer,
    "rf": lambda document: edits.place_offer(document, Residence.RF),
    "smem": lambda document: edits.place_offer(document, Residence.SMEM),
    "anywhere": lambda document: edits.place_offer(document, None),
    "reset": edits.reset_offer,
}
RESIDENCES = {"rf": Residence.RF, "smem": Residence.SMEM, "anywhere": None}


class PlanControl(QObject):
    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self.window = window
        self.kept = KeptPlans(window)
        for name, change in EDITS.items():
            window.commands[name].triggered.connect(partial(self._edit, change))
        window.commands.gpu.currentIndexChanged.connect(self._aim)
        window.documents.opened.connect(self._aim)

    def _aim(self) -> None:
        """Which fusions and residences have kernels depends on the GPU."""
        gpu = known_gpu(str(self.window.commands.gpu.currentData()))
        for document in self.window.documents.all:
            document.gpu = gpu
        self.enable()

    def enable(self) -> None:
        """Refused actions are grey and their tooltip says why."""
        document, a = self.window.document, self.window.commands
        running = document is not None and self.window.tuning.tuned is document
        for name, offered in OFFERS.items():
            offer = offered(document) if document is not None else NO_MODEL
            reason = "A tuning job is running." if running and offer.possible else offer.reason
            a[name].setEnabled(offer.possible and not running)
            keys = a[name].shortcut().toString() if a[name].isEnabled() else ""
            a[name].setToolTip(tip(f"{reason} ({keys})" if keys else reason))
            a[name].setStatusTip("" if a[name].isEnabled() else reason)
        self._say_state(document)
        self.kept.enable(running)

    def _say_state(self, document: Document | None) -> None:
        a = self.window.commands
        regions = document.selected_regions() if document is not None else []
        pinned = bool(regions) and all(r.pinned for r in regions)
        many = f"{len(regions)} regions" if len(regions) > 1 else "region"
        a["pin"].setText(f"{'Unpin' if pinned else 'Pin'} {many}")
        region = document.selected_region() if document is not None else None
        for name, residence in RESIDENCES.items():
            a[name].setChecked(region is not None and a[name].isEnabled() and region.residence is residence)

    def _edit(self, change: Callable[[Document], None], *_: object) -> None:
        document = self.window.document
        if document is None:
            return
        try:
            change(document)
        except BoltError as error:
            self.window.messages.show_error(error)
        self._say_state(document)  # Qt has ticked a checkable action, whatever came of it
