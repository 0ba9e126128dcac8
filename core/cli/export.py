"""`export`: tune what has no record yet, write the library, and verify it where the GPU is here."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import Reporter
from core.errors import ExportError

if TYPE_CHECKING:
    from core.build.toolchain import Toolchain
    from core.device import GpuIdentity
    from core.session import Session
    from core.tuner.choice import Choice

_DTYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "f32"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or the name of a built-in sample")
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write; an earlier export in it is replaced"
    )
    parser.add_argument(
        "--gpu", default="auto", metavar="NAME", help="auto (default): tune on the GPU here; a name: take its records"
    )
    parser.add_argument("--name", metavar="NAME", help="of the library and its functions (default: the model's)")
    parser.add_argument(
        "--batch", type=_batches, default=(None,), metavar="N[,N...]",
        help="batch size (default: the model's own); several: one library that runs every batch up to the largest",
    )  # fmt: skip
    parser.add_argument("--dtype", choices=_DTYPES, default="fp16", help="what the kernels compute in (default: fp16)")
    parser.add_argument("--plan", metavar="FILE", help="take the regions of this plan file instead of planning")
    parser.add_argument(
        "--partial", action="store_true",
        help="where operators have no kernel: libraries for the rest, and a Python caller that runs both",
    )  # fmt: skip
    parser.add_argument("--budget", type=float, metavar="MIN", help="minutes tuning may take (default: no limit)")
    parser.add_argument("--allow-vendor", action="store_true", help="use cuBLASLt's kernels where they were faster")
    parser.add_argument("--no-tune", action="store_true", help="estimate what has no record instead of tuning it")
    parser.add_argument("--no-verify", action="store_true", help="do not run the library after it is written")
    parser.add_argument("--jobs", type=_positive_int, metavar="N", help="compilers side by side (default: by memory)")
    parser.add_argument("--runtime", default="cuda-bindings", metavar="NAME", help="cuda-bindings (default) or pycuda")


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.build.toolchain import find_toolchain
    from core.cli.export_partial import run_partial
    from core.device import is_here, resolve_gpu
    from core.export.exporter import Bucket, Origins, check_target, export_buckets
    from core.export.lower import refuse_missing_kernels
    from core.export.operators import missing_kernels
    from core.session import fitted

    if args.plan and len(args.batch) > 1:
        raise ExportError("a plan file is of one batch size, --batch names several", "leave out one of the two")
    sessions = [_open(args, batch, reporter) for batch in args.batch]
    if args.partial and any(missing_kernels(s.graph) or not s.plan.supported for s in sessions):
        if len(sessions) > 1:
            raise ExportError("a partial export is of one batch size, --batch names several", "name one")
        return run_partial(args, sessions[0], reporter)
    for session in sessions:
        refuse_missing_kernels(session.graph, session.plan)
    out = Path(args.output)
    check_target(out.absolute())
    sessions = [fitted(session) for session in sessions]
    gpu = resolve_gpu(args.gpu)
    toolchain = find_toolchain()
    several = len(sessions) > 1
    buckets = []
    for session, batch in zip(sessions, args.batch, strict=True):
        choices = choices_of(args, reporter, session, gpu, toolchain, f" at batch {batch}" if several else "")
        buckets.append(Bucket(batch if several else 0, session.graph, session.plan, choices, session.notes))
    manifest = export_buckets(
        buckets, gpu, out, toolchain, Origins(sessions[-1].origin, sessions[-1].batch), args.name, args.jobs,
        lambda done, count, file: reporter.log(f"compiled {done}/{count}: {file}"),
    )  # fmt: skip
    checked = None if args.no_verify or not is_here(gpu) else verify_here(out, args, reporter)
    data = _result(out, manifest, gpu, checked)
    reporter.result(data, lambda: _text(data))
    if checked is not None and not checked["ok"]:
        raise ExportError(
            f"the library in {out} does not compute what {args.model} computes", "see `verify`, and report it"
        )
    return 0


def _open(args: argparse.Namespace, batch: int | None, reporter: Reporter) -> "Session":
    """The model; for a GPU that is only named, a built-in model at the batch its records are of."""
    from core.device import resolve_gpu
    from core.records.store import Records
    from core.session import open_model
    from core.tuner.recorded import open_recorded
    from templates.types import DType

    dtype = DType(_DTYPES[args.dtype])
    if args.gpu.strip().lower() == "auto":
        return open_model(args.model, batch, dtype, args.plan)
    records = Records()
    try:
        session, why = open_recorded(args.model, batch, dtype, args.plan, records, resolve_gpu(args.gpu).name)
    finally:
        records.close()
    if why:
        reporter.log(why)
    return session


def choices_of(
    args: argparse.Namespace, reporter: Reporter, session: "Session", gpu: "GpuIdentity", toolchain: "Toolchain",
    of: str = "",
) -> "dict[str, Choice]":  # fmt: skip
    """The kernel of every workload, from the records, tuned now or estimated; `of` tells readers of the log what of."""
    from core.export.exporter import complete_choices

    chosen = _choices(args, reporter, session, gpu, toolchain)
    choices = complete_choices(session.plan, chosen, gpu)
    if guessed := sum(key not in chosen for key in choices):
        said = f"{guessed} of {len(choices)} workloads{of} have no record of {gpu.name}: their kernels are estimates"
        reporter.log(said)
    return choices


def _choices(
    args: argparse.Namespace, reporter: Reporter, session: "Session", gpu: "GpuIdentity", toolchain: "Toolchain"
) -> "dict[str, Choice]":
    """The kernels on record; with --gpu auto after tuning what the records do not hold."""
    from core.records.store import Records
    from core.tuner.choice import choose
    from core.tuner.local import record_identity

    here = args.gpu.strip().lower() == "auto"
    if here and not args.no_tune and session.plan.workloads:
        _tune(args, reporter, session)
    records = Records()
    try:
        allow = args.allow_vendor
        found = choose(session.plan, records, record_identity(gpu, toolchain), allow) if here else {}
        rest = [key for key in session.plan.workloads if key not in found]
        return {**choose(rest, records, gpu.name, allow), **found}
    finally:
        records.close()


def _tune(args: argparse.Namespace, reporter: Reporter, session: "Session") -> None:
    from core.cli.tune import run_interruptibly
    from core.cli.tuning_view import TuningView
    from core.errors import Cancelled
    from core.tuner.job import Options
    from core.tuner.local import local_job

    with (
        local_job(session.plan, Options(args.budget), "auto", args.runtime, args.jobs) as job,
        TuningView(reporter) as view,
    ):
        run_interruptibly(job, view)
        if job.cancelled:
            raise Cancelled("stopped; what was measured is kept, the same command goes on from there")


def verify_here(out: Path, args: argparse.Namespace, reporter: Reporter) -> dict[str, Any]:
    """As `verify`, of a library that was just written."""
    from core.export.verify import verify

    reporter.log(f"verifying {out} against ONNX Runtime")
    return verify(out, runtime=args.runtime)


def _result(out: Path, manifest: dict[str, Any], gpu: "GpuIdentity", checked: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "folder": str(out),
        "library": str(out / f"lib{manifest['name']}.so"),
        "gpu": gpu.name,
        "batches": [bucket["batch"] for bucket in manifest["buckets"]],
        "steps": len(manifest["steps"]),
        "conversions": manifest["conversions"],
        "memory": manifest["memory"],
        "measured": manifest["measured"],
        "estimated": manifest["estimated"],
        "notes": manifest["notes"],
        "verify": checked,
    }


def _text(data: dict[str, Any]) -> str:
    from core.cli.verify import as_text

    conversions = data["conversions"]
    sizes = ", ".join(map(str, data["batches"]))
    batches = f", at the largest of the batch sizes {sizes}" if sizes else ""
    lines = [
        f"{data['library']}: {data['steps']} kernels for {data['gpu']}" + batches,
        f"layout and type conversions: {conversions['steps']} kernels, {conversions['bytes'] / 2**20:.2f} MiB",
        f"workspace {data['memory']['workspace_bytes'] / 2**20:.1f} MiB, "
        f"weights {data['memory']['weight_bytes'] / 2**20:.1f} MiB",
        *data["notes"],
    ]
    if not data["measured"]:
        lines.append(
            "nothing was measured here" + (f"; {data['estimated']} kernels are estimates" * bool(data["estimated"]))
        )
    lines.append(as_text(data["verify"]) if data["verify"] else "not verified: this GPU is not here")
    return "\n".join(lines)


def _batches(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive_int(part.strip()) for part in text.split(",")}))


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
