"""manifest.json and report.md of an exported folder."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.build.toolchain import Toolchain
from core.device import GpuIdentity
from core.export.emit import Part, kernel_names
from core.export.environment import environment
from core.export.kernels import operator_kernels
from core.export.placement import written
from core.export.program import TemplateStep
from core.files import digest
from core.fusion.plan import FusionPlan
from core.tuner.choice import Choice, Origin
from templates.family import candidate_to_dict

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Exported:
    """Everything the manifest and the report speak of; a plan for each part, by ascending batch."""

    name: str
    model: str
    source: str
    batch: int | None
    gpu: GpuIdentity
    toolchain: Toolchain
    plans: tuple[FusionPlan, ...]
    parts: tuple[Part, ...]


def manifest(exported: Exported, folder: Path) -> dict[str, Any]:
    """Plain JSON values. `measured` is true only if every tuned kernel was measured on this very kind of GPU here.

    What is told of a plan is that of the largest batch; `buckets` tells it of each if there are several. `files` maps
    every other file of the folder to its SHA-256.
    """
    spec = asdict(exported.gpu.spec)
    told = [_told(plan, part) for plan, part in zip(exported.plans, exported.parts, strict=True)]
    return {
        "format": FORMAT,
        "name": exported.name,
        "model": exported.model,
        "source": exported.source,
        "batch": exported.batch,
        "dtype": str(exported.parts[-1].program.dtype),
        "gpu": {"name": exported.gpu.name, "sm": exported.gpu.sm, "arch": exported.gpu.spec.nvcc_arch,
                "driver": exported.gpu.driver, "cuda": exported.gpu.cuda, "spec": spec},
        "toolchain": {"nvcc": exported.toolchain.nvcc_version, "host": exported.toolchain.host_version,
                      "cutlass": exported.toolchain.cutlass_version},
        **told[-1],
        "measured": all(t["measured"] for t in told),
        "estimated": sum(t["estimated"] for t in told),
        "buckets": [{"batch": p.batch, **t} for p, t in zip(exported.parts, told, strict=True)] if told[1:] else [],
        "files": checksums(folder),
    }  # fmt: skip


def _told(plan: FusionPlan, part: Part) -> dict[str, Any]:
    program = part.program
    count, moved = program.conversions()
    return {
        "inputs": [_port(p.name, p.type) for p in program.inputs],
        "outputs": [_port(p.name, p.type) for p in program.outputs],
        "measured": all(s.choice.origin is Origin.OWN for s in program.templates),
        "estimated": sum(s.choice.origin is Origin.ESTIMATE for s in program.templates),
        "memory": {"workspace_bytes": part.memory.nbytes, "lower_bound_bytes": part.memory.lower_bound,
                   "weight_bytes": part.weights.device_bytes},
        "conversions": {"steps": count, "bytes": moved},
        "steps": steps_of(part),
        "regions": [region_of(r) for r in plan.regions],
        "left_alone": [asdict(left) for left in plan.left_alone],
        "notes": list(program.notes),
    }  # fmt: skip


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below the folder but the manifest, by path relative to it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != NAME and ".build-" not in str(p))
    return {p.relative_to(folder).as_posix(): digest(p) for p in files}


def _port(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "dtype": str(kind.dtype), "shape": list(kind.shape)}


def region_of(region: Any) -> dict[str, Any]:
    return {
        "id": region.id, "kind": str(region.kind), "nodes": list(region.nodes), "reason": region.reason,
        "workload": region.workload.key if region.workload else None,
    }  # fmt: skip


def steps_of(part: Part) -> list[dict[str, Any]]:
    """What each step of a part runs, from which measurement, and what it writes (core.export.placement.written)."""
    program = part.program
    writes = written(program, part.memory)
    _, operator_of = operator_kernels(program)
    names = kernel_names(program, part.label)
    steps: list[dict[str, Any]] = []
    for number, step in enumerate(program.steps):
        if isinstance(step, TemplateStep):
            tuned = _tuned(step, names[number])
            steps.append({"step": number, "nodes": list(step.nodes), "region": step.region, **tuned})
        else:
            empty = {"launch": "", "origin": "", "us": None, "vendor": None}
            steps.append({"step": number, "nodes": list(step.nodes), "kernel": operator_of[number], **empty})
        steps[-1]["writes"] = writes.get(number, [])
    return steps


def _tuned(step: TemplateStep, kernel: str) -> dict[str, Any]:
    choice: Choice = step.choice
    return {
        "workload": step.workload.key,
        "kernel": kernel,
        "launch": "" if step.vendor else step.candidate.launch.name,
        "candidate": None if step.vendor else candidate_to_dict(step.candidate),
        "origin": str(choice.origin),
        "us": choice.us,
        "relative_l2": choice.measured.relative_l2 if choice.measured else None,
        "vendor": {"library": choice.vendor.source, "us": choice.vendor.us, "detail": choice.vendor.detail}
        if choice.vendor
        else None,
    }


def report(data: Mapping[str, Any]) -> str:
    """report.md from a manifest: what runs, why, and what was measured."""
    return environment().get_template("report.md.j2").render({**data, "shown": _shown})


def _shown(text: object) -> str:
    """Text of the model inside a Markdown table: one line, no markup that could end the cell or the code span."""
    flat = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return flat.replace("<", "&lt;").replace(">", "&gt;")
