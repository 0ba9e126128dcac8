"""`bench SUITE`: measure a suite against its peers, or print the newest committed result."""

import argparse
from pathlib import Path
from typing import Any

from core.bench import table
from core.bench.suites import read_shapes, suite
from core.cli import Reporter

SHAPE_SUITES = ("gemm", "conv", "epilogue", "padding", "audit", "b2b-gemm", "b2b-conv")
MODELS = ("resnet18", "resnet50", "vgg16", "repvgg-a0")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", choices=[*SHAPE_SUITES, "models", "tuning-time"])
    parser.add_argument("--recorded", action="store_true", help="print the newest committed result, needs no GPU")
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="your own list of workloads, CSV or JSON")
    parser.add_argument("--limit", type=int, metavar="N", help="kernels to try for each workload; for audit: to audit")
    parser.add_argument(
        "--most", type=int, metavar="N", help="for audit: measure the N most promising kernels, not the whole space"
    )
    parser.add_argument("--retune", action="store_true", help="measure anew what the records hold")
    parser.add_argument("--store", type=Path, metavar="DIR", help="folder of the result file")
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="for models and tuning-time: paths or built-in names"
    )
    parser.add_argument("--batch", type=int, default=32, help="for models and tuning-time: batch of the built-in ones")
    parser.add_argument("--no-compile", action="store_true", help="for the suite models: leave torch.compile out")
    parser.add_argument(
        "--compile-jobs", type=int, default=1, metavar="N",
        help="for the suite models: N models in torch.compile side by side, each timing alone (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-cache", type=Path, metavar="DIR", help="for the suite tuning-time: a new folder that keeps the cache"
    )


def run(args: argparse.Namespace, out: Reporter) -> int:
    if args.recorded:
        data = table.recorded(args.suite)
    else:
        data = {"models": _models, "tuning-time": _tuning_time}.get(args.suite, _measure)(args, out)
        out.log(f"stored as {table.store(data, args.store)}")
    out.result(data, lambda: table.text(data))
    return 0


def _models(args: argparse.Namespace, out: Reporter) -> dict[str, Any]:
    from core.bench.models import measure

    return measure(args.models or MODELS, args.batch, out.log, 0 if args.no_compile else max(1, args.compile_jobs))


def _tuning_time(args: argparse.Namespace, out: Reporter) -> dict[str, Any]:
    from core.bench.tuning_time import measure

    extra = [] if args.limit is None else ["--limit", str(args.limit)]
    return measure(args.models or ("resnet50", "resnet18"), args.batch, out.log, extra, args.keep_cache)


def _measure(args: argparse.Namespace, out: Reporter) -> dict[str, Any]:
    from core.bench import audit, epilogues, padding, pairs, shapes
    from core.search.rank import DEFAULT_LIMIT
    from core.tuner.events import CandidateFailed, Event, Note, WorkloadFinished
    from core.tuner.job import Options

    def listener(event: Event) -> None:
        if isinstance(event, CandidateFailed):
            failure = event.failure
            out.log(f"failed [{failure.stage}] {failure.candidate} on {failure.workload}: {failure.reason}")
        elif isinstance(event, Note):
            out.log(f"{event.level}: {event.text}")
        elif isinstance(event, WorkloadFinished) and event.best:
            vendor = f", vendor {event.vendor.us:.2f} us" if event.vendor else ""
            out.log(f"{event.workload}: {event.best.us:.2f} us by {event.best.candidate}{vendor}")

    workloads = read_shapes(args.shapes) if args.shapes else suite(args.suite)
    if args.suite == "audit":
        return audit.measure(args.suite, workloads, listener, args.limit or DEFAULT_LIMIT, args.most)
    options = Options(retune=args.retune) if args.limit is None else Options(retune=args.retune, limit=args.limit)
    suites = {"b2b-gemm": pairs, "b2b-conv": pairs, "padding": padding, "epilogue": epilogues}
    return suites.get(args.suite, shapes).measure(args.suite, workloads, listener, options)
