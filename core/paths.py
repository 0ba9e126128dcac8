"""Where things lie: the checkout, the user's cache, the shipped resources."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOURCES = ROOT / "resources"
INCLUDE = ROOT / "templates" / "include"


def cache_dir() -> Path:
    """The user's cache: compiled kernels and the record database. BOLT_CACHE overrides it."""
    override = os.environ.get("BOLT_CACHE")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bolt-workbench"


def config_dir() -> Path:
    """The user's settings. BOLT_CONFIG overrides it."""
    override = os.environ.get("BOLT_CONFIG")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "bolt-workbench"
