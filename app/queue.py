"""What is to be tuned next: regions that wait while a job runs, in an order that the user may change."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.document import Document
from templates.workload import Workload


@dataclass(frozen=True)
class Wish:
    """Some workloads of a document; `anew` leaves aside what the records hold of them.

    With a `candidate` it is that one of the one workload that is measured again.
    """

    document: Document
    workloads: tuple[Workload, ...]
    title: str
    anew: bool = False
    candidate: str = ""


class Queue(QObject):
    """First in, first out, but for what is moved up. `changed` comes after every change."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.wishes: list[Wish] = []

    def add(self, wish: Wish) -> None:
        self.wishes.append(wish)
        self.changed.emit()

    def take(self) -> Wish | None:
        """The next one, no longer waiting."""
        if not self.wishes:
            return None
        wish = self.wishes.pop(0)
        self.changed.emit()
        return wish

    def move(self, at: int, by: int) -> int:
        """Move one up (-1) or down (1); returns where it is now."""
        to = min(max(at + by, 0), len(self.wishes) - 1)
        self.wishes.insert(to, self.wishes.pop(at))
        self.changed.emit()
        return to

    def remove(self, at: int) -> None:
        self.wishes.pop(at)
        self.changed.emit()

    def forget(self, document: Document) -> None:
        """Its tab was closed."""
        self.wishes = [w for w in self.wishes if w.document is not document]
        self.changed.emit()

    def clear(self) -> None:
        self.wishes.clear()
        self.changed.emit()
