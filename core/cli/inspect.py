"""`inspect`: the graph, the fusion plan, the workloads, and a reason for each node left alone."""

import argparse
import io
import shutil
import sys
from typing import TYPE_CHECKING, Any

from core.cli import Reporter
from core.errors import printable

if TYPE_CHECKING:
    from rich.table import Table

    from core.fusion.plan import FusionPlan
    from core.session import Session

DTYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "f32"}
MAX_NODES_SHOWN = 6


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or the name of a built-in sample")
    parser.add_argument("--batch", type=_batch, metavar="N", help="batch size (default: the model's own)")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16", help="what the kernels compute in (default: fp16)")
    parser.add_argument("--plan", metavar="FILE", help="take the regions of this plan file instead of planning")
    parser.add_argument("--save-plan", metavar="FILE", help="write the plan to FILE, to be edited and given to --plan")
    parser.add_argument(
        "--range", action="store_true", help="run the model on the CPU and tell which activations leave float16's range"
    )
    parser.add_argument("--graph", action="store_true", help="print the graph too, one node a line")


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.fusion.files import save_plan
    from core.graph.describe import describe
    from core.session import open_model
    from templates.types import DType

    session = open_model(args.model, args.batch, DType(DTYPES[args.dtype]), args.plan, args.range)
    if args.save_plan:
        save_plan(session.plan, args.save_plan)
        reporter.log(f"plan written to {args.save_plan}")
    data = as_json(session)
    if args.graph:
        data["graph"] = describe(session.graph)
    if args.range:
        data["range"] = list(session.notes)
    reporter.result(data, lambda: _text(session, data))
    return 0


def _text(session: "Session", data: dict[str, Any]) -> str:
    parts = [data["graph"] + "\n"] if "graph" in data else []
    parts.append(as_text(session))
    if "range" in data:
        fits = (
            "every activation fits float16" if session.dtype == "f16" else f"{session.dtype} reaches as far as float32"
        )
        parts += data["range"] or [fits]
    return "\n".join(parts)


def as_json(session: "Session") -> dict[str, Any]:
    """What other programs rely on (cli.md): names, kinds, workload keys and reasons."""
    plan = session.plan
    return {
        "model": session.name,
        "nodes": len(session.graph.nodes),
        "regions": [
            {
                "id": region.id,
                "kind": str(region.kind),
                "nodes": list(region.nodes),
                "workload": region.workload.key if region.workload else None,
                "reason": region.reason,
            }
            for region in plan.regions
        ],
        "left_alone": [{"node": x.node, "op": x.op, "reason": x.reason} for x in plan.left_alone],
        "supported": plan.supported,
    }


def as_text(session: "Session") -> str:
    """Tables of regions, workloads, nodes left alone and fusions refused, and one line of summary."""
    from rich.console import Console

    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 160
    screen = Console(file=io.StringIO(), width=width, force_terminal=sys.stdout.isatty(), highlight=False)
    for table in [*_tables(session.plan), _chains(session)]:
        if table.row_count:
            screen.print(table)
    screen.print(_summary(session), markup=False)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _tables(plan: "FusionPlan") -> list["Table"]:
    regions = _table("Regions", "id", "kind", "nodes", "workload", "reason")
    for r in plan.regions:
        more = f" +{len(r.nodes) - MAX_NODES_SHOWN}" if len(r.nodes) > MAX_NODES_SHOWN else ""
        nodes = " ".join(r.nodes[:MAX_NODES_SHOWN]) + more
        kind = str(r.kind) if r.supported else f"{r.kind} (no kernel)"
        pinned = "pinned; " if r.pinned else ""
        _row(regions, r.id, kind, nodes, r.workload.key if r.workload else "", f"{pinned}{r.reason}")
    workloads = _table("Workloads", "regions", "GFLOP", "workload", "used by")
    for key, users in plan.workloads.items():
        work = users[0].workload
        gflop = f"{work.flops / 1e9:.3g}" if work else ""
        _row(workloads, str(len(users)), gflop, key, " ".join(r.id for r in users))
    left = _table("Left alone", "node", "operator", "reason")
    for x in plan.left_alone:
        _row(left, x.node, x.op, x.reason)
    refused = _table("Fusions refused", "region of", "node", "reason")
    for refusal in plan.refusals:
        _row(refused, refusal.anchor, refusal.node, refusal.reason)
    forbidden = _table("Fusions forbidden by the plan", "nodes", "reason")
    for ban in plan.forbidden:
        _row(forbidden, " + ".join(ban), "no region may hold all of them")
    return [regions, workloads, left, refused, forbidden]


def _chains(session: "Session") -> "Table":
    """What one kernel could run together, and what it can't: chains, and products of one input."""
    from core.fusion.propose import propose, refusals
    from core.fusion.residence import NAMES, places, unserved
    from templates.gpu import KNOWN_GPUS
    from templates.workload import Chain, Pair

    table = _table("Regions that share a tensor", "regions", "one kernel", "reason")
    for p in propose(session.graph, session.plan):
        ids, reason = " ".join(p.regions), p.reason
        if isinstance(p.workload, Chain):
            found = [NAMES[r] for r in places(p.workload)] if isinstance(p.workload, Pair) else []
            lacking = None if found else unserved(p.workload, KNOWN_GPUS["h200"])
            if lacking is not None:
                _row(table, ids, "no", lacking)
                continue
            reason = f"{reason}; it can stay in {' or '.join(found)}" if found else reason
        _row(table, ids, "if faster", f"{reason}; `tune --persistent FILE` measures both forms")
    for refusal in refusals(session.graph, session.plan):
        first, second = (session.plan.region_of(n) for n in (refusal.anchor, refusal.node))
        _row(table, " ".join(r.id for r in (first, second) if r), "no", refusal.reason)
    return table


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for column in columns:
        numeric = column in ("GFLOP", "regions")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=column == "id")
    return table


def _row(table: "Table", *cells: str) -> None:
    """Names come from the model: they are text, never rich's markup, and keep to one line."""
    from rich.text import Text

    table.add_row(*(Text(printable(" ".join(c.split()))) for c in cells))


def _summary(session: "Session") -> str:
    plan = session.plan
    tuned = sum(r.kind.tuned for r in plan.regions)
    batch = f", batch {session.batch}" if session.batch else ""
    lines = [
        f"{printable(session.name)}{batch}, {session.dtype}: {len(session.graph.nodes)} nodes in "
        f"{len(plan.regions)} regions, {tuned} of them tuned as {len(plan.workloads)} different workloads"
    ]
    missing = [r for r in plan.regions if not r.supported]
    if missing:
        lines.append(f"{len(missing)} regions have no kernel, so the model can't be exported:")
        lines += [printable(f"  {session.graph.node(r.nodes[0]).op} {r.nodes[0]}: {r.reason}") for r in missing]
    return "\n".join(lines)


def _batch(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a batch size")
    return int(text)
