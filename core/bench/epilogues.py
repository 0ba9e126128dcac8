"""The suite `epilogue` (paper, figure 9): what fusing an activation saves, and what it costs.

The fused winner is set against the very same kernel followed by a separate pointwise kernel, interleaved in one run,
and against the same kernel with the bias alone.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.bench.shapes import row
from core.bench.table import Form, Row, result
from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.build.toolchain import find_toolchain
from core.measure.measurement import Measurement
from core.measure.process import ProcessMeasurer
from core.search.explain import find_candidate
from core.tuner.events import Listener, WorkloadFinished
from core.tuner.local import local_job
from core.tuner.options import Options
from core.tuner.ports import KernelBuilder, Measurer
from templates.epilogue import Epilogue
from templates.family import Candidate
from templates.gpu import GpuSpec
from templates.workload import ConvWorkload, GemmWorkload, Workload

SEPARATE, PLAIN, FUSED = "and a pointwise", "no activation", "fused"


def measure(
    name: str,
    workloads: Mapping[str, Workload],
    listener: Listener,
    options: Options | None = None,
    gpu: str = "auto",
    cache: Path | None = None,
) -> dict[str, Any]:
    """Tune every workload, then measure the other forms of each winner. Raises what `local_job` raises."""
    with local_job(list(workloads.values()), options, gpu, cache=cache) as job:
        finished = job.run(listener)
        identity = job.identity.gpu
    with ExitStack() as stack:
        builder = Builder(find_toolchain(), identity.spec, cache)
        stack.callback(builder.close)
        measurer = ProcessMeasurer()
        stack.callback(measurer.close)
        rows = [
            with_forms(label, w, finished.get(w.key), identity.spec, builder, measurer)
            for label, w in workloads.items()
        ]
    return result(name, identity.name, rows)


def with_forms(
    label: str,
    workload: Workload,
    finished: WorkloadFinished | None,
    gpu: GpuSpec,
    builder: KernelBuilder,
    measurer: Measurer,
) -> Row:
    """The workload's row with its winner's other forms; without them where there is no winner."""
    best = finished.best if finished else None
    winner = find_candidate(workload, gpu, best.candidate) if best else None
    forms: dict[str, Form] = {}
    if winner is not None and isinstance(workload, GemmWorkload | ConvWorkload):
        chain = workload.epilogue
        bare, biased = replace(chain, ops=()), replace(chain, ops=tuple(o for o in chain.ops if o.op == "bias"))
        separate, plain = _with(winner, bare), _with(winner, biased)
        built = dict(builder.build([winner.kernel, separate.kernel, plain.kernel]))
        together = _final(workload, {FUSED: winner, SEPARATE: separate}, built, measurer)
        alone = _final(replace(workload, epilogue=biased), {PLAIN: plain}, built, measurer)
        forms = {form: (together | alone)[form] for form in (SEPARATE, PLAIN, FUSED) if form in together | alone}
    return row(label, finished, forms)


def _with(candidate: Candidate, epilogue: Epilogue) -> Candidate:
    return replace(candidate, kernel=replace(candidate.kernel, epilogue=epilogue))


def _final(
    workload: Workload, wanted: Mapping[str, Candidate], built: Mapping[Any, Any], measurer: Measurer
) -> dict[str, Form]:
    entries = [(c, built[c.kernel]) for c in wanted.values() if isinstance(built.get(c.kernel), BuiltKernel)]
    outcomes = {o.candidate: o for o in measurer.final(workload, entries, vendor=False)}
    found = {form: outcomes.get(c.name) for form, c in wanted.items()}
    return {f: Form(m.us, m.relative_l2, m.candidate) for f, m in found.items() if isinstance(m, Measurement)}
