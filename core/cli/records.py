"""`records`: list, show, export, import, merge or prune the tuning records."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import Reporter
from core.errors import RecordError

if TYPE_CHECKING:
    from core.records.rows import Record
    from core.records.store import Records


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="GPUs and workloads that have records")
    show = actions.add_parser("show", help="every outcome of the workloads whose key holds TEXT")
    show.add_argument("text", metavar="TEXT", nargs="?", default="", help="part of a workload's key (default: all)")
    show.add_argument("--failed", action="store_true", help="failures only, with their reasons")
    show.add_argument("--gpu", metavar="NAME", help="of this GPU only")
    export = actions.add_parser("export", help="write the records to one file")
    export.add_argument("file", metavar="FILE", help="a .json or .json.gz file")
    export.add_argument("--gpu", metavar="NAME", help="of this GPU only")
    export.add_argument("--finals", action="store_true", help="the finals only, no screening and no failures")
    load = actions.add_parser("import", help="add the records of a file or of another user's database")
    load.add_argument("file", metavar="FILE")
    merge = actions.add_parser("merge", help="merge files and databases into one file")
    merge.add_argument("files", metavar="FILE", nargs="+")
    merge.add_argument("-o", "--output", metavar="OUT", required=True)
    prune = actions.add_parser("prune", help="remove records; at least one condition")
    prune.add_argument("--before", metavar="DATE", default="", help="taken before this date (2026-11-29)")
    prune.add_argument("--outdated", action="store_true", help="of template versions that are no more")
    prune.add_argument("--screening", action="store_true", help="of the screening; the finals stay")

    for action in actions.choices.values():  # `records list --json` means the same as `records --json list`
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        action.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.records.databases import read_any
    from core.records.exchange import write_file
    from core.records.store import Records

    if args.action == "merge":
        return _merge(args, reporter)
    records = Records()
    try:
        if args.action == "list":
            _list(records, reporter)
        elif args.action == "show":
            _show(records, args, reporter)
        elif args.action == "export":
            count = write_file(Path(args.file), records.dump(_gpu_name(args.gpu), args.finals))
            reporter.result({"file": args.file, "rows": count}, lambda: f"{count} rows written to {args.file}")
        elif args.action == "import":
            count = records.load(read_any(Path(args.file)), Path(args.file).name)
            reporter.result({"file": args.file, "new": count}, lambda: f"{count} new rows from {args.file}")
        else:
            _prune(records, args, reporter)
    finally:
        records.close()
    return 0


def _gpu_name(name: str | None) -> str | None:
    """The driver's name of a GPU that was named shortly; any other name as it is."""
    from templates.gpu import known_gpu

    spec = known_gpu(name) if name else None
    return spec.name if spec else name


def _merge(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.records.databases import read_any
    from core.records.exchange import write_file
    from core.records.rows import TABLES, Row

    union: dict[str, dict[str, Row]] = {table: {} for table in TABLES}
    for file in args.files:
        for table, rows in read_any(Path(file)).items():
            union[table].update({row["id"]: row for row in rows})
    count = write_file(Path(args.output), {table: list(rows.values()) for table, rows in union.items()})
    reporter.result({"file": args.output, "rows": count}, lambda: f"{count} rows written to {args.output}")
    return 0


def _prune(records: "Records", args: argparse.Namespace, reporter: Reporter) -> None:
    if not (args.before or args.outdated or args.screening):
        raise RecordError("prune was given no condition", "add --before DATE, --outdated or --screening")
    count = records.prune(args.before, args.outdated, args.screening)
    reporter.result({"removed": count}, lambda: f"{count} records removed")


def _list(records: "Records", reporter: Reporter) -> None:
    from core.records.summary import summary
    from core.records.trust import conflicts, identity_here

    lines = summary(records, identity_here())
    rows = [
        {
            "gpu": line.gpu, "workload": line.workload, "shipped": line.shipped, "origin": line.origin,
            "best_us": line.best_us, "vendor_us": line.vendor_us, "screened": line.screened, "finals": line.finals,
            "failed": line.failed, "versions": line.versions, "taken": line.taken, "stale": list(line.stale),
            "conflict": line.conflict,
        }
        for line in lines
    ]  # fmt: skip
    disagreeing = [
        {"workload": c.workload, "candidate": c.candidate, "gpu": c.gpu, "claims": [asdict(x) for x in c.claims]}
        for c in conflicts(records)
    ]
    data = {"path": str(records.path), "workloads": rows, "conflicts": disagreeing}
    reporter.result(data, lambda: "\n".join(map(_list_line, rows)) or "none")


def _list_line(row: dict[str, Any]) -> str:
    best = f"{row['best_us']:.2f} us" if row["best_us"] else "no winner"
    counts = f"{row['screened']} screened, {row['finals']} finals, {row['failed']} failed"
    line = f"{row['gpu']} ({row['origin']}, {row['versions']})  {row['workload']}  {best}  {counts}"
    line += f"\n    not trusted: {'; '.join(row['stale'])}" if row["stale"] else ""
    return line + (f"\n    sources disagree: {row['conflict']}" if row["conflict"] else "")


def _show(records: "Records", args: argparse.Namespace, reporter: Reporter) -> None:
    from core.measure.measurement import Failure
    from core.records.trust import identity_here, stale

    found = [
        r
        for r in records.all(gpu=_gpu_name(args.gpu))
        if args.text in r.outcome.workload and (not args.failed or isinstance(r.outcome, Failure))
    ]
    here = identity_here()
    rows = [{**_record_json(r), "origin": records.origin(r), "stale": list(stale(r, records, here))} for r in found]
    reporter.result({"records": rows}, lambda: "\n".join(map(_record_line, rows)) or "none")


def _record_json(record: "Record") -> dict[str, Any]:
    from core.measure.measurement import Failure

    outcome = record.outcome
    row: dict[str, Any] = {
        "workload": outcome.workload, "candidate": outcome.candidate, "gpu": record.identity.gpu.name,
        "driver": record.identity.gpu.driver, "nvcc": record.identity.nvcc, "cutlass": record.identity.cutlass,
        "taken": record.taken, "run": record.run, "shipped": record.shipped,
    }  # fmt: skip
    if isinstance(outcome, Failure):
        return {**row, "failed": str(outcome.stage), "reason": outcome.reason, "log": outcome.log}
    low, high = outcome.spread_us
    return {
        **row, "phase": str(outcome.phase), "source": outcome.source, "us": outcome.us, "lowest_us": low,
        "highest_us": high, "samples": len(outcome.samples_us), "relative_l2": outcome.relative_l2,
        "throttled": outcome.state.throttled,
    }  # fmt: skip


def _record_line(row: dict[str, Any]) -> str:
    head = f"{row['taken'][:19]}  {row['gpu']}  {row['workload']}  {row['candidate']}"
    where = f"  {row['origin']}" + (f"; not trusted: {'; '.join(row['stale'])}" if row["stale"] else "")
    if "failed" in row:
        return f"{head}{where}  failed ({row['failed']}): {row['reason']}"
    noisy = "  clocks held back" if row["throttled"] else ""
    spread = f"{row['us']:.2f} us [{row['lowest_us']:.2f}, {row['highest_us']:.2f}]"
    return f"{head}  {row['phase']} {spread}  error {row['relative_l2']:.1e}{noisy}{where}"
