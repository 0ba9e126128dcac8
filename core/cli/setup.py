"""`setup`: everything a fresh machine needs, then the rest of the line in the prepared environment.

Runs under the system's bare python3, so only the standard library is imported. Safe to run again at any time.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from core.cli import Reporter
from core.errors import ToolchainError
from core.paths import ROOT
from core.system_packages import QT_LIBRARIES, XCB_LIBRARIES

OLDEST_PYTHON = (3, 11)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-system", action="store_true", help="leave system packages alone")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="VERB ...", help="what to run once all is there")


def run(args: argparse.Namespace, out: Reporter) -> int:
    if sys.version_info < OLDEST_PYTHON:
        raise ToolchainError(
            f"python3 here is {sys.version.split()[0]}",
            f"run this with Python {'.'.join(map(str, OLDEST_PYTHON))} or newer",
        )
    if not args.no_system:
        _system_packages(out)
    uv = _uv(out)
    extras = ["--extra", "toolchain", "--extra", "cluster"]
    if has_gpu():
        extras += ["--extra", "vendor"]
    out.log(f"installing the pinned packages into {ROOT / '.venv'}")
    # The system's certificates, so that a company's proxy works; the second name is what older uv versions read.
    environment = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    command = [uv, "sync", "--quiet", "--project", str(ROOT), "--python", sys.executable, *extras]
    _check(command, "installing the packages", environment)
    if not args.rest:
        out.log("ready")
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    # In place of this process, so that Ctrl-C reaches the verb and nobody else.
    os.execv(venv_python(), [str(venv_python()), str(ROOT / "main.py"), *args.rest])


def venv_python() -> Path:
    """The interpreter of the environment that setup makes."""
    return ROOT / ".venv" / "bin" / "python"


def has_gpu() -> bool:
    """Whether NVIDIA's driver is here: its tool, or in a container perhaps only its library."""
    return shutil.which("nvidia-smi") is not None or _loads("libcuda.so.1")


def missing_system_packages() -> list[str]:
    """Debian packages whose library or program is not found here, in a stable order."""
    needed = ["g++"] if shutil.which("g++") is None else []
    for library, package in {**QT_LIBRARIES, **XCB_LIBRARIES}.items():
        if not _loads(library):
            needed.append(package)
    if shutil.which("Xvfb") is None:
        needed += ["xvfb", "xauth"]
    return needed


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _system_packages(out: Reporter) -> None:
    needed = missing_system_packages()
    if not needed:
        return
    line = "apt-get install -y --no-install-recommends " + " ".join(needed)
    if shutil.which("apt-get") is None:
        out.log(f"not found on this system, install what your distribution calls them: {' '.join(needed)}")
    elif os.geteuid() != 0:
        out.log(
            "missing system packages (the compiler or the window may not start without them), paste:\n"
            f"  sudo apt-get update && sudo {line}"
        )
    else:
        out.log(f"installing system packages: {' '.join(needed)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _check(["apt-get", "update", "-qq"], "reading the package lists", environment)
        _check([*line.split(), "-qq"], f"installing {' '.join(needed)}", environment)


def _uv(out: Reporter) -> str:
    """Path of uv: the one on PATH, the one fetched before, or a fresh one in .tools."""
    local = ROOT / ".tools" / "bin" / "uv"
    found = shutil.which("uv") or (str(local) if local.exists() else None)
    if found:
        return found
    out.log("fetching uv into .tools")
    # --target needs neither root nor a virtual environment, and is allowed where pip refuses a plain install.
    _check(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(ROOT / ".tools"), "uv"],
        "fetching uv with pip",
    )
    return str(local)


def _check(command: list[str], doing: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise ToolchainError(f"{doing} failed: {lines[-1]}", f"run it by hand to see more: {' '.join(command)}")
