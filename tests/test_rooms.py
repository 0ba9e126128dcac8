"""Arrows between the rooms point one way, app -> core -> templates, and core loads neither Qt nor a GPU library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What a file of a room may name of this repository.
MAY_IMPORT = {"templates": {"templates"}, "core": {"core", "templates"}, "app": {"app", "core", "templates"}}
ROOMS = {"app", "core", "templates", "tests", "main"}
QT = {"PySide6", "shiboken6", "pyqtgraph"}
GPU = {"cuda", "pycuda", "torch", "cudnn", "cupy"}
# The adapters are what core.measure.runtime.open_runtime loads by name, when a GPU is driven.
ADAPTERS = {"core.measure.cuda_bindings_runtime", "core.measure.pycuda_runtime"}


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.AST) -> set[str]:
    """First words of everything that is imported, at the top or inside a function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_file_names_a_room_above_its_own(room: str) -> None:
    names = {module(path): imported(ast.parse(path.read_text())) & ROOMS for path in files(room)}
    assert {name: found - MAY_IMPORT[room] for name, found in names.items() if found - MAY_IMPORT[room]} == {}


def test_templates_name_no_library_that_needs_a_gpu_or_a_screen() -> None:
    for path in files("templates"):
        assert imported(ast.parse(path.read_text())) & (QT | GPU) == set(), path


def test_core_names_no_qt() -> None:
    for path in files("core"):
        assert imported(ast.parse(path.read_text())) & QT == set(), path


def test_importing_all_of_core_and_templates_loads_neither_qt_nor_a_gpu_library() -> None:
    modules = [module(path) for room in ("templates", "core") for path in files(room)]
    wanted = [m for m in modules if m not in ADAPTERS and not m.endswith("__main__")]
    script = (
        "import importlib, sys\n"
        "from core.errors import BoltError\n"
        f"for name in {wanted!r}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except (BoltError, ModuleNotFoundError) as error:\n"
        "        assert name.startswith('core.cluster'), (name, error)  # the extra `cluster` may be absent\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) & (QT | GPU) == set()
