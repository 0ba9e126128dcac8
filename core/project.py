"""Project files: which model is open and how, its plans, and what the window shows. JSON, so that it can be compared.

    {"format": "bolt-project", "version": 2, "model": "nets/resnet50.onnx", "batch": 32, "dtype": "f16", "gpu": "h200",
     "plan": {... a plan file's content, core.fusion.files ...} or null for the automatic plan,
     "kept": {"pairs": {... a plan file's content ...}, ...}, "plan_name": "pairs", "view": {...}}

A model's path is kept relative to the project file where the model lies below the same folder. Version 1 had no kept
plans.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import BoltError
from templates.types import DType

FORMAT, VERSION = "bolt-project", 2
SUFFIX = ".bolt"


class ProjectError(BoltError):
    """A project file can't be read or written, or is none."""


@dataclass(frozen=True)
class Project:
    """`model` is a path or a built-in name, `plan` a plan file's content (None: automatic).

    `kept` are plans by the names that the user gave them, `plan_name` is the one that `plan` started from ("": the
    automatic one). `view` belongs to the window: plain JSON values.
    """

    model: str
    batch: int | None
    dtype: DType
    gpu: str
    plan: Mapping[str, Any] | None = None
    view: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plan_name: str = ""


def save_project(project: Project, path: Path) -> None:
    """Write the file whole or not at all. Raises ProjectError."""
    data = {
        "format": FORMAT, "version": VERSION, "model": _kept(project.model, path), "batch": project.batch,
        "dtype": str(project.dtype), "gpu": project.gpu, "plan": project.plan, "kept": dict(project.kept),
        "plan_name": project.plan_name, "view": dict(project.view),
    }  # fmt: skip
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be what is wrong
            beside.unlink(missing_ok=True)
        remedy = "choose another folder, or make room on the disk"
        raise ProjectError(f"can't write the project to {path}: {error.strerror or error}", remedy) from error


def load_project(path: Path) -> Project:
    """Raises ProjectError if the file is none, is damaged, or was written by a newer version."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProjectError(f"can't read the project {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ProjectError(f"{path} is not a project file: {error}", f"open a {SUFFIX} file or a model") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ProjectError(f"{path} is not a project file", f"open a {SUFFIX} file or a model")
    version = data.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ProjectError(
            f"the project {path} has version {version!r}, this program reads up to {VERSION}",
            "update this program; the file was left as it is",
        )
    return _project(data, path)


def _project(data: Mapping[str, Any], path: Path) -> Project:
    model, batch, gpu = data.get("model"), data.get("batch"), data.get("gpu")
    plan, view = data.get("plan"), data.get("view", {})
    kept, plan_name = data.get("kept", {}), data.get("plan_name", "")
    whole = isinstance(batch, int) and not isinstance(batch, bool) and batch > 0
    sound = isinstance(model, str) and model and (batch is None or whole) and isinstance(gpu, str)
    plans = isinstance(kept, dict) and all(isinstance(p, dict) for p in kept.values()) and isinstance(plan_name, str)
    if not sound or not plans or not (plan is None or isinstance(plan, dict)) or not isinstance(view, dict):
        raise ProjectError(f"the project {path} is damaged", "open the model anew and save the project again")
    try:
        dtype = DType(str(data.get("dtype")))
    except ValueError:
        raise ProjectError(f"the project {path} has the unknown dtype {data.get('dtype')!r}") from None
    return Project(_found(str(model), path), batch, dtype, str(gpu), plan, view, kept, plan_name)


def _kept(model: str, project: Path) -> str:
    """The model's path as the file keeps it; a built-in name stays as it is."""
    path, folder = Path(model), project.resolve().parent
    if not path.is_file():
        return model
    whole = path.resolve()
    return whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else str(whole)


def _found(model: str, project: Path) -> str:
    beside = project.resolve().parent / model
    return str(beside) if beside.is_file() else model
