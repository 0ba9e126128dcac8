"""What the compiler made of a kernel, as text for people: its PTX, and its machine code (SASS) disassembled.

PTX comes from nvcc itself, which stops before ptxas. SASS comes out of the compiled library by cuobjdump, a tool of the
CUDA toolkit that the pip toolkit keeps in a package of its own.
"""

import importlib.util
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.build.nvcc import base_command, first_error, run
from core.build.toolchain import Toolchain
from core.errors import ToolchainError
from templates.emit import namespace_of
from templates.family import Kernel

TOOLS = "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
_ENCODING = re.compile(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$")
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_]*)")
_ARCH = re.compile(r"arch=compute_(\w+),")
# Instructions by their first word (CUDA binary utilities, instruction set reference).
KINDS = {
    "tensor core": re.compile(r"(HG|H|I|Q|B|D|O|UTC\w*|W?G)MMA$"),
    "TMA and bulk copy": re.compile(r"UTMA|UBLKCP|UBLKPF|UTMAREDG"),
    "asynchronous copy": re.compile(r"LDGSTS$"),
    "global memory": re.compile(r"(LDG|STG|LD|ST|RED|ATOM|ATOMG)$"),
    "shared memory": re.compile(r"(LDS|STS|LDSM|STSM|ATOMS|LDSMT?)$"),
    "local memory": re.compile(r"(LDL|STL)$"),
}


@dataclass(frozen=True)
class Mix:
    """How many instructions there are, and of which kinds that matter; every other one is arithmetic or control."""

    instructions: int
    kinds: tuple[tuple[str, int], ...]


def find_cuobjdump(nvcc: Path) -> Path:
    """The disassembler: beside nvcc, in a pip package, in CUDA_HOME or on PATH. Raises ToolchainError."""
    places = [nvcc.resolve().parent]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        places += sorted(Path(root).glob("cu[0-9]*/bin"), reverse=True)
    places += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    found = shutil.which("cuobjdump", path=os.pathsep.join(map(str, places)))
    if found is None:
        raise ToolchainError(
            "machine code is read by cuobjdump and nvdisasm, which are not on this machine",
            f"install the packages {TOOLS}, or a CUDA toolkit; PTX needs neither",
        )
    return Path(found)


def sass_of(library: Path, kernel: Kernel, cuobjdump: Path, cancel: threading.Event | None = None) -> str:
    """The machine code of the kernel's functions; those of other kernels in the library are left out.

    Raises:
        ToolchainError: the tool does not read the library.
        Cancelled: `cancel` was set.
    """
    with tempfile.TemporaryDirectory(prefix="bolt-sass-") as folder:
        ran = run([cuobjdump, "-sass", library], Path(folder), cancel)
    if ran.status != 0:
        reason = first_error(ran.log, ran.status)
        raise ToolchainError(f"{cuobjdump} can't read {library.name}: {reason}", f"update the packages {TOOLS}")
    text = only_of(ran.log, namespace_of(kernel))
    if not text:
        raise ToolchainError(f"{library.name} holds no function of {kernel.name}", "compile the kernel again")
    return text


def only_of(dump: str, namespace: str) -> str:
    """The functions of a cuobjdump dump that lie in a namespace; all of them if none does. Encodings are left out."""
    functions = _functions(dump)
    own = {name: lines for name, lines in functions.items() if namespace in name} or functions
    return "\n\n".join("\n".join([f"// {name}", *lines]) for name, lines in own.items())


def _functions(dump: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in dump.splitlines():
        if begun := _FUNCTION.match(line):
            lines = found.setdefault(begun[1], [])
        elif line.startswith(("Fatbin", "\t\t..")):
            lines = None
        elif lines is not None:
            bare = _ENCODING.sub("", line)
            if bare.strip() and not bare.lstrip().startswith(".headerflags"):
                lines.append(bare.replace("\t", "    ").rstrip())
    return found


def mix_of(sass: str) -> Mix:
    """Counts of the kinds of instructions in what `sass_of` gave."""
    words = Counter(found[1] for line in sass.splitlines() if (found := _INSTRUCTION.match(line)))
    counts = {kind: sum(n for word, n in words.items() if test.match(word)) for kind, test in KINDS.items()}
    return Mix(sum(words.values()) - words["NOP"], tuple((kind, n) for kind, n in counts.items() if n))


def ptx_of(
    kernel: Kernel, source: str, flags: Sequence[str], toolchain: Toolchain, cancel: threading.Event | None = None
) -> str:
    """The PTX of a kernel's source; `flags` are its family's for the GPU. Takes as long as nvcc's front end.

    Raises:
        ToolchainError: it does not compile, or nvcc does not run.
        Cancelled: `cancel` was set.
    """
    with tempfile.TemporaryDirectory(prefix="bolt-ptx-") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        command = [*base_command(toolchain), *map(_to_ptx, flags), "-ptx", folder / "kernel.cu"]
        ran = run([*command, "-o", folder / "kernel.ptx"], folder, cancel)
        if ran.status != 0:
            raise ToolchainError(f"{kernel.name} does not compile to PTX: {first_error(ran.log, ran.status)}")
        return (folder / "kernel.ptx").read_text(encoding="utf-8")


def _to_ptx(flag: str) -> str:
    """-gencode=arch=compute_90a,code=sm_90a asks for machine code; PTX is that of the same virtual architecture."""
    arch = _ARCH.search(flag)
    return f"-gencode=arch=compute_{arch[1]},code=compute_{arch[1]}" if arch else flag
