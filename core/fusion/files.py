"""Plan files: JSON that a person can edit. They hold only what was decided; everything else is derived from the graph.

    {"format": "bolt-plan", "version": 1, "model": "resnet50", "dtype": "f16",
     "groups": [{"kind": "conv", "nodes": ["conv1", "relu1"]}, {"kind": "pool", "nodes": ["pool1"]}, ...]}

Each group is one region. A node in a group of its own is kept alone; a node that no group names is planned
automatically. `kind` may be left out; where it is given it must be what the nodes form.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import PlanError
from core.fusion.plan import FusionPlan, Kind
from core.fusion.planner import plan as make_plan
from core.graph.ir import Graph
from templates.types import DType

FORMAT, VERSION = "bolt-plan", 1
COMPUTED = (DType.F16, DType.BF16, DType.TF32)


def save_plan(plan: FusionPlan, path: Path | str) -> None:
    """Write the plan's groups. Raises PlanError if the file can't be written."""
    head = plan_data(plan)
    # One group a line, so that an edit and its diff are about lines.
    lines = ",\n".join(f"  {json.dumps(group, ensure_ascii=False)}" for group in head.pop("groups"))
    text = f'{json.dumps(head, ensure_ascii=False)[:-1]}, "groups": [\n{lines}\n]}}\n'
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError(f"can't write the plan to {path}: {error.strerror}") from error


def plan_data(plan: FusionPlan) -> dict[str, Any]:
    """The content of a plan file as plain JSON values; `plan_from` reads it back."""
    groups = [{"kind": str(r.kind), "nodes": list(r.nodes)} for r in plan.regions]
    return {"format": FORMAT, "version": VERSION, "model": plan.model, "dtype": str(plan.dtype), "groups": groups}


def load_plan(path: Path | str, graph: Graph, dtype: DType | None = None) -> FusionPlan:
    """The plan of the file for this graph, in `dtype` or else in the file's own type.

    Raises PlanError if the file is none, or if a group of it is not legal for the graph: with the reason and the node.
    """
    return plan_from(_read(path), graph, dtype, path)


def plan_from(data: object, graph: Graph, dtype: DType | None = None, path: Path | str = "") -> FusionPlan:
    """The plan that `plan_data` wrote, or a person; `path` is named in what is raised: see load_plan."""
    checked = _checked(data, path)
    groups = [_group(path, number, entry) for number, entry in enumerate(checked["groups"], start=1)]
    try:
        made = make_plan(graph, dtype or _dtype(path, checked), [nodes for nodes, _ in groups])
    except PlanError as error:
        raise PlanError(f"plan file {path}: {error.what}", error.remedy or "edit the file, or plan again") from error
    for nodes, kind in groups:
        region = made.region_of(nodes[0])
        if kind is not None and region is not None and region.kind is not kind:
            raise PlanError(
                f"plan file {path}: the group of {nodes[0]} says {kind}, but its nodes form {region.kind}",
                "correct the kind or leave it out",
            )
    return made


def _read(path: Path | str) -> object:
    try:
        data: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"can't read the plan file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not a plan file: {error}", "`inspect MODEL --save-plan FILE` writes one") from error
    return data


def _checked(data: object, path: Path | str) -> dict[str, Any]:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f"{path} is not a plan file", "`inspect MODEL --save-plan FILE` writes one")
    if data.get("version") != VERSION:
        raise PlanError(f"plan file {path} has version {data.get('version')!r}, this program reads {VERSION}")
    if not isinstance(data.get("groups"), list):
        raise PlanError(f"plan file {path} has no list of groups")
    return data


def _group(path: Path | str, number: int, entry: object) -> tuple[list[str], Kind | None]:
    where = f"plan file {path}: group {number}"
    nodes = entry.get("nodes") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(nodes, list) or not nodes:
        raise PlanError(f"{where} has no list of nodes")
    wrong = [n for n in nodes if not isinstance(n, str)]
    if wrong:
        raise PlanError(f"{where} holds {wrong[0]!r}, which is no node name")
    kind = entry.get("kind")
    if kind is None:
        return nodes, None
    try:
        return nodes, Kind(kind)
    except ValueError:
        raise PlanError(f"{where} has the unknown kind {kind!r}", f"one of {', '.join(Kind)}") from None


def _dtype(path: Path | str, data: Mapping[str, Any]) -> DType:
    found = data.get("dtype", DType.F16)
    if found not in COMPUTED:
        raise PlanError(f"plan file {path} has the unknown dtype {found!r}", f"one of {', '.join(COMPUTED)}")
    return DType(found)
