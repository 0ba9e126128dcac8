"""The Jinja environment of the generated files."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from core.export.c_text import c_string

_FILES = Path(__file__).parent / "files"


@cache
def environment() -> Environment:
    """Templates of this package; nothing undefined passes silently."""
    made = Environment(
        loader=FileSystemLoader(_FILES), undefined=StrictUndefined, autoescape=False, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters.update(c_string=c_string, py=ascii, tuple=tuple, cpp=lambda b: str(b).lower(), buffer="t[{}]".format)
    return made
