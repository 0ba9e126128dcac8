"""`advise`: what could be changed in the model itself, and what that costs or saves by measurement."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.cli import Reporter
from core.errors import DeviceError, ModelError, RecordError

if TYPE_CHECKING:
    from core.advise.advice import Advice, Kind
    from core.records.store import Records
    from core.session import Session
    from templates.gpu import GpuSpec

_DTYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "f32"}
_KINDS = ("activation", "deepen", "shape", "roofline", "batch")
MEASURE_LIMIT = 4


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or the name of a built-in sample")
    parser.add_argument("--batch", type=_positive_int, metavar="N", help="batch size (default: the model's own)")
    parser.add_argument("--dtype", choices=_DTYPES, default="fp16", help="what the kernels compute in (default: fp16)")
    parser.add_argument("--plan", metavar="FILE", help="take the regions of this plan file instead of planning")
    parser.add_argument("--gpu", default="auto", metavar="NAME", help="auto (default), or the GPU whose records speak")
    parser.add_argument(
        "--kind", nargs="+", choices=_KINDS, metavar="KIND", help=f"only these of {', '.join(_KINDS)} (default: all)"
    )
    parser.add_argument(
        "--batches", type=_batches, metavar="N,N,...", help="sizes of the batch curve (default: 1,2,4 ... 128)"
    )
    parser.add_argument(
        "--estimate", action="store_true", help="where no record is, also tell what the ranking rules expect"
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="tune on the GPU here what has no price yet, and what it is compared with",
    )
    parser.add_argument(
        "--limit", type=_positive_int, default=MEASURE_LIMIT, metavar="N",
        help=f"with --measure: kernels tried for a workload (default: {MEASURE_LIMIT})",
    )  # fmt: skip
    parser.add_argument("--budget", type=_positive_int, metavar="MIN", help="with --measure: minutes it may take")
    parser.add_argument("--jobs", type=_positive_int, metavar="N", help="with --measure: compilers side by side")
    parser.add_argument("--runtime", default="cuda-bindings", metavar="NAME", help="cuda-bindings (default) or pycuda")
    parser.add_argument("--apply", metavar="ID", help="write a copy of the model with this piece of advice followed")
    parser.add_argument("-o", "--output", metavar="FILE", help="where --apply writes")


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.advise.advice import Kind
    from core.records.store import Records

    if bool(args.apply) != bool(args.output):
        raise RecordError("--apply ID and -o FILE go together", "give both: which advice, and the file to write")
    kinds = [Kind(k) for k in args.kind] if args.kind else list(Kind)
    records = Records()
    try:
        session, gpu = _opened(args, records, reporter)
        found = _advice(session, gpu, records, kinds, args)
        if args.measure:
            _measure(found, session, args, reporter)
            found = _advice(session, gpu, records, kinds, args)
        if args.apply:
            return _apply(found, session, args, reporter)
        _tell(found, session, gpu, args, reporter)
    finally:
        records.close()
    return 0


def _opened(args: argparse.Namespace, records: "Records", reporter: Reporter) -> "tuple[Session, GpuSpec]":
    from core.device import resolve_gpu
    from core.session import open_model
    from core.tuner.local import gpu_here
    from core.tuner.recorded import open_recorded, recorded_gpu
    from templates.types import DType

    dtype = DType(_DTYPES[args.dtype])
    if args.measure:
        gpu = gpu_here(args.gpu)
        return open_model(args.model, args.batch, dtype, args.plan), gpu.spec
    try:
        identity, why_gpu = recorded_gpu(args.gpu, records)
    except DeviceError:
        if args.gpu != "auto":
            raise
        identity, why_gpu = resolve_gpu("h200"), "no GPU here and no records: rules and limits are those of the H200"
    session, why_batch = open_recorded(args.model, args.batch, dtype, args.plan, records, identity.name)
    for line in filter(None, (why_gpu, why_batch)):
        reporter.log(line)
    return session, identity.spec


def _advice(
    session: "Session", gpu: "GpuSpec", records: "Records", kinds: "Sequence[Kind]", args: argparse.Namespace
) -> "list[Advice]":
    from core.advise.batches import BATCHES
    from core.advise.find import advise
    from core.advise.subject import subject_of

    return advise(subject_of(session, gpu, records, args.estimate), kinds, args.batches or BATCHES)


def _measure(found: "list[Advice]", session: "Session", args: argparse.Namespace, reporter: Reporter) -> None:
    """One job over what has no price, and what it is compared with. An interrupted one goes on with what is open."""
    from core.advise.find import to_measure
    from core.cli.tune import run_interruptibly
    from core.cli.tuning_view import TuningView
    from core.tuner.local import local_job
    from core.tuner.options import Options

    workloads = to_measure(found)
    if not workloads:
        reporter.log("every price is measured already")
        return
    options = Options(args.budget, args.limit, retune=True)
    with local_job(workloads, options, args.gpu, args.runtime, args.jobs) as job, TuningView(reporter) as view:
        job.model = f"advise {session.name}"
        run_interruptibly(job, view)
        if job.cancelled:
            raise KeyboardInterrupt


def _apply(found: "list[Advice]", session: "Session", args: argparse.Namespace, reporter: Reporter) -> int:
    from core.advise.apply import apply
    from core.advise.file import save

    advice = next((a for a in found if a.id == args.apply), None)
    if advice is None:
        raise ModelError(
            f"there is no advice {args.apply!r} on {session.name}", "`advise MODEL` without --apply lists the ids"
        )
    if advice.change is None:
        raise ModelError(f"{advice.id} has nothing to apply: {advice.unchanged}")
    path = Path(args.output)
    save(apply(advice.change, session.source), path)
    kept = "computes what it did" if advice.change.keeps else "computes another function, train it again"
    data = {"model": session.name, "id": advice.id, "file": str(path), "keeps_function": advice.change.keeps}
    reporter.result(data, lambda: f"{path}: {advice.what}; it {kept}")
    return 0


def _tell(
    found: "list[Advice]", session: "Session", gpu: "GpuSpec", args: argparse.Namespace, reporter: Reporter
) -> None:
    from core.advise.present import as_json, lines

    batch = [] if session.batch is None else ["--batch", str(session.batch)]
    more = [*(["--dtype", args.dtype] if args.dtype != "fp16" else []), *(["--plan", args.plan] if args.plan else [])]
    more += ["--kind", *args.kind] if args.kind else []
    command = shlex.join(["python3", "main.py", "advise", args.model, *batch, *more, "--measure"])
    head = f"{session.name}{f', batch {session.batch}' if session.batch else ''}, {session.dtype}, {gpu.name}"
    data = {
        "model": session.name, "batch": session.batch, "gpu": gpu.name, "measured": args.measure,
        "advice": [as_json(a) for a in found], "command": command,
    }  # fmt: skip
    reporter.result(data, lambda: "\n".join([head, "", *(lines(found, command) or ["no advice on this model"])]))


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _batches(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive_int(part) for part in text.split(",")}))
