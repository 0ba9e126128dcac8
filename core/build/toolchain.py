"""Finds what turns a source into a library: nvcc, its host compiler and the CUTLASS headers.

Nothing is imported to find it: packages are looked up by their specs, so this works for an installed environment, for
wheels unpacked on PYTHONPATH and for a system toolkit on PATH alike.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from core.errors import ToolchainError
from core.paths import INCLUDE

SETUP = "run `python3 main.py setup`"
# The oldest nvcc that CUTLASS 4.2 supports is 11.4, but wgmma on sm_90a wants 12.0 and the sm_100/sm_120 targets 12.8.
OLDEST_CUDA = (12, 8)
SYSTEM_NVCC = Path("/usr/local/cuda/bin/nvcc")
_EXAMPLE_13 = Path("examples") / "13_two_tensor_op_fusion"  # back-to-back GEMM and conv live among the examples


@dataclass(frozen=True)
class Toolchain:
    """A working compiler and its headers. Versions are text: "13.0.88", "12.2.0", "4.2.0"."""

    nvcc: Path
    nvcc_version: str
    host_compiler: Path
    host_version: str
    cutlass: Path
    cutlass_version: str
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...] = ()

    @property
    def include_flags(self) -> tuple[str, ...]:
        return tuple(f"-I{d}" for d in self.include_dirs)


def find_toolchain() -> Toolchain:
    """The toolchain this process will compile with.

    nvcc is BOLT_NVCC if set, else the pip toolkit's, else CUDA_HOME's, PATH's or /usr/local/cuda's: the first one new
    enough. The host compiler is NVCC_CCBIN if set, else g++, else clang++.

    Raises:
        ToolchainError: something is missing or too old; the line says what to run.
    """
    nvcc, version = find_nvcc()
    host, host_version = find_host_compiler()
    cutlass = find_cutlass()
    includes = (INCLUDE, cutlass / "include", cutlass / "tools" / "util" / "include", cutlass / _EXAMPLE_13)
    return Toolchain(
        nvcc=nvcc,
        nvcc_version=version,
        host_compiler=host,
        host_version=host_version,
        cutlass=cutlass,
        cutlass_version=cutlass_version(cutlass),
        include_dirs=includes,
        library_dirs=_library_dirs(nvcc),
    )


def find_nvcc() -> tuple[Path, str]:
    """The path and version ("13.0.88") of the nvcc to use. Raises ToolchainError."""
    named = os.environ.get("BOLT_NVCC")
    if named:
        given = shutil.which(named)
        if given is None:
            raise ToolchainError(f"BOLT_NVCC names {named}, which is no executable", "set it to an nvcc or unset it")
        return Path(given), nvcc_version(Path(given))
    refused = []
    for path in _nvcc_places():
        try:
            version = nvcc_version(path)
        except ToolchainError as error:
            refused.append(error.what)
            continue
        if _numbers(version) >= OLDEST_CUDA:
            return path, version
        refused.append(f"{path} is CUDA {version}, older than {'.'.join(map(str, OLDEST_CUDA))}")
    raise ToolchainError("; ".join(["no usable nvcc was found", *refused]), SETUP)


def _nvcc_places() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("cu[0-9]*/bin/nvcc"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            named = Path(os.environ[variable]) / "bin" / "nvcc"
            if named.is_file():
                yield named
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path)
    if SYSTEM_NVCC.is_file():
        yield SYSTEM_NVCC


def nvcc_version(nvcc: Path) -> str:
    """Version of an nvcc, e.g. "13.0.88". Raises ToolchainError when it does not run or does not say."""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", _output(nvcc, "--version"))
    if found is None:
        raise ToolchainError(f"{nvcc} does not tell its version", SETUP)
    return found[1]


def find_host_compiler() -> tuple[Path, str]:
    """The C++ compiler nvcc hands host code to, and its version. Raises ToolchainError."""
    named = os.environ.get("NVCC_CCBIN")
    for name in [named] if named else ["g++", "clang++"]:
        path = shutil.which(name)
        if path is not None:
            found = re.search(r"(\d+\.\d+(\.\d+)?)", _output(Path(path), "--version").partition("\n")[0])
            return Path(path), found[1] if found else "unknown"
    what = f"NVCC_CCBIN names {named}, which is not an executable" if named else "no C++ compiler (g++) was found"
    raise ToolchainError(what, f"{SETUP}, or as root: apt-get install -y g++")


def find_cutlass() -> Path:
    """The root of CUTLASS's source tree inside the nvidia-cutlass package. Raises ToolchainError."""
    spec = importlib.util.find_spec("cutlass_library")
    for place in (spec.submodule_search_locations or []) if spec else []:
        root = Path(place) / "source"
        if (root / "include" / "cutlass" / "cutlass.h").is_file():
            return root
    raise ToolchainError("the CUTLASS headers (package nvidia-cutlass) were not found", SETUP)


@cache
def cutlass_version(root: Path) -> str:
    """Version of a CUTLASS source tree, from its version.h. Raises ToolchainError."""
    text = (root / "include" / "cutlass" / "version.h").read_text(encoding="utf-8")
    parts = [re.search(rf"#define CUTLASS_{name}\s+(\d+)", text) for name in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise ToolchainError(f"{root}/include/cutlass/version.h names no version", SETUP)
    return ".".join(found[1] for found in parts if found)


def _library_dirs(nvcc: Path) -> tuple[Path, ...]:
    """The pip toolkit keeps its libraries in lib/, where nvcc does not look (it knows lib64/)."""
    root = nvcc.resolve().parent.parent
    return (root / "lib",) if (root / "lib" / "libcudart_static.a").is_file() else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def _output(program: Path, *args: str) -> str:
    stamp = program.stat().st_mtime_ns if program.exists() else 0
    return _cached_output(program, args, stamp)


@cache
def _cached_output(program: Path, args: tuple[str, ...], stamp: int) -> str:
    """What a program prints; `stamp` makes a replaced program run again."""
    try:
        done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{program} does not run ({error})", SETUP) from error
    return done.stdout
