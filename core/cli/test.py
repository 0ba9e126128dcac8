"""`test`: style, types and the test suite, as CI runs them. What follows the verb goes to pytest."""

import argparse
import importlib.util
import os
import subprocess
import sys

from core.cli import Reporter
from core.errors import ToolchainError
from core.paths import ROOT


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="PYTEST ARGUMENT", help="e.g. tests/core -k fusion")


def run(args: argparse.Namespace, out: Reporter) -> int:
    missing = [tool for tool in ("ruff", "mypy", "pytest") if importlib.util.find_spec(tool) is None]
    if missing:
        raise ToolchainError(f"{', '.join(missing)} not installed", "run `python3 main.py setup test`")
    environment = {**os.environ, "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen")}
    steps: list[tuple[str, list[str]]] = []
    if not args.rest:
        steps += [
            ("ruff check", ["ruff", "check", "."]),
            ("ruff format", ["ruff", "format", "--check", "."]),
            ("mypy", ["mypy"]),
        ]
    workers = [] if args.rest else ["-n", str(min(os.cpu_count() or 1, 8))]
    steps.append(("pytest", ["pytest", *workers, *args.rest]))
    failed = []
    for name, command in steps:
        out.log(f"== {name}")
        if subprocess.call([sys.executable, "-m", *command], cwd=ROOT, env=environment):
            failed.append(name)
    if failed:
        print(f"error: {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0
