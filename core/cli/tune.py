"""`tune`: run the tuning job and print the table of regions: best template, vendor, speed-up."""

import argparse
import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from core.cli import Reporter
from core.errors import Cancelled, RecordError

if TYPE_CHECKING:
    from core.session import Session
    from core.tuner.events import Event, Listener, WorkloadFinished
    from core.tuner.job import Options
    from templates.types import DType

_DTYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "f32"}


class Job(Protocol):
    """What TuningJob and ReplayJob share."""

    @property
    def cancelled(self) -> bool: ...
    def cancel(self) -> None: ...
    def run(self, listener: "Listener") -> "dict[str, WorkloadFinished]": ...


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or the name of a built-in sample")
    parser.add_argument("--gpu", default="auto", metavar="NAME", help="auto (default), or a GPU's name for --replay")
    parser.add_argument(
        "--gpus", type=_gpu_count, default=1, metavar="N|all", help="GPUs of one kind that measure side by side (1)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDR", help="compile and measure on the workers of this scheduler (core.cluster)"
    )
    parser.add_argument("--batch", type=_positive_int, metavar="N", help="batch size (default: the model's own)")
    parser.add_argument("--dtype", choices=_DTYPES, default="fp16", help="what the kernels compute in (default: fp16)")
    parser.add_argument("--plan", metavar="FILE", help="take the regions of this plan file instead of planning")
    parser.add_argument("--budget", type=_positive, metavar="MIN", help="minutes the job may take (default: no limit)")
    parser.add_argument("--replay", action="store_true", help="play the records of --gpu; nothing is measured")
    parser.add_argument(
        "--speed", type=_not_negative, default=0.0, metavar="X", help="pace of --replay (default: 0, at once)"
    )
    parser.add_argument("--runtime", default="cuda-bindings", metavar="NAME", help="cuda-bindings (default) or pycuda")
    parser.add_argument(
        "--jobs", type=_positive_int, metavar="N", help="compilers side by side (default: by cores and memory)"
    )
    parser.add_argument("--limit", type=_positive_int, metavar="N", help="kernels tried for a workload (default: 16)")
    parser.add_argument("--no-vendor", action="store_true", help="leave cuBLASLt and cuDNN out")
    parser.add_argument("--retune", action="store_true", help="measure anew what the records hold already")
    parser.add_argument(
        "--persistent", metavar="FILE",
        help="also tune chains that could run as one kernel, and write the plan with those that pay to FILE",
    )  # fmt: skip
    parser.add_argument(
        "--audit", action="store_true",
        help="measure the whole legal space of every workload (hours) and report what the ranked search gives away",
    )  # fmt: skip
    parser.add_argument(
        "--most", type=_positive_int, metavar="N", help="with --audit: measure the N most promising kernels only"
    )
    parser.add_argument("--record-run", metavar="FILE", help="keep the run's events in FILE (.jsonl.gz) for `replay`")


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.session import open_model
    from templates.types import DType

    dtype = DType(_DTYPES[args.dtype])
    if args.replay:
        for given, option in ((args.persistent, "--persistent"), (args.audit, "--audit")):
            if given:
                raise RecordError(f"{option} measures, --replay does not", "leave one of them out")
        return _replay(args, reporter, dtype)
    session = open_model(args.model, args.batch, dtype, args.plan)
    if not session.plan.workloads:
        reporter.log(f"{session.name} has no region that is tuned")
    if args.audit:
        return _audit(args, reporter, session)
    return _tune(args, reporter, session)


def _audit(args: argparse.Namespace, reporter: Reporter, session: "Session") -> int:
    """The whole space of each of the model's workloads, and the regret of the ranked search; --limit is audited."""
    from core.bench import audit, table
    from core.cli.tuning_view import TuningView
    from core.search.rank import DEFAULT_LIMIT

    workloads = {r.id: r.workload for r in session.plan.regions if r.workload is not None}
    distinct = {w: region for region, w in reversed(workloads.items())}
    with TuningView(reporter) as view:
        data = audit.measure(
            f"audit-{session.name}", {region: w for w, region in distinct.items()}, view, args.limit or DEFAULT_LIMIT,
            args.most, args.gpu,
        )  # fmt: skip
    reporter.result(data, lambda: table.text(data))
    return 0


def _tune(args: argparse.Namespace, reporter: Reporter, session: "Session") -> int:
    from core.search.rank import DEFAULT_LIMIT
    from core.tuner.job import Options
    from core.tuner.local import local_job

    options = Options(args.budget, args.limit or DEFAULT_LIMIT, not args.no_vendor, args.retune)
    if args.scheduler:
        return _tune_on_cluster(args, reporter, session, options)
    if args.persistent:
        return _tune_pairs(args, reporter, session, options)
    with local_job(session.plan, options, args.gpu, args.runtime, args.jobs, gpus=args.gpus) as job:
        return show(job, reporter, session, job.identity.gpu.name, True, args.record_run)


def _tune_on_cluster(args: argparse.Namespace, reporter: Reporter, session: "Session", options: "Options") -> int:
    """Tunes for every kind of GPU that the workers have; the first is told as it goes on, the others at the end."""
    from core.cluster.job import KindsJob, cluster_job
    from core.cluster.tasks import Parts

    if args.persistent:
        raise RecordError("--persistent tunes on this machine's GPU, not with --scheduler", "leave one of them out")
    with cluster_job(session.plan, options, args.scheduler, args.gpu, parts=Parts(args.runtime)) as job:
        others = job.others if isinstance(job, KindsJob) else {}
        return show(job, reporter, session, job.identity.gpu.name, True, args.record_run, others)


def _tune_pairs(args: argparse.Namespace, reporter: Reporter, session: "Session", options: "Options") -> int:
    """Tunes the plan and its proposals in one run, then writes the plan with the pairs that were faster."""
    from core.fusion.decide import decide
    from core.fusion.files import save_plan
    from core.fusion.propose import propose
    from core.records.store import Records
    from core.tuner.local import gpu_here, local_job

    proposals = propose(session.graph, session.plan, gpu_here(args.gpu).spec)
    if not proposals:
        reporter.log("no chain of the plan could run as one kernel; `inspect` tells why")
    with local_job(
        session.plan, options, args.gpu, args.runtime, args.jobs, proposals=proposals, gpus=args.gpus
    ) as job:
        status = show(job, reporter, session, job.identity.gpu.name, True, args.record_run)
        records = Records()
        try:
            made, decisions = decide(session.graph, session.plan, proposals, records, job.identity)
        finally:
            records.close()
    for d in decisions:
        reporter.log(f"{' + '.join(d.proposal.regions)} {'fused' if d.fused else 'not fused'}: {d.reason}")
    save_plan(made, args.persistent)
    return status


def _replay(args: argparse.Namespace, reporter: Reporter, dtype: "DType") -> int:
    from core.records.store import Records
    from core.tuner.recorded import open_recorded, recorded_gpu
    from core.tuner.replay import ReplayJob, events_from_records

    records = Records()
    try:
        gpu, why_gpu = recorded_gpu(args.gpu, records)
        session, why_batch = open_recorded(args.model, args.batch, dtype, args.plan, records, gpu.name)
        for line in filter(None, (why_gpu, why_batch)):
            reporter.log(line)
        job = ReplayJob(events_from_records(session.plan, records, gpu.name), args.speed)
        return show(job, reporter, session, gpu.name, False, args.record_run)
    finally:
        records.close()


def show(
    job: Job,
    reporter: Reporter,
    session: "Session",
    gpu: str,
    measured: bool,
    record_run: str | None = None,
    others: "Mapping[str, dict[str, WorkloadFinished]] | None" = None,
) -> int:
    """Runs a job with its progress on stderr, prints the result, and returns the exit status.

    `others`: results for other kinds of GPU, by name, there when the job is over.
    """
    from core.cli.tuning_view import TuningView, result_json, result_text
    from core.tuner.runfile import RunWriter

    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        view = stack.enter_context(TuningView(reporter))
        listeners: list[Listener] = [view]
        if record_run:
            listeners.append(stack.enter_context(RunWriter(Path(record_run))))

        def tell(event: "Event") -> None:
            for listener in listeners:
                listener(event)

        results = run_interruptibly(job, tell)
    seconds = time.monotonic() - started
    data = result_json(session.plan, gpu, results, seconds, measured)
    more = [result_json(session.plan, name, found, seconds, measured) for name, found in (others or {}).items()]
    whole = {**data, "others": more} if more else data
    reporter.result(whole, lambda: "\n\n".join(map(result_text, [data, *more])))
    if job.cancelled:
        raise Cancelled("stopped; what was measured is kept, the same command goes on from there")
    return _status(data)


def _status(data: dict[str, Any]) -> int:
    lost = [r for r in data["regions"] if r["best"] is None]
    if lost:
        raise RecordError(
            f"{len(lost)} of {len(data['regions'])} regions have no kernel that works, the first is {lost[0]['id']} "
            f"({lost[0]['workload']})",
            "`main.py records show --failed` tells why; after too short a --budget, run the command again",
        )
    return 0


def run_interruptibly(job: Job, listener: "Listener") -> "dict[str, WorkloadFinished]":
    """Runs a job on a thread, so that Ctrl-C ends it in good order instead of in the middle of a step."""
    with ThreadPoolExecutor(1, thread_name_prefix="job") as pool:
        future = pool.submit(job.run, listener)
        try:
            return future.result()
        except KeyboardInterrupt:
            job.cancel()
            return future.result()
        finally:
            if not future.done():
                job.cancel()


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _gpu_count(text: str) -> int | None:
    return None if text == "all" else _positive_int(text)


def _positive(text: str) -> float:
    value = _not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return value
