"""`replay`: play a recorded tuning run as text. The window has its own player."""

import argparse
from typing import Any

from core.cli import Reporter


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run file (.jsonl.gz), or the name of a shipped run")
    parser.add_argument(
        "--speed", type=float, default=0.0, metavar="X", help="times the recorded pace; 0 (default): at once"
    )


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.cli.tune import run_interruptibly
    from core.cli.tuning_view import TuningView, finished_line
    from core.errors import Cancelled
    from core.tuner.events import JobFinished, JobStarted
    from core.tuner.replay import ReplayJob
    from core.tuner.runfile import find_run, read_run

    path = find_run(args.run)
    events = read_run(path)
    reporter.log(f"replay of {path.name}: nothing is measured here")
    job = ReplayJob(events, max(0.0, args.speed))
    with TuningView(reporter) as view:
        results = run_interruptibly(job, view)
    start = next((e.event for e in events if isinstance(e.event, JobStarted)), None)
    seconds = next((e.event.seconds for e in events if isinstance(e.event, JobFinished)), 0.0)
    regions = dict(start.regions) if start else {}
    data: dict[str, Any] = {
        "model": start.model if start else "",
        "gpu": start.gpu if start else "",
        "workloads": [
            {
                "workload": key,
                "regions": [region for region, workload in regions.items() if workload == key],
                "best": {"name": r.best.candidate, "us": r.best.us} if r.best else None,
                "vendor": {"library": r.vendor.source, "us": r.vendor.us} if r.vendor else None,
                "candidates": r.measured,
                "failed": r.failed,
            }
            for key, r in results.items()
        ],
        "seconds": seconds,
        "measured": False,
    }
    reporter.result(data, lambda: "\n".join(map(finished_line, results.values())))
    if job.cancelled:
        raise Cancelled("the replay was stopped")
    return 0
