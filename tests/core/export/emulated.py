"""Exported code compiled for the CPU: the operator kernels and plan.cu as they are, template kernels as plain loops."""

import importlib.util
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.build.toolchain import find_toolchain
from core.export.emit import Part, emit_library
from core.export.kernels import OperatorKernel
from core.export.lower import lower
from core.export.memory import lifetimes, plan_memory
from core.export.pointwise_cuda import C_TYPES
from core.export.program import Program
from core.export.weights import write_shared_weights, write_weights
from core.fusion.planner import plan
from core.graph.ir import Graph
from core.paths import INCLUDE, ROOT
from core.tuner.choice import estimated
from templates import families
from templates.attention import MaskKind
from templates.gpu import KNOWN_GPUS
from templates.operators import FOLDER
from templates.types import DType, MatrixLayout


def compile_for_cpu(text: str, out: Path, defines: Sequence[str] = (), more: Sequence[Path] = ()) -> None:
    """Compile C++ made of kernels and the emulator's headers into a shared library; `more`: files without kernels."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    toolchain = find_toolchain()
    unit = out.with_suffix(".cpp")
    unit.write_text(text)
    cuda = toolchain.nvcc.resolve().parent.parent
    operators = out.parent / "src" if (out.parent / "src").is_dir() else FOLDER
    folders = [ROOT / "tests/core/export", operators, INCLUDE, toolchain.cutlass / "include", cuda / "include",
               cuda / "targets/x86_64-linux/include", out.parent / "include"]  # fmt: skip
    # A vector access that is not aligned ends the process here, as it would end the kernel on a GPU.
    checks = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
    flags = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", *checks, *defines]
    command = [compiler, *flags, *(f"-I{d}" for d in folders), "-x", "c++", str(unit), *map(str, more), "-o", str(out)]
    subprocess.run(command, cwd=out.parent, check=True)


def operator_exports(kernels: Sequence[OperatorKernel]) -> str:
    """C functions run_<kernel>(in, out)."""
    return "".join(
        f'extern "C" __attribute__((visibility("default"))) int run_{k.name}(void const* const* in, void* const* out) '
        f"{{ return {k.name}::run(in, out, nullptr, false); }}\n"
        for k in kernels
    )


def a100_program(graph: Graph, dtype: DType = DType.F16) -> Program:
    """The program of a graph with the best-ranked kernels of an A100, all of the sm80 families."""
    found = plan(graph, dtype)
    guesses = {k: estimated(r[0].workload, KNOWN_GPUS["a100"], families()) for k, r in found.workloads.items()}
    return lower(graph, found, {k: g for k, g in guesses.items() if g is not None})


def load_caller(folder: Path, name: str) -> Any:
    """The generated Python caller as a module."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def emulated_library(program: Program, folder: Path, name: str, major: int = 8, capture: bool = False) -> Path:
    """An exported folder whose lib<name>.so runs on the CPU, on a device of compute capability `major`.0.

    With `capture` the caller's stream is always being captured, so that steps run one by one as they are enqueued.
    """
    weights = write_weights(program, folder / f"{name}.safetensors")
    part = Part(program, plan_memory(lifetimes(program)), weights)
    return emulated_parts([part], folder, name, major, capture)


def emulated_buckets(programs: Mapping[int, Program], folder: Path, name: str) -> Path:
    """As `emulated_library`, of several batch sizes."""
    batches = sorted(programs)
    weights = write_shared_weights([programs[b] for b in batches], folder / f"{name}.safetensors")
    parts = [
        Part(programs[b], plan_memory(lifetimes(programs[b])), w, b) for b, w in zip(batches, weights, strict=True)
    ]
    return emulated_parts(parts, folder, name)


def emulated_parts(parts: Sequence[Part], folder: Path, name: str, major: int = 8, capture: bool = False) -> Path:
    """The library of these parts. Kernels and the runtime are one unit, the plans of several parts one each."""
    emit_library(parts, KNOWN_GPUS["a100"], name, folder, "4.2.0")
    several = [folder / part.file("plan") for part in parts if part.batch]
    more = [*several, folder / "src/buckets.cu"] if several else []
    text = '#include "emulated_runtime.h"\n'
    for part in parts:
        files = [part.file("operators"), *(["src/plan.cu"] if not several else []), part.file("vendor")]
        text += "".join(f'#include "{file}"\n' for file in files if (folder / file).exists())
    steps = [s for part in parts for s in part.program.templates if not s.vendor]
    for number, kernel in enumerate(dict.fromkeys(s.candidate.kernel for s in steps)):
        if kernel.family.endswith("attention"):
            mask, causal = list(MaskKind).index(MaskKind(str(kernel["mask"]))), str(bool(kernel["causal"])).lower()
            text += f"EMULATED_ATTENTION({kernel.name}, {C_TYPES[kernel.dtype]}, {mask}, {causal})\n"
            continue
        types = C_TYPES[kernel.dtype], C_TYPES[kernel.epilogue.output]
        rows = [str(layout == MatrixLayout.ROW).lower() for layout in (kernel.layout_a, kernel.layout_b)]
        text += kernel.epilogue.functor(f"Chain{number}")
        text += f"EMULATED_KERNEL({kernel.name}, Chain{number}, {', '.join(types)}, {', '.join(rows)})\n"
    library = folder / f"lib{name}.so"
    compile_for_cpu(
        text, library, [f"-DEMULATED_MAJOR={major}", f"-I{folder}", *(["-DEMULATED_CAPTURE"] * capture)], more
    )
    return library
