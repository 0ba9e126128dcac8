"""Tuning on one and on several GPUs of this host: wall time, idle share, agreement between the GPUs.

Run by hand: ``python -m tests.gpu.bench_scale [--models resnet50 bert-base] [--limit N] [--keep DIR] [--store DIR]``.
For each model: cold (empty cache) and with warm kernels, on 1, 2, 4 ... GPUs, and with warm kernels on each GPU alone.
Every tuning is a process of its own. What is done is kept in the folder of --keep: the same command goes on from there,
so a machine that is lent for minutes is enough. The user's cache is left alone.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from core.bench.table import Row, result, store, text
from core.errors import BoltError
from core.paths import ROOT

Run = dict[str, Any]


def tune_once(model: str, batch: int, gpus: int | None, limit: int) -> Run:
    """Tunes on the GPUs this process sees; the records are only written, so that all is measured."""
    from core.measure.measurement import Measurement, Phase
    from core.session import open_model
    from core.tuner.events import CandidateFailed, CandidateMeasured, Event, Note
    from core.tuner.job import Options
    from core.tuner.local import local_job

    finals: dict[str, dict[str, float]] = {}
    failed = 0

    def listen(event: Event) -> None:
        nonlocal failed
        if isinstance(event, CandidateMeasured) and event.measurement.phase is Phase.FINAL:
            m: Measurement = event.measurement
            finals.setdefault(m.workload, {})[m.candidate] = m.us
        elif isinstance(event, CandidateFailed):
            failed += 1
        elif isinstance(event, Note):
            print(f"{event.level}: {event.text}", file=sys.stderr, flush=True)

    plan = open_model(model, batch).plan
    begin = time.monotonic()
    with local_job(plan, Options(limit=limit, retune=True), gpus=gpus) as job:
        results = job.run(listen)
        seconds = time.monotonic() - begin
    best = {key: (r.best.candidate, r.best.us) for key, r in results.items() if r.best}
    usages = [
        {
            "gpu": u.gpu, "measuring_s": u.measuring_s, "preparing_s": u.preparing_s, "waiting_s": u.waiting_s,
            "idle_s": u.idle_s, "clocks_mhz": u.clocks_mhz, "throttled": u.throttled, "measurements": len(u.states),
        }
        for u in job.usages
    ]  # fmt: skip
    name = job.identity.gpu.name
    return {
        "gpu": name, "seconds": seconds, "workloads": len(results), "failed": failed, "best": best,
        "finals": finals, "usages": usages,
    }  # fmt: skip


def agreement(a: Run, b: Run) -> dict[str, Any]:
    """How far two runs agree: workloads with the same winner, and differences of finals' times, relative, b over a.

    `median` is over absolute differences, `shift` the median of the signed ones: one GPU faster than the other.
    """
    both = a["best"].keys() & b["best"].keys()
    pairs = [
        (a["finals"][w][c], b["finals"][w][c])
        for w in sorted(a["finals"].keys() & b["finals"].keys())
        for c in sorted(a["finals"][w].keys() & b["finals"][w].keys())
    ]
    found: dict[str, Any] = {
        "workloads": len(both),
        "same_winner": sum(a["best"][w][0] == b["best"][w][0] for w in both),
        "compared": len(pairs),
    }
    if pairs:
        signed = [y / x - 1 for x, y in pairs]
        found |= {"median": median(map(abs, signed)), "largest": max(map(abs, signed)), "shift": median(signed)}
    if both:
        winners = [b["best"][w][1] / a["best"][w][1] - 1 for w in both]
        found["winners_median"] = median(map(abs, winners))
    return found


def waiting_share(run: Run) -> float:
    """The share of the GPUs' time in which nothing was ready to measure and compilers still ran."""
    return float(sum(u["waiting_s"] for u in run["usages"]) / (run["seconds"] * len(run["usages"])))


class Bench:
    """The runs of all models, each made once and kept."""

    def __init__(self, folder: Path, batch: int, limit: int, log: Callable[[str], None]) -> None:
        self.folder, self.batch, self.limit, self.log = folder, batch, limit, log

    def run(self, model: str, state: str, visible: Sequence[int]) -> Run:
        """`state`: cold begins with an empty cache; warm takes the kernels of the cold run on the first GPU alone."""
        gpus = "+".join(map(str, visible))
        kept = self.folder / f"{model}-{state}-gpu{gpus}-limit{self.limit}.json"
        if not kept.is_file():
            cold = visible if state == "cold" else [0]
            cache = self.folder / f"cache-{model}-{'+'.join(map(str, cold))}-limit{self.limit}"
            if state == "cold" and cache.exists():  # of a run that was cut short
                shutil.rmtree(cache)
            if state == "warm" and not cache.exists():
                raise BoltError(f"no kernels of {model} are there yet", "make its cold run on one GPU first")
            made = self._child(model, cache, visible)
            kept.write_text(json.dumps(made) + "\n", encoding="utf-8")
        run: Run = json.loads(kept.read_text(encoding="utf-8"))
        self.log(f"{model} {state} on GPU {gpus}: {run['seconds']:.1f} s, {100 * waiting_share(run):.0f} % waiting")
        return run

    def _child(self, model: str, cache: Path, visible: Sequence[int]) -> Run:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [str(i) if shown is None else shown.split(",")[i] for i in visible]
        environment = {
            **os.environ, "BOLT_CACHE": str(cache), "BOLT_SHIPPED": "", "CUDA_VISIBLE_DEVICES": ",".join(names),
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "run.json"
            command = [
                sys.executable, "-m", "tests.gpu.bench_scale", "--one", str(out), "--models", model,
                "--batch", str(self.batch), "--limit", str(self.limit),
            ]  # fmt: skip
            status = subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode
            if status or not out.is_file():
                raise BoltError(f"tuning {model} on GPU {names} ended with status {status}", "see its lines above")
            made: Run = json.loads(out.read_text(encoding="utf-8"))
            return made


def measure(bench: Bench, models: Sequence[str], counts: Sequence[int], states: Sequence[str]) -> dict[str, Any]:
    """All runs of the models; the result in core.bench.table's form, with `agreement` and `usages` beside the rows."""
    rows: list[Row] = []
    agreed: dict[str, Any] = {}
    usages: dict[str, Any] = {}
    gpu = ""
    for model in models:
        runs: dict[tuple[str, int], Run] = {}
        for state in states:
            for count in counts:
                run = runs[state, count] = bench.run(model, state, range(count))
                gpu, name = run["gpu"], f"{model} b{bench.batch} {state} {count} GPU{'s' * (count > 1)}"
                alone = runs[state, counts[0]]["seconds"] if count > counts[0] else None
                rows.append(Row(name, run["seconds"] * 1e6, *_beside(counts[0], alone), None, _detail(run)))
                usages[name] = run["usages"]
        if "warm" in states:
            first = bench.run(model, "warm", [0])
            for other in range(1, max(counts)):
                agreed[f"{model} GPU 0 and {other}"] = agreement(first, bench.run(model, "warm", [other]))
            if "cold" in states and counts[0] == 1:
                agreed[f"{model} GPU 0 twice"] = agreement(runs["cold", 1], first)
    return {**result("scale", gpu, rows), "agreement": agreed, "usages": usages, "limit": bench.limit}


def _beside(count: int, seconds: float | None) -> tuple[str, float | None]:
    return f"{count} GPU{'s' * (count > 1)}", None if seconds is None else seconds * 1e6


def _detail(run: Run) -> str:
    clocks = ", ".join(f"{u['clocks_mhz'][1]} MHz" for u in run["usages"])
    measured = sum(u["measurements"] for u in run["usages"])
    return (
        f"{run['workloads']} workloads, {measured} measurements, {run['failed']} failures, "
        f"{100 * waiting_share(run):.0f} % of GPU time waiting for compilers, median clocks {clocks}"
    )


def agreement_text(agreed: dict[str, Any]) -> str:
    lines = []
    for name, a in agreed.items():
        lines.append(f"{name}: same winner on {a['same_winner']} of {a['workloads']} workloads")
        if a["compared"]:
            lines[-1] += (
                f"; {a['compared']} finals: median difference {100 * a['median']:.2f} %, "
                f"largest {100 * a['largest']:.1f} %, shift {100 * a['shift']:+.2f} %"
            )
    return "\n".join(lines)


def main() -> int:
    from core.device import device_count
    from core.search.rank import DEFAULT_LIMIT

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert-base"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help="kernels tried for a workload")
    parser.add_argument("--gpus", type=int, nargs="+", help="how many GPUs, default 1 2 4 ... as many as there are")
    parser.add_argument("--states", nargs="+", choices=("cold", "warm"), default=["cold", "warm"])
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "bolt-bench-scale")
    parser.add_argument("--store", type=Path, help="folder of the result file")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # a single tuning, by this program itself
    args = parser.parse_args()
    if args.one:
        made = tune_once(args.models[0], args.batch, None, args.limit)
        args.one.write_text(json.dumps(made) + "\n", encoding="utf-8")
        return 0
    here = device_count()
    counts = sorted(args.gpus or [n for n in (1, 2, 4, 8) if n <= here])
    args.keep.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.keep, args.batch, args.limit, lambda line: print(line, flush=True))
    data = measure(bench, args.models, counts, args.states)
    print(f"stored as {store(data, args.store)}")
    print(text(data))
    print(agreement_text(data["agreement"]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BoltError as error:
        sys.exit(str(error))
