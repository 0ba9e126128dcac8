"""Light and dark from one token table; Qt's palette, the style sheet, the graph and the charts all read it."""

import json
from functools import cache
from string import Template

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtWidgets import QApplication

from core.paths import RESOURCES

BASE_PX = 13


class Theme:
    """The tokens of one theme. `theme["accent"]` is a QColor, `theme.hex("accent")` its text form."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._hex: dict[str, str] = json.loads((RESOURCES / "themes" / f"{name}.json").read_text())
        self._colors = {token: QColor(value) for token, value in self._hex.items()}

    def __getitem__(self, token: str) -> QColor:
        return self._colors[token]

    def hex(self, token: str) -> str:
        return self._hex[token]

    def soft(self, token: str, alpha: int) -> QColor:
        """The colour with alpha 0 to 255."""
        color = QColor(self._colors[token])
        color.setAlpha(alpha)
        return color

    def blend(self, low: str, high: str, t: float) -> QColor:
        """Between two tokens; t in [0, 1]."""
        a, b = self._colors[low], self._colors[high]
        t = min(1.0, max(0.0, t))
        return QColor.fromRgbF(
            a.redF() + (b.redF() - a.redF()) * t,
            a.greenF() + (b.greenF() - a.greenF()) * t,
            a.blueF() + (b.blueF() - a.blueF()) * t,
        )

    def heat(self, share: float) -> QColor:
        """One hue, light to dark: a share of the longest time, 0 to 1, by its square root so that short ones differ."""
        return self.blend("heat_low", "heat_high", max(0.0, share) ** 0.5)

    def speedup(self, ratio: float) -> QColor:
        """Diverging: blue faster than the vendor, grey equal, orange slower; saturates at 1.6x and 1/1.6."""
        from math import log

        t = log(ratio) / log(1.6) if ratio > 0 else -1.0
        return self.blend("even", "faster", t) if t >= 0 else self.blend("even", "slower", -t)


@cache
def theme(name: str) -> Theme:
    return Theme(name)


def system_theme() -> str:
    """What the desktop asks for; "light" where it does not say."""
    return "dark" if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"


def base_font(px: int = BASE_PX, bold: bool = False) -> QFont:
    """The system font with tabular figures, so that columns of numbers line up."""
    font = QFont(QGuiApplication.font())
    font.setPixelSize(px)
    font.setBold(bold)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def apply(app: QApplication, chosen: Theme) -> None:
    """Fusion, the palette and the style sheet of the theme."""
    app.setStyle("Fusion")
    app.setFont(base_font())
    app.setPalette(_palette(chosen))
    tokens = {token.replace(".", "_"): value for token, value in chosen._hex.items()}
    tokens["chevron"] = (RESOURCES / "icons" / f"chevron-{chosen.name}.svg").as_posix()
    tokens["up"] = (RESOURCES / "icons" / f"chevron-up-{chosen.name}.svg").as_posix()
    tokens["check"] = (RESOURCES / "icons" / f"check-{chosen.name}.svg").as_posix()
    tokens["close"] = (RESOURCES / "icons" / f"close-{chosen.name}.svg").as_posix()
    app.setStyleSheet(Template((RESOURCES / "themes" / "style.qss").read_text()).substitute(tokens))


def _palette(t: Theme) -> QPalette:
    role = QPalette.ColorRole
    colors = {
        role.Window: "background", role.WindowText: "text", role.Base: "surface", role.AlternateBase: "raised",
        role.Text: "text", role.Button: "background", role.ButtonText: "text", role.BrightText: "bad",
        role.Highlight: "accent", role.HighlightedText: "accent_text", role.Link: "accent",
        role.ToolTipBase: "raised", role.ToolTipText: "text", role.PlaceholderText: "faint",
        role.Light: "surface", role.Midlight: "separator", role.Mid: "border", role.Dark: "border",
        role.Shadow: "border", role.Accent: "accent",
    }  # fmt: skip
    palette = QPalette()
    for r, token in colors.items():
        palette.setColor(r, t[token])
    for r in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, r, t["faint"])
    return palette


@cache
def _svg(name: str) -> str:
    return (RESOURCES / "icons" / f"{name}.svg").read_text()


@cache
def pixmap(name: str, color: str, size: int, scale: float = 1.0) -> QPixmap:
    """The icon drawn in one colour ("#rrggbb"), `size` logical pixels square."""
    from PySide6.QtSvg import QSvgRenderer

    renderer = QSvgRenderer(QByteArray(_svg(name).replace("currentColor", color).encode()))
    image = QPixmap(QSize(round(size * scale), round(size * scale)))
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter, QRectF(0, 0, size * scale, size * scale))
    painter.end()
    image.setDevicePixelRatio(scale)
    return image


def icon(name: str, t: Theme, token: str = "muted") -> QIcon:
    """An icon that greys out when disabled, sharp on screens of twice the density."""
    made = QIcon()
    for scale in (1.0, 2.0):
        made.addPixmap(pixmap(name, t.hex(token), 18, scale), QIcon.Mode.Normal)
        made.addPixmap(pixmap(name, t.hex("border"), 18, scale), QIcon.Mode.Disabled)
    return made
