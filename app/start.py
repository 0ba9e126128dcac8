"""Starts the window. Asks for Qt's system libraries before Qt does, because Qt would abort."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from core.errors import BoltError
from core.system_packages import QT_LIBRARIES, XCB_LIBRARIES

_HEADLESS = {"offscreen", "minimal", "vnc"}


class DisplayError(BoltError):
    """No window can be shown here."""


def run(argv: Sequence[str]) -> int:
    """Open the window, with a model (path or built-in name) or without. Returns Qt's exit status.

    Raises DisplayError when the display or a system library is missing: one line with the remedy.
    """
    if len(argv) > 1 or (argv and argv[0].startswith("-")):
        print(f"main.py: one model at a time, not {' '.join(argv)}; `main.py --help` lists the verbs", file=sys.stderr)
        return 2
    check_display(dict(os.environ))
    from PySide6.QtWidgets import QApplication

    from app import theme
    from app.settings import Settings
    from app.window import MainWindow

    app = QApplication.instance() or QApplication(["bolt-workbench"])
    assert isinstance(app, QApplication)
    app.setApplicationName("Bolt Workbench")
    app.setOrganizationName("bolt-workbench")
    app.setDesktopFileName("bolt-workbench")
    wanted = Settings().theme
    chosen = theme.theme(theme.system_theme() if wanted == "system" else wanted)
    theme.apply(app, chosen)
    window = MainWindow(chosen)
    window.show()
    if argv:
        window.open_later(argv[0])
    else:
        window.documents.warm_up()
    with _interruptible(window.close):
        return app.exec()


@contextmanager
def _interruptible(close: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C and SIGTERM close the window in good order; Qt's loop lets Python look for signals ten times a second."""
    from PySide6.QtCore import QTimer

    timer = QTimer()
    timer.start(100)
    timer.timeout.connect(lambda: None)
    kept = {s: signal.signal(s, lambda *_: close()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        timer.stop()
        for number, handler in kept.items():
            signal.signal(number, handler)


def check_display(environ: "dict[str, str]") -> None:
    """Raises DisplayError, with the line to paste, before Qt is loaded."""
    platform = environ.get("QT_QPA_PLATFORM", "").split(":")[0]
    x11, wayland = environ.get("DISPLAY"), environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not platform and not x11 and not wayland:
        raise DisplayError(
            "there is no display to show the window on (neither DISPLAY nor WAYLAND_DISPLAY is set)",
            "log in to a desktop or use `ssh -X`; every verb of `main.py --help` works without a display",
        )
    wanted = dict(QT_LIBRARIES)
    if platform == "xcb" or (platform not in _HEADLESS and not wayland):
        wanted |= XCB_LIBRARIES
    missing = missing_libraries(wanted)
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise DisplayError(
            f"Qt needs system libraries that are missing: {', '.join(missing)}",
            f"run: sudo apt-get install -y --no-install-recommends {packages}",
        )
    if sys.platform.startswith("linux") and (platform == "xcb" or (not platform and not _wayland_answers(environ))):
        if not x11 or not _x11_answers(x11):
            raise DisplayError(
                f"the display {x11 or wayland} does not answer",
                "check DISPLAY and that you may use it (`xhost`, `ssh -X`); the verbs need no display",
            )


def _wayland_answers(environ: "dict[str, str]") -> bool:
    name, folder = environ.get("WAYLAND_DISPLAY"), environ.get("XDG_RUNTIME_DIR", "")
    return bool(name) and os.path.exists(os.path.join(folder, name or ""))


def _x11_answers(display: str) -> bool:
    """Whether an X server takes a connection; Qt aborts the process when it does not."""
    xcb = ctypes.CDLL("libxcb.so.1")
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(display.encode(), None)
    failed = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return not failed


def missing_libraries(wanted: "dict[str, str]") -> dict[str, str]:
    """Those of the libraries that the loader does not find, with their packages."""
    if not sys.platform.startswith("linux"):
        return {}
    return {library: package for library, package in wanted.items() if not _loads(library)}


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
