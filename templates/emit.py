"""Source emission shared by every family: one Jinja2 environment and the wrapper that makes a kernel a C function.

What reaches C++ comes from enums, integers, `Epilogue.functor` (numbers only) and `Kernel.name` (a C identifier); a
string of a model never does. `c_identifier` guards the last of these.
"""

import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from templates.family import Kernel
from templates.gpu import GpuSpec

if TYPE_CHECKING:
    from jinja2 import Environment, Template

INCLUDE_DIR = Path(__file__).parent / "include"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)

_WRAPPER = """\
// {{ name }}
#include "bolt/abi.h"
{% for header in includes %}
#include "{{ header }}"
{% endfor %}

namespace {{ namespace }} {

{{ body }}
}  // namespace {{ namespace }}

extern "C" BOLT_EXPORT int bolt_check_{{ name }}(bolt_args const* args) {
  return {{ namespace }}::check(*args);
}
extern "C" BOLT_EXPORT size_t bolt_workspace_{{ name }}(bolt_args const* args) {
  return {{ namespace }}::workspace(*args);
}
extern "C" BOLT_EXPORT int bolt_run_{{ name }}(bolt_args const* args, cudaStream_t stream) {
  return {{ namespace }}::run(*args, stream);
}
"""


@cache
def _environment(folder: Path) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # 0.1 s, which ranking and the window don't need

    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,  # the output is C++, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cpp"] = _cpp
    return environment


def _cpp(value: object) -> str:
    """A Python constant as C++: booleans in lower case, integers as they are. Anything else is refused."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no C++ form here")


def render(family_file: str, template_name: str, **values: Any) -> str:
    """Renders `template_name` beside `family_file` (pass ``__file__``). An undefined value raises UndefinedError."""
    return _environment(Path(family_file).resolve().parent).get_template(template_name).render(**values)


def namespace_of(kernel: Kernel) -> str:
    """The C++ namespace a kernel lives in: two libraries in one process must not share template names."""
    return f"bolt_{sha256(kernel.name.encode()).hexdigest()[:10]}"


def c_identifier(text: str) -> str:
    """`text` itself if it is a C identifier. Raises ValueError if not."""
    if not _IDENTIFIER.match(text):
        raise ValueError(f"{text!r} is not a C identifier")
    return text


@cache
def _wrapper() -> "Template":
    return _environment(INCLUDE_DIR).from_string(_WRAPPER)


def wrap(kernel: Kernel, includes: tuple[str, ...], body: str) -> str:
    """The translation unit of one kernel; the units of several kernels may be concatenated.

    `body` goes into the kernel's namespace and defines ``int check(bolt_args const&)``,
    ``size_t workspace(bolt_args const&)`` and ``int run(bolt_args const&, cudaStream_t)``. `includes` are header
    paths, emitted at file scope. The three become the exported C functions of include/bolt/abi.h.
    """
    return _wrapper().render(
        name=c_identifier(kernel.name), namespace=namespace_of(kernel), includes=includes, body=body.strip("\n") + "\n"
    )


def gencode(gpu: GpuSpec) -> tuple[str, str]:
    """nvcc flags that compile for exactly this GPU's architecture, without PTX."""
    return "-gencode", f"arch=compute_{gpu.nvcc_arch},code=sm_{gpu.nvcc_arch}"
