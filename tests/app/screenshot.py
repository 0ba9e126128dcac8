"""Draws the window into a PNG without a display: `python -m tests.app.screenshot resnet18 out.png --replay`.

With --replay the shipped run or records of the GPU are played first, as fast as they go; nothing is made up.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app import theme, tuning
from app.window import MainWindow

PAGES = ("candidates", "charts", "advice", "source", "queue", "records", "log")


def wait(app: QApplication, until: Callable[[], bool], most_s: float = 120.0) -> None:
    end = time.monotonic() + most_s
    while not until() and time.monotonic() < end:
        app.processEvents()
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--size", default="1440x900")
    parser.add_argument("--batch", default="")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--replay", nargs="?", const="", metavar="RUN", help="a run file; without one, what is shipped")
    parser.add_argument("--page", choices=PAGES, default="candidates")
    parser.add_argument("--colour", type=int, default=0, help="number of the colour mode")
    parser.add_argument("--region", help="select this region, e.g. r5")
    parser.add_argument("--zoom", action="store_true", help="zoom to the selected region")
    args = parser.parse_args()
    app = QApplication([])
    chosen = theme.theme(args.theme)
    theme.apply(app, chosen)
    window = MainWindow(chosen)
    width, height = map(int, args.size.split("x"))
    window.resize(width, height)
    window.show()
    window.open(args.model)
    wait(app, lambda: window.document is not None or window.messages.isVisible())
    if args.batch and window.document is not None:
        first = window.document
        window.commands.batch.setCurrentText(args.batch)
        window.commands.batch.activated.emit(window.commands.batch.currentIndex())
        wait(app, lambda: window.document is not first)
    document = window.document
    if document is not None:
        window.bottom.setCurrentIndex(PAGES.index(args.page))
        window.canvas.legend.mode.setCurrentIndex(args.colour)
        if args.replay is not None:
            played = (
                tuning.replay_file(Path(args.replay), 0)
                if args.replay
                else tuning.best_replay(document.plan, args.gpu, 0)
            )
            window.tuning.start(played, replayed=True)
            wait(app, lambda: not window.tuning.running)
        if args.region:
            document.select_region(next(r for r in document.plan.regions if r.id == args.region))
            if args.zoom:
                window.zoom_to_selection()
    wait(app, lambda: not window.background.busy)
    wait(app, lambda: False, 0.3)
    window.grab().save(args.out)
    window.close()


if __name__ == "__main__":
    main()
