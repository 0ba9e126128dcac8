"""Entry point: no arguments or a model opens the window; a verb runs on the command line.

Only the standard library is imported here and on the way to `--help`, so it answers at once and works before set-up.
"""

import importlib.util
import io
import os
import sys
from pathlib import Path

# One of them missing means that this interpreter is not the prepared one.
PACKAGES = ("onnx", "onnxruntime", "numpy", "jinja2", "rich", "sqlite_utils")


def main(argv: list[str]) -> int:
    root = Path(__file__).resolve().parent / ".venv"
    python = root / "bin" / "python"
    wants_packages = argv[:1] not in (["setup"], ["-h"], ["--help"])
    elsewhere = Path(sys.prefix) != root and python.exists()
    if wants_packages and elsewhere and any(importlib.util.find_spec(name) is None for name in PACKAGES):
        os.execv(python, [str(python), __file__, *argv])  # `python3 main.py` after setup, from any shell
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows ? for what it lacks
    from core.cli import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
