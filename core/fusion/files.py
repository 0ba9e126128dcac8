"""Plan files: JSON that a person can edit. They hold only what was decided; everything else is derived from the graph.

    {"format": "bolt-plan", "version": 2, "model": "resnet50", "dtype": "f16",
     "forbidden": [["conv2", "add1"]],
     "groups": [{"kind": "conv", "nodes": ["conv1", "relu1"], "pinned": true}, {"kind": "pool", "nodes": ["pool1"]},
                {"kind": "b2b_conv", "nodes": ["conv3", "relu3", "conv4"], "residence": "smem"}, ...]}

Each group is one region. A node in a group of its own is kept alone; a node that no group names is planned
automatically. `kind` may be left out; where it is given it must be what the nodes form. `pinned` and `residence` ("rf"
or "smem", of pairs) are written where they are set. No region holds all nodes of a group in `forbidden`. Version 1 had
none of the three.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import PlanError
from core.files import write_atomically
from core.fusion.plan import FusionPlan, Kind, Region
from core.fusion.planner import plan as make_plan
from core.fusion.replan import Mark, with_marks
from core.fusion.residence import refused
from core.graph.ir import Graph
from templates.types import DType, Residence

FORMAT, VERSION = "bolt-plan", 2
COMPUTED = (DType.F16, DType.BF16, DType.TF32)


def save_plan(plan: FusionPlan, path: Path | str) -> None:
    """Write the plan's groups. Raises PlanError if the file can't be written."""
    head = plan_data(plan)
    # One group a line, so that an edit and its diff are about lines.
    lines = ",\n".join(f"  {json.dumps(group, ensure_ascii=False)}" for group in head.pop("groups"))
    text = f'{json.dumps(head, ensure_ascii=False)[:-1]}, "groups": [\n{lines}\n]}}\n'
    try:
        write_atomically(Path(path), text)
    except OSError as error:
        remedy = "choose another folder, or make room on the disk"
        raise PlanError(f"can't write the plan to {path}: {error.strerror or error}", remedy) from error


def plan_data(plan: FusionPlan) -> dict[str, Any]:
    """The content of a plan file as plain JSON values; `plan_from` reads it back."""
    head = {"format": FORMAT, "version": VERSION, "model": plan.model, "dtype": str(plan.dtype)}
    bans = {"forbidden": [list(ban) for ban in plan.forbidden]} if plan.forbidden else {}
    return {**head, **bans, "groups": [_entry(region) for region in plan.regions]}


def _entry(region: Region) -> dict[str, Any]:
    pinned = {"pinned": True} if region.pinned else {}
    residence = {"residence": str(region.residence)} if region.residence else {}
    return {"kind": str(region.kind), "nodes": list(region.nodes), **pinned, **residence}


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
        made = make_plan(graph, dtype or _dtype(path, checked), [g.nodes for g in groups], _forbidden(path, checked))
        owners = {g.nodes[0]: made.region_of(g.nodes[0]) for g in groups}
        marks = {r.nodes: g.mark for g in groups if g.mark != Mark() and (r := owners[g.nodes[0]]) is not None}
        made = with_marks(made, marks)
        for region in made.regions:
            reason = refused(region, region.residence) if region.residence else None
            if reason is not None:
                raise PlanError(reason)
    except PlanError as error:
        raise PlanError(f"plan file {path}: {error.what}", error.remedy or "edit the file, or plan again") from error
    for group in groups:
        found = owners[group.nodes[0]]
        if group.kind is not None and found is not None and found.kind is not group.kind:
            raise PlanError(
                f"plan file {path}: the group of {group.nodes[0]} says {group.kind}, but its nodes form {found.kind}",
                "correct the kind or leave it out",
            )
    return made


@dataclass(frozen=True)
class _Group:
    nodes: list[str]
    kind: Kind | None
    mark: Mark


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
    version = data.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        what = f"plan file {path} has version {version!r}, this program reads up to {VERSION}"
        raise PlanError(what, "update this program; the file was left as it is")
    if not isinstance(data.get("groups"), list):
        raise PlanError(f"plan file {path} has no list of groups")
    return data


def _group(path: Path | str, number: int, entry: object) -> _Group:
    where = f"plan file {path}: group {number}"
    nodes = entry.get("nodes") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(nodes, list) or not nodes:
        raise PlanError(f"{where} has no list of nodes")
    wrong = [n for n in nodes if not isinstance(n, str)]
    if wrong:
        raise PlanError(f"{where} holds {wrong[0]!r}, which is no node name")
    pinned, kind, residence = entry.get("pinned", False), entry.get("kind"), entry.get("residence")
    if not isinstance(pinned, bool):
        raise PlanError(f"{where} is pinned {pinned!r}", "write true or false")
    if kind is not None and kind not in list(Kind):
        raise PlanError(f"{where} has the unknown kind {kind!r}", f"one of {', '.join(Kind)}")
    if residence is not None and residence not in list(Residence):
        raise PlanError(f"{where} has the unknown residence {residence!r}", f"one of {', '.join(Residence)}")
    mark = Mark(pinned, Residence(residence) if residence else None)
    return _Group(nodes, Kind(kind) if kind else None, mark)


def _forbidden(path: Path | str, data: Mapping[str, Any]) -> list[list[str]]:
    bans = data.get("forbidden", [])
    if not isinstance(bans, list) or not all(isinstance(b, list) and all(isinstance(n, str) for n in b) for b in bans):
        raise PlanError(f'plan file {path}: "forbidden" is a list of lists of node names')
    return bans


def _dtype(path: Path | str, data: Mapping[str, Any]) -> DType:
    found = data.get("dtype", DType.F16)
    if found not in COMPUTED:
        raise PlanError(f"plan file {path} has the unknown dtype {found!r}", f"one of {', '.join(COMPUTED)}")
    return DType(found)
