"""Listening to one object at a time: a panel follows the open document and lets go of the one before."""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject


class Follower:
    """Holds connections; the next `follow` ends them."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def follow(self, *links: tuple[Any, Callable[..., None]]) -> None:
        """Connect each signal to its slot, after what was followed before is let go."""
        for connection in self._held:
            QObject.disconnect(connection)
        self._held = [signal.connect(slot) for signal, slot in links]
