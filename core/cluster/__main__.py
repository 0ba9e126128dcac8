"""`python -m core.cluster scheduler`, `worker ADDRESS`, or `here` for both: the processes that a cluster is made of."""

import argparse
import socket
import sys

from core.errors import BoltError, DeviceError


def main(argv: list[str]) -> int:
    """Exit status 0 after a signal, 1 when it can't start."""
    args = _parser().parse_args(argv)
    try:
        _run(args)
    except BoltError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m core.cluster", description="A cluster's processes, until Ctrl-C.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    scheduler = verbs.add_parser("scheduler", help="the scheduler; one for the whole cluster")
    worker = verbs.add_parser("worker", help="this host's workers: one for each GPU, one that compiles")
    here = verbs.add_parser("here", help="a scheduler and this host's workers")
    worker.add_argument("scheduler", metavar="ADDRESS", help="the scheduler's, as 127.0.0.1:8786")
    for verb in (scheduler, here):
        verb.add_argument("--port", type=int, default=8786, help="the scheduler's port (default: 8786)")
    for verb in (worker, here):
        verb.add_argument("--gpus", default="all", metavar="N|all|none", help="GPUs that measure (default: all)")
        verb.add_argument("--jobs", type=int, metavar="N", help="compilers side by side, 0 for none")
    for verb in (scheduler, worker, here):
        verb.add_argument(
            "--host", default="127.0.0.1", metavar="ADDRESS",
            help="where to listen (default: 127.0.0.1, this machine alone; who can connect can run code here)",
        )  # fmt: skip
    return parser


def _run(args: argparse.Namespace) -> None:
    try:
        from core.cluster import serve
    except ModuleNotFoundError as missing:
        raise BoltError(f"a cluster needs the Python package {missing.name}", "run `uv sync --extra cluster`") from None
    from core.tuner.gpus import gpus_here

    workers = []
    if args.verb != "scheduler":
        try:
            gpus = [] if args.gpus == "none" else gpus_here(count=None if args.gpus == "all" else int(args.gpus))
        except DeviceError as error:
            raise BoltError(error.what, "`--gpus none` for a host that only compiles") from None
        workers = serve.plan_workers(gpus, args.jobs, socket.gethostname())
    serve.run(getattr(args, "scheduler", None), getattr(args, "port", 0), args.host, workers, args.verb != "worker")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
