"""Writes the source side of an exported folder: plan, operators, template kernels, headers, callers, CMakeLists.txt.

Strings of the model reach generated files in two ways only: as C string literals through `c_string`, and as Python
literals through `ascii`. Every other name is made here (t3, op1_pool, the sanitised library name).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.export.buckets import buckets
from core.export.c_text import c_float
from core.export.callers import emit_callers
from core.export.environment import environment
from core.export.kernels import OperatorKernel, operator_kernels
from core.export.memory import MemoryPlan
from core.export.program import Port, Program, Space, TemplateStep
from core.export.vendor import VendorGemm, vendor_unit
from core.export.weights import WeightsFile
from core.measure.args import args_of, strides_of
from core.paths import INCLUDE
from templates import families
from templates.family import Kernel, Launch
from templates.gpu import GpuSpec
from templates.operators import FOLDER as OPERATORS
from templates.operators import HEADERS
from templates.types import DType

# Fixed numbers of the C interface: never renumbered.
DTYPE_NUMBERS = {
    DType.F16: 1, DType.F32: 2, DType.F64: 3, DType.BF16: 4, DType.I8: 5, DType.U8: 6, DType.I32: 7, DType.I64: 8,
    DType.BOOL: 9,
}  # fmt: skip
NUMPY_NAMES = {
    DType.F16: "float16", DType.F32: "float32", DType.F64: "float64", DType.BF16: "uint16", DType.I8: "int8",
    DType.U8: "uint8", DType.I32: "int32", DType.I64: "int64", DType.BOOL: "bool",
}  # fmt: skip
_POINTERS = ("a", "b", "bias", "source", "d", "b1", "bias1", "source1", "b2", "bias2")
_SPACES = {Space.INPUT: "kInput", Space.OUTPUT: "kOutput", Space.CONSTANT: "kWeights", Space.ARENA: "kArena"}


@dataclass(frozen=True)
class Source:
    """A file to compile, relative to the exported folder, with its own nvcc flags."""

    path: str
    flags: tuple[str, ...]

    @property
    def defines(self) -> tuple[str, ...]:
        """The flags without the architecture, which CMakeLists.txt sets for all files."""
        kept = []
        flags = iter(self.flags)
        for flag in flags:
            if flag == "-gencode":
                next(flags)
            elif not flag.startswith("-gencode"):
                kept.append(flag)
        return tuple(kept)


@dataclass(frozen=True)
class Part:
    """One launch plan of a library. A library of several buckets has one for each `batch`, in ascending order."""

    program: Program
    memory: MemoryPlan
    weights: WeightsFile
    batch: int = 0  # 0: the only part of its library

    @property
    def label(self) -> str:
        return f"b{self.batch}" if self.batch else ""

    def inner(self, name: str) -> str:
        """What the plan calls its functions; never one that exports.map lets out of a library of several."""
        return f"bolt_{self.label}_{name}" if self.batch else name

    def file(self, stem: str) -> str:
        return f"src/{stem}_{self.label}.cu" if self.batch else f"src/{stem}.cu"


def emit_sources(
    program: Program, memory: MemoryPlan, weights: WeightsFile, gpu: GpuSpec, name: str, folder: Path, versions: str
) -> list[Source]:
    """As `emit_library`, of one part."""
    return emit_library([Part(program, memory, weights)], gpu, name, folder, versions)


def emit_library(parts: Sequence[Part], gpu: GpuSpec, name: str, folder: Path, versions: str) -> list[Source]:
    """Write everything but the weights, the library, the manifest and the report into `folder`; the files to compile.

    `name` is the sanitised library name, `versions` CUTLASS's version. Raises OSError when a file can't be written.
    """
    steps = [s for part in parts for s in part.program.templates]
    kernels = list(dict.fromkeys(s.candidate.kernel for s in steps if s.vendor is None))
    include, source = folder / "include", folder / "src"
    for made in (include, source):
        made.mkdir()
    shutil.copytree(INCLUDE / "bolt", include / "bolt")
    for header in HEADERS:
        shutil.copy(OPERATORS / header, source / header)
    sources = [Source(f"src/{k.name}.cu", families()[k.family].flags(k, gpu)) for k in kernels]
    for kernel, file in zip(kernels, sources, strict=True):
        (folder / file.path).write_text(families()[kernel.family].source(kernel), encoding="utf-8")
    contexts = [_emit_part(part, gpu, name, folder, sources) for part in parts]
    context = {**contexts[-1], "name": name, "upper": name.upper(), "guard": f"BOLT_{name.upper()}_H"}
    context |= {"cutlass_version": versions, "cutlass_pip": f"{versions}.0", "sources": sources}
    context["vendor"] = any(c["vendor"] for c in contexts)
    context["buckets"] = buckets(parts)
    if context["buckets"]:
        context["parts"] = [{"batch": part.batch, "name": part.inner(name)} for part in parts]
        sources.append(Source("src/buckets.cu", gencode(gpu)))
        _write(folder / "src/buckets.cu", "buckets.cu.j2", context)
    emit_callers(context, folder)
    (source / "exports.map").write_text(f"{{ global: {name}_*; local: *; }};\n", encoding="utf-8")
    return sources


def _emit_part(part: Part, gpu: GpuSpec, name: str, folder: Path, sources: list[Source]) -> dict[str, Any]:
    """Write the operators, the vendor kernels and the plan of one part; what they were rendered with."""
    program = part.program
    kernels = list(dict.fromkeys(s.candidate.kernel for s in program.templates if s.vendor is None))
    vendors = vendor_kernels(program, part.label)
    operators, operator_of = operator_kernels(program)
    space = f"{part.label}::" if part.batch else ""
    context = _context(program, part.memory, part.weights, gpu, part.inner(name), kernels, operator_of, part.label)
    context |= {"title": name, "label": part.label, "vendor": bool(vendors)}
    context["kernels"] += vendors.values()
    context["operators"] = [f"{space}{k.name}" for k in operators]
    for step in context["steps"]:
        if step.get("operator"):
            step["operator"] = f"{space}{step['operator']}"
    texts = {"plan": environment().get_template("plan.cu.j2").render(context)}
    if operators:
        texts["operators"] = operators_unit(operators, name, part.label)
    if vendors:
        texts["vendor"] = vendor_unit(vendors)
    for stem in sorted(texts):
        (folder / part.file(stem)).write_text(texts[stem], encoding="utf-8")
        sources.append(Source(part.file(stem), gencode(gpu)))
    if part.batch:
        _write(folder / "src" / f"{part.inner(name)}.h", "header.h.j2", {**context, "buckets": None})
    return context


def _write(path: Path, template: str, context: dict[str, Any]) -> None:
    path.write_text(environment().get_template(template).render(context), encoding="utf-8")


def vendor_kernels(program: Program, label: str = "") -> dict[VendorGemm, str]:
    """Every distinct vendor kernel and its name; `label`: of the part of the library."""
    distinct = dict.fromkeys(s.vendor for s in program.templates if s.vendor is not None)
    return {gemm: f"cublaslt{i}{label}" for i, gemm in enumerate(distinct)}


def kernel_names(program: Program, label: str = "") -> dict[int, str]:
    """The K of bolt_run_K for each tuned step, by the step's position."""
    vendors = vendor_kernels(program, label)
    return {
        number: vendors[step.vendor] if step.vendor else step.candidate.kernel.name
        for number, step in enumerate(program.steps)
        if isinstance(step, TemplateStep)
    }


def operators_unit(operators: Sequence[OperatorKernel], name: str, label: str = "") -> str:
    """The file of all operator kernels, in the namespace `label` if one is given."""
    headers = sorted({k.header for k in operators} | {"common.cuh"})
    includes = "".join(f'#include "{h}"\n' for h in ("bolt/activations.h", *headers))
    head = f"// The operator kernels of lib{name}.so, generated by Bolt Workbench.\n{includes}\n"
    body = "\n".join(k.source for k in operators)
    return f"{head}namespace {label} {{\n{body}\n}}\n" if label else head + body


def gencode(gpu: GpuSpec) -> tuple[str, str]:
    """nvcc's flags for exactly this architecture."""
    return "-gencode", f"arch=compute_{gpu.nvcc_arch},code=sm_{gpu.nvcc_arch}"


def _context(
    program: Program, memory: MemoryPlan, weights: WeightsFile, gpu: GpuSpec, name: str, kernels: Sequence[Kernel],
    operator_of: dict[int, str], label: str,
) -> dict[str, Any]:  # fmt: skip
    offsets = {c.buffer: c.device_offset for c in weights.constants}
    offsets |= {p.buffer: i for ports in (program.inputs, program.outputs) for i, p in enumerate(ports)}
    offsets |= memory.offsets
    return {
        "name": name,
        "upper": name.upper(),
        "guard": f"BOLT_{name.upper()}_H",
        "dtypes": [(str(d).upper(), n) for d, n in DTYPE_NUMBERS.items()],
        "kernels": [k.name for k in kernels],
        "buffers": [{"space": _SPACES[b.space], "offset": offsets.get(b.index, 0)} for b in program.buffers],
        "inputs": [_port(p) for p in program.inputs],
        "outputs": [_port(p) for p in program.outputs],
        "steps": _steps(program, operator_of, label),
        "arena_bytes": memory.nbytes,
        "weights": weights,
        "pdl": gpu.sm >= 90,
        "arch": gpu.nvcc_arch,
        "gpu_name": gpu.name,
        "major": gpu.sm // 10,
        "minor": gpu.sm % 10,
        "exact": gpu.nvcc_arch.endswith("a"),
    }


def _port(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "shape": list(port.type.shape),
        "dtype": DTYPE_NUMBERS[port.type.dtype],
        "bytes": port.type.nbytes,
        "element": "bfloat16" if port.type.dtype == DType.BF16 else NUMPY_NAMES[port.type.dtype],
    }


def _steps(program: Program, operator_of: dict[int, str], label: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    names = kernel_names(program, label)
    for number, step in enumerate(program.steps):
        if isinstance(step, TemplateStep):
            pointers = _pointers(step, program)
            fields = _fields(step, program)
            steps.append({"number": number, "kernel": names[number], "pointers": pointers, "fields": fields})
        else:
            steps.append(
                {"number": number, "kernel": "", "operator": operator_of[number], "inputs": step.inputs,
                 "outputs": step.outputs}
            )  # fmt: skip
    return steps


def _pointers(step: TemplateStep, program: Program) -> list[tuple[str, int, int]]:
    """(field, buffer, byte of the buffer) of every operand there is."""
    first = {name: part.first for name, part in step.slices} | {"d": step.first}
    given = [(f, index) for f in _POINTERS if (index := getattr(step, f)) is not None]
    return [(f, index, first.get(f, 0) * program.buffers[index].dtype.itemsize) for f, index in given]


def _fields(step: TemplateStep, program: Program) -> list[tuple[str, str]]:
    """The non-zero number fields of the argument block; pointers, scratch and sm_count are set at run time."""
    launch = Launch() if step.vendor else step.candidate.launch
    args = args_of(step.workload, launch, sm_count=0)
    early = (step.b, step.bias, step.b1, step.bias1, step.b2, step.bias2)
    read_early = [program.buffers[i].space for i in early if i is not None]
    if args.pdl and any(space is not Space.CONSTANT for space in read_early):
        args.pdl = 2  # bolt/abi.h: they too wait for the kernel in front
    args.ldd = step.pitch or args.ldd
    for name, part in step.slices:
        for field in strides_of(step.workload, name):
            setattr(args, field, part.stride(getattr(args, field)))
    skipped = (*_POINTERS, "workspace", "workspace_bytes", "sm_count", "reserved")
    names = [str(field[0]) for field in args._fields_ if field[0] not in skipped]
    values = [(n, getattr(args, n)) for n in names]
    return [(n, c_float(v) if isinstance(v, float) else str(v)) for n, v in values if v]
