"""Template families: parameter spaces, legality rules and CUDA sources of the kernels the workbench can build.

This is the lowest room: nothing here imports from core or app. A family is one folder with a module attribute
``FAMILY``; `families()` finds it, so adding a family touches no other file.
"""

import importlib
import pkgutil
from functools import cache

from templates.family import Family


@cache
def families() -> dict[str, Family]:
    """Every family found in this package, by name, in alphabetical order."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            package = importlib.import_module(f"{__name__}.{module.name}")
            if hasattr(package, "FAMILY"):
                found[package.FAMILY.name] = package.FAMILY
    return dict(sorted(found.items()))
