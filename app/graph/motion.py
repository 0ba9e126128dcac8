"""The view's way from one place to another: short, so that the eye can follow, and off where motion is not wanted."""

import os
import subprocess
from collections.abc import Callable
from math import exp, log

from PySide6.QtCore import QEasingCurve, QObject, QPointF, QRect, QRectF, QVariantAnimation
from PySide6.QtWidgets import QApplication, QStyle

LEAST, MOST = 0.01, 3.0  # zoom
ROUND = 12  # pixels round an area that fills the view
TRAVEL_MS = 150
WHEEL_MS = 110
ASK_GNOME = ("gsettings", "get", "org.gnome.desktop.interface", "enable-animations")


def system_wants_motion() -> bool:
    """Whether the desktop lets widgets move: its style tells animations a duration of nothing where it does not."""
    return QApplication.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration) > 0


def desktop_wants_motion() -> bool:
    """What GNOME is set to, which Qt's styles do not ask; True on other desktops, whose styles do. Takes some 10 ms."""
    if "GNOME" not in os.environ.get("XDG_CURRENT_DESKTOP", "").upper().split(":"):
        return True
    try:
        found = subprocess.run(ASK_GNOME, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True  # a desktop that does not answer has asked for nothing
    return found.stdout.strip() != "false"


def place_of(area: QRectF, port: QRect) -> tuple[float, QPointF]:
    """The zoom, at most 100 %, and the centre at which an area of the scene fills a viewport."""
    port = port.adjusted(ROUND, ROUND, -ROUND, -ROUND)
    scale = min(port.width() / max(1.0, area.width()), port.height() / max(1.0, area.height()))
    return min(1.0, max(LEAST, scale)), area.center()


def held_inside(zoom: float, centre: QPointF, bounds: QRectF, port: QRectF) -> QPointF:
    """The centre, moved so that a viewport shows no emptiness beside the bounds while there is more within them."""
    wide, high = port.width() / zoom / 2, port.height() / zoom / 2
    return QPointF(
        _clamped(centre.x(), bounds.left() + wide, bounds.right() - wide),
        _clamped(centre.y(), bounds.top() + high, bounds.bottom() - high),
    )


def _clamped(value: float, low: float, high: float) -> float:
    """Within the bounds; their middle where they cross."""
    return min(max(value, low), high) if low <= high else (low + high) / 2


class Motion(QObject):
    """One movement at a time, from what `now` tells to a target, told in steps to `show`; a new one takes over midway.

    A place is (zoom, centre in scene units). With `wanted` off the target is shown at once.
    """

    def __init__(
        self,
        now: Callable[[], tuple[float, QPointF]],
        show: Callable[[float, QPointF], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.wanted = True
        self._now, self._show = now, show
        self._step: Callable[[float], None] = lambda share: None
        self._end: tuple[float, QPointF] | None = None
        self._clock = QVariantAnimation(self)
        self._clock.setStartValue(0.0)
        self._clock.setEndValue(1.0)
        self._clock.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._clock.valueChanged.connect(lambda share: self._step(float(share)))
        self._clock.finished.connect(self._arrived)

    @property
    def running(self) -> bool:
        return self._clock.state() is QVariantAnimation.State.Running

    @property
    def target_zoom(self) -> float:
        """Where the zoom is going; what it is while nothing moves."""
        return self._end[0] if self._end is not None else self._now()[0]

    def stop(self) -> None:
        """Stay where the movement is now."""
        self._clock.stop()
        self._end = None

    def travel(self, zoom: float, centre: QPointF) -> None:
        """To a place. What lies under the eye keeps its pace: the zoom changes by equal factors in equal times."""
        start, origin = self._now()
        wider = zoom / start

        def step(share: float) -> None:
            now = start * exp(log(wider) * share)
            # The centre moves so that zoom and pan end together: as the inverse of the zoom does, or evenly.
            moved = share if abs(wider - 1) < 1e-6 else (1 / now - 1 / start) / (1 / zoom - 1 / start)
            self._show(now, origin + (centre - origin) * moved)

        self._run(step, (zoom, centre), TRAVEL_MS)

    def zoom_about(self, zoom: float, fixed: QPointF) -> None:
        """To a zoom, with one point of the scene held where it is in the window."""
        start, origin = self._now()

        def place(share: float) -> tuple[float, QPointF]:
            now = start * exp(log(zoom / start) * share)
            return now, fixed + (origin - fixed) * (start / now)

        self._run(lambda share: self._show(*place(share)), place(1.0), WHEEL_MS)

    def _run(self, step: Callable[[float], None], end: tuple[float, QPointF], duration: int) -> None:
        self.stop()
        if not self.wanted or not system_wants_motion():
            self._show(*end)
            return
        self._step, self._end = step, end
        self._clock.setDuration(duration)
        self._clock.start()

    def _arrived(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            self._show(*end)
