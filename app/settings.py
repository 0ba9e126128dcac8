"""What the window remembers between runs: in one INI file of the user's, which a person can read."""

from typing import Any

from PySide6.QtCore import QByteArray, QSettings

from core.paths import config_dir

THEMES = ("system", "light", "dark")
MOST_RECENT = 8
SPEEDS = (1, 2, 4, 8, 16, 32, 100)  # of a replay
DEFAULT_SPEED = 8.0


class Settings:
    """Values with their defaults; each is on disk soon after it is set."""

    def __init__(self) -> None:
        self.store = QSettings(str(config_dir() / "window.ini"), QSettings.Format.IniFormat)

    def _text(self, key: str, default: str) -> str:
        return str(self.store.value(key, default))

    @property
    def theme(self) -> str:
        """ "system", "light" or "dark"."""
        found = self._text("theme", "system")
        return found if found in THEMES else "system"

    @theme.setter
    def theme(self, value: str) -> None:
        self.store.setValue("theme", value)

    @property
    def speed(self) -> float:
        """How many times faster a recorded run plays than it was."""
        try:
            return min(100.0, max(1.0, float(self._text("replay/speed", str(DEFAULT_SPEED)))))
        except ValueError:
            return DEFAULT_SPEED

    @speed.setter
    def speed(self, value: float) -> None:
        self.store.setValue("replay/speed", value)

    @property
    def budget_minutes(self) -> float | None:
        """The longest a tuning job may take; None: as long as it needs."""
        try:
            return float(self._text("tune/budget", "0")) or None
        except ValueError:
            return None

    @budget_minutes.setter
    def budget_minutes(self, value: float | None) -> None:
        self.store.setValue("tune/budget", value or 0)

    @property
    def scheduler(self) -> str:
        """The address of the scheduler whose workers tune; "": this machine does."""
        return self._text("tune/scheduler", "").strip()

    @scheduler.setter
    def scheduler(self, value: str) -> None:
        self.store.setValue("tune/scheduler", value.strip())

    @property
    def autosave(self) -> bool:
        return self._text("autosave", "true") == "true"

    @autosave.setter
    def autosave(self, value: bool) -> None:
        self.store.setValue("autosave", "true" if value else "false")

    @property
    def motion(self) -> bool:
        """Whether the view may move to a place; it never does where the system asks for no motion."""
        return self._text("motion", "true") == "true"

    @motion.setter
    def motion(self, value: bool) -> None:
        self.store.setValue("motion", "true" if value else "false")

    @property
    def recent(self) -> list[str]:
        """Files opened last, the newest first."""
        found: Any = self.store.value("recent", [])
        return [found] if isinstance(found, str) else [str(f) for f in found or []]

    def add_recent(self, path: str) -> None:
        self.store.setValue("recent", [path, *(f for f in self.recent if f != path)][:MOST_RECENT])

    def forget_recent(self) -> None:
        self.store.remove("recent")

    def keep_layout(self, geometry: QByteArray, state: QByteArray) -> None:
        self.store.setValue("window/geometry", geometry)
        self.store.setValue("window/state", state)

    @property
    def layout(self) -> tuple[QByteArray, QByteArray] | None:
        geometry: Any = self.store.value("window/geometry")
        state: Any = self.store.value("window/state")
        sound = isinstance(geometry, QByteArray) and isinstance(state, QByteArray)
        return (geometry, state) if sound else None

    def forget_layout(self) -> None:
        self.store.remove("window")
