"""`export --partial`: libraries for what can be carried, ONNX Runtime for the rest."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import Reporter
from core.errors import ExportError

if TYPE_CHECKING:
    from core.session import Session


def run_partial(args: argparse.Namespace, session: "Session", reporter: Reporter) -> int:
    """Cut, export each part, write the caller. The model has operators without a kernel."""
    from core.build.toolchain import find_toolchain
    from core.cli.export import choices_of, verify_here
    from core.device import is_here, resolve_gpu
    from core.export.exporter import Bucket, Origins, check_target, export_buckets
    from core.export.partial import export_partial
    from core.export.partition import not_carried, partition
    from core.fusion.planner import plan
    from core.graph.ir import Graph
    from core.session import fitted

    if args.plan:
        raise ExportError("a plan file is of the whole model, --partial cuts it", "leave out one of the two")
    out, gpu, toolchain = Path(args.output), resolve_gpu(args.gpu), find_toolchain()
    check_target(out.absolute())
    left = not_carried(session.graph, session.plan)
    stages = partition(session.graph, left, lambda cut: bool(plan(cut, session.dtype).workloads))
    if not any(s.carried for s in stages):
        raise ExportError(f"no part of {args.model} holds a region that is worth a library", "run it in ONNX Runtime")

    def export_part(graph: Graph, folder: Path, name: str, origins: Origins) -> dict[str, Any]:
        reporter.log(f"{name}: {len(graph.nodes)} nodes")
        part = fitted(replace(session, graph=graph, plan=plan(graph, session.dtype), name=name, source=origins.source))
        choices = choices_of(args, reporter, part, gpu, toolchain)
        bucket = Bucket(0, part.graph, part.plan, choices, part.notes)
        return export_buckets([bucket], gpu, folder, toolchain, origins, name, args.jobs)

    origins = Origins(session.origin, session.batch)
    data = export_partial(session.graph, stages, out, origins, args.name, export_part)
    told = [{**s, "steps": None, "verify": None} for s in data["stages"]]
    for stage, part in zip([t for t in told if t["carried"]], data["parts"], strict=True):
        stage["steps"] = len(part["steps"])
        if is_here(gpu) and not args.no_verify:
            stage["verify"] = verify_here(out / stage["name"], args, reporter)
    found = {"folder": str(out), "caller": str(out / f"{data['name']}.py"), "gpu": gpu.name, "stages": told}
    reporter.result(found, lambda: _text(found))
    wrong = [s["name"] for s in told if s["verify"] and not s["verify"]["ok"]]
    if wrong:
        raise ExportError(f"{wrong[0]} in {out} does not compute what its part of the model does", "see `verify`")
    return 0


def _text(found: dict[str, Any]) -> str:
    from core.cli.verify import as_text

    lines = [f"{found['caller']} runs {len(found['stages'])} parts in turn, for {found['gpu']}"]
    for stage in found["stages"]:
        by = f"library, {stage['steps']} kernels" if stage["carried"] else "ONNX Runtime"
        lines.append(f"  {stage['name']}: {len(stage['nodes'])} nodes, {by}")
        lines += [f"    {line}" for line in as_text(stage["verify"]).splitlines()] if stage["verify"] else []
    lines.append("tensors pass between them in host memory; `verify` checks each library's folder on its own")
    return "\n".join(lines)
