"""From a planned graph to a folder with a compiled library, written whole or not at all."""

import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.build.toolchain import Toolchain
from core.device import GpuIdentity
from core.errors import ExportError
from core.export.build import Progress, build_library
from core.export.c_text import library_name
from core.export.emit import Part, emit_library
from core.export.lower import lower
from core.export.manifest import NAME, Exported, manifest, report
from core.export.memory import lifetimes, plan_memory
from core.export.trust import remember
from core.export.weights import write_shared_weights
from core.files import exchange, remove_left_over
from core.fusion.plan import FusionPlan
from core.graph.ir import Graph
from core.tuner.choice import Choice, estimated

# Begins the name of the folder that an export grows in; the number of its process follows.
GROWING = ".bolt-export-"
_LEFT_OVER_S = 3600.0


@dataclass(frozen=True)
class Origins:
    """What the manifest says of where the model came from: `source` as the user named it, a path or a built-in.

    `batch`: the largest of several. `notes`: what was done to the model before it was lowered
    (core.session.Session.notes), a sentence each.
    """

    source: str
    batch: int | None = None
    notes: tuple[str, ...] = ()


def complete_choices(plan: FusionPlan, choices: Mapping[str, Choice], gpu: GpuIdentity) -> dict[str, Choice]:
    """The choices with an estimate for every workload that has none; one no family serves stays without."""
    found = dict(choices)
    for key, regions in plan.workloads.items():
        chosen = found.get(key)
        if chosen is None or (chosen.candidate is None and not chosen.use_vendor):
            workload = regions[0].workload
            guess = estimated(workload, gpu.spec) if workload is not None else None
            if guess is not None:
                found[key] = guess
    return found


@dataclass(frozen=True)
class Bucket:
    """The model at one batch size, prepared, fitted and planned, and the kernel of each workload."""

    batch: int  # 0: the only one of its library
    graph: Graph
    plan: FusionPlan
    choices: Mapping[str, Choice]
    notes: tuple[str, ...] = ()


def export(
    graph: Graph,
    plan: FusionPlan,
    choices: Mapping[str, Choice],
    gpu: GpuIdentity,
    out_dir: Path,
    toolchain: Toolchain,
    origins: Origins,
    name: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Lower, write, compile and put into place. Returns the manifest.

    Args:
        graph: prepared and, for float16, with activations that fit it (core.session.fitted).
        choices: the kernel of each workload, e.g. from `complete_choices`.
        out_dir: created, or an earlier export in it replaced; what else lies there stays. Nothing outside is written.
        name: of the library; made of the graph's name if not given. Sanitised in either case.

    Raises:
        ExportError: the model can't be exported, or the folder holds something else.
        ToolchainError: a source does not compile.
        Cancelled: `cancel` was set.
    """
    bucket = Bucket(0, graph, plan, choices, origins.notes)
    return export_buckets([bucket], gpu, out_dir, toolchain, origins, name, jobs, progress, cancel)


def export_buckets(
    buckets: Sequence[Bucket],
    gpu: GpuIdentity,
    out_dir: Path,
    toolchain: Toolchain,
    origins: Origins,
    name: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """As `export`, of one library that runs every batch up to the largest; `buckets` by ascending batch.

    Raises as `export`; also ExportError for a model whose inputs and outputs do not grow with the batch.
    """
    out_dir = out_dir.absolute()
    check_target(out_dir)
    programs = [lower(b.graph, b.plan, b.choices) for b in buckets]
    programs = [replace(p, notes=(*b.notes, *p.notes)) for b, p in zip(buckets, programs, strict=True)]
    memories = [plan_memory(lifetimes(p)) for p in programs]
    graph = buckets[-1].graph
    library = library_name(name or graph.name)
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        place = _workplace(out_dir)
        remove_left_over(place, GROWING, _LEFT_OVER_S)
        with tempfile.TemporaryDirectory(prefix=f"{GROWING}{os.getpid()}-", dir=place) as made:
            folder = Path(made) / "export"
            folder.mkdir()
            weights = write_shared_weights(programs, folder / f"{library}.safetensors")
            parts = [Part(p, m, w, b.batch) for p, m, w, b in zip(programs, memories, weights, buckets, strict=True)]
            sources = emit_library(parts, gpu.spec, library, folder, toolchain.cutlass_version)
            build_library(folder, library, sources, gpu.spec, toolchain, jobs, progress, cancel)
            plans = [b.plan for b in buckets]
            exported = Exported(
                library, graph.name, origins.source, origins.batch, gpu, toolchain, tuple(plans), tuple(parts)
            )
            (folder / "report.md").write_text(report(manifest(exported, folder)), encoding="utf-8")
            data = manifest(exported, folder)
            (folder / NAME).write_text(json.dumps(data, indent=1), encoding="utf-8")
            _put_into_place(folder, out_dir)
            remember(out_dir)
    except OSError as error:
        what = f"{out_dir} can't be written ({error.strerror or error})"
        raise ExportError(what, "free some space or choose another folder with -o") from error
    return data


def check_target(out_dir: Path) -> None:
    """Raises ExportError if the folder exists and is neither empty nor an earlier export."""
    try:
        if out_dir.is_symlink() or (out_dir.exists() and not out_dir.is_dir()):
            raise ExportError(f"{out_dir} is not a folder", "choose another one with -o")
        held = out_dir.is_dir() and any(not p.name.startswith(GROWING) for p in out_dir.iterdir())
    except OSError as error:
        what = f"{out_dir} can't be used ({error.strerror or error})"
        raise ExportError(what, "choose another folder with -o") from error
    if held and read_manifest(out_dir) is None:
        raise ExportError(f"{out_dir} holds files that are no exported library", "choose an empty folder with -o")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an exported folder; None if it holds none that can be read."""
    try:
        data = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and "format" in data and isinstance(data.get("files"), dict) else None


def _workplace(out_dir: Path) -> Path:
    """Where the export is made: beside its folder, or inside one that can't be renamed or that a shell stands in."""
    fixed = out_dir.is_dir() and (
        os.path.ismount(out_dir) or not os.access(out_dir.parent, os.W_OK) or out_dir.samefile(os.curdir)
    )
    return out_dir if fixed else out_dir.parent


def _put_into_place(folder: Path, out_dir: Path) -> None:
    """Rename the finished folder, or what is in it, to its place; an earlier export changes places with it.

    Where the file system can't exchange two folders the earlier one is moved aside first: a process that ends between
    the two steps leaves it in the folder that the export grew in.
    """
    folder.chmod(0o755)
    if not out_dir.exists():
        os.rename(folder, out_dir)
        return
    aside = folder.parent / "earlier"
    if folder.parent.parent != out_dir and exchange(folder, out_dir):
        _keep_others(folder, out_dir)
        return
    moves = [(out_dir, aside), (folder, out_dir)]
    if folder.parent.parent == out_dir:
        aside.mkdir()
        moves = [(p, aside / p.name) for p in out_dir.iterdir() if not p.name.startswith(GROWING)]
        moves += [(p, out_dir / p.name) for p in folder.iterdir()]
    done = []
    try:
        for source, target in moves:
            os.rename(source, target)
            done.append((source, target))
    except OSError:
        for source, target in reversed(done):
            os.rename(target, source)
        raise
    _keep_others(aside, out_dir)


def _keep_others(earlier: Path, out_dir: Path) -> None:
    """Take over what the user put into the earlier export: files that its manifest does not list."""
    old = read_manifest(earlier)
    ours = {NAME, *(old["files"] if old else ())}
    for path in sorted(earlier.rglob("*")):
        place = path.relative_to(earlier)
        if (path.is_file() or path.is_symlink()) and str(place) not in ours and not (out_dir / place).exists():
            (out_dir / place).parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, out_dir / place)
