"""Entry point: no arguments or a model opens the window; a verb runs on the command line.

Only the standard library is imported here and on the way to `--help`, so it answers at once and works before set-up.
"""

import importlib.util
import os
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    environment = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    wants_packages = argv[:1] not in (["setup"], ["-h"], ["--help"])
    if wants_packages and importlib.util.find_spec("onnx") is None and environment.exists():
        os.execv(environment, [str(environment), __file__, *argv])  # `python3 main.py` after setup, from any shell
    from core.cli import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
