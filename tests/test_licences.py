"""What the program needs is free to be used with it: every package that is declared, and what those need in turn."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

from core.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FREE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|0BSD|MPL|Mozilla|Zlib|Unlicense|HPND|LGPL|Public Domain)\b"
    r"|\bBSD-\d|\bLGPL-",
)
# Not ours to pass on, so neither shipped nor copied: installed from NVIDIA's own packages, under NVIDIA's terms.
VENDOR = re.compile(r"^(nvidia-|cuda-)")
# Their metadata names no licence, or another than the files do: read in the files themselves.
READ = {
    "nvidia-cutlass": "BSD-3-Clause",
    "pyqtgraph": "MIT",
    "pyside6-essentials": "LGPL-3.0-only",
    "shiboken6": "LGPL-3.0-only",
}


def declared() -> set[str]:
    """Names of the packages in pyproject.toml: what runs, and what the tests need."""
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    return {_name(text) for text in wanted}


def _name(requirement: str) -> str:
    return re.split(r"[ ;\[<>=!~(]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def needed(names: set[str]) -> Iterator[str]:
    """The installed packages among `names`, and those that they need in turn."""
    waiting, seen = sorted(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system, or an extra that is not installed
            continue
        yield name
        waiting += [_name(r) for r in requires if "extra ==" not in r]


def licence(name: str) -> str:
    found = metadata.metadata(name)
    classifiers = [c for c in found.get_all("Classifier") or [] if c.startswith("License ::")]
    return READ.get(name) or " ".join(
        filter(None, (found.get("License-Expression"), *classifiers, found.get("License")))
    )


@pytest.mark.parametrize("name", sorted(needed(declared())))
def test_the_licence_of_each_package_allows_our_use(name: str) -> None:
    found = licence(name)
    assert VENDOR.match(name) or FREE.search(found), f"{name} is under {found[:100] or 'no licence that is told'}"
    assert name in READ or not re.search(r"\bA?GPL", found) or "LGPL" in found, f"{name} is under {found[:100]}"


def test_the_check_sees_what_it_should() -> None:
    names = set(needed(declared()))
    assert {"numpy", "onnx", "pyside6-essentials", "protobuf"} <= names
    assert not FREE.search("GNU General Public License v3 (GPLv3)") and not FREE.search("Proprietary")


def test_what_is_pinned_can_only_be_resolved_one_way() -> None:
    """A date fences the registry: the same declarations give the same versions on any later day."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT00:00:00Z", PROJECT["tool"]["uv"]["exclude-newer"])
