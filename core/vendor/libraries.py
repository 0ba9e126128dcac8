"""Finding the vendor's shared libraries: pip packages first, then the system's loader."""

import ctypes
import importlib.util
import re
from functools import cache
from pathlib import Path


def _package_folders() -> list[Path]:
    """lib folders of NVIDIA's pip packages: nvidia/cu13/lib (CUDA 13) and nvidia/<library>/lib (before, and cuDNN)."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return [folder for place in places for folder in sorted(place.glob("*/lib")) if folder.is_dir()]


def _version(path: Path) -> int:
    found = re.search(r"\.so\.(\d+)", path.name)
    return int(found[1]) if found else 0


def packaged(name: str) -> Path | None:
    """The newest pip-installed library called lib<name>.so.<major>."""
    found = [p for folder in _package_folders() for p in folder.glob(f"lib{name}.so.*[0-9]")]
    return max(found, key=_version, default=None)


@cache
def load(name: str, majors: tuple[int, ...], share: bool = False) -> ctypes.CDLL | None:
    """lib<name>.so.<major>, majors in order of preference; None if it is nowhere.

    `share` makes its symbols visible to libraries that are loaded later (what cuDNN's engines look for by name).
    """
    mode = ctypes.RTLD_GLOBAL if share else ctypes.DEFAULT_MODE
    path = packaged(name)
    places = [str(path)] if path is not None and _version(path) in majors else []
    places += [f"lib{name}.so.{major}" for major in majors]
    for place in places:
        try:
            return ctypes.CDLL(place, mode=mode)
        except OSError:
            continue  # the next place; that none has it is the caller's to report
    return None
