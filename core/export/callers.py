"""What an exported folder holds for its users: headers, the CMake package, the Python callers, examples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.export.environment import environment


def emit_callers(context: Mapping[str, Any], folder: Path) -> None:
    """Write them into `folder`; `context` is what core.export.emit renders the plan with. Raises OSError."""
    name = context["name"]
    for template, path in (
        ("header.h.j2", f"include/{name}.h"),
        ("header.hpp.j2", f"include/{name}.hpp"),
        ("config.cmake.j2", f"lib/cmake/{name}/{name}Config.cmake"),
        ("CMakeLists.txt.j2", "CMakeLists.txt"),
        ("caller.py.j2", f"{name}.py"),
        ("torch_op.py.j2", f"{name}_torch.py"),
        ("example.c.j2", "examples/example.c"),
        ("example.cpp.j2", "examples/example.cpp"),
        ("examples_cmake.txt.j2", "examples/CMakeLists.txt"),
    ):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(environment().get_template(template).render(context), encoding="utf-8")
