"""What is known of a plan's workloads on a GPU: recorded times, and the rules' estimate where there is no record."""

from collections.abc import Callable

from core.device import resolve_gpu
from core.fusion.plan import FusionPlan
from core.measure.measurement import Measurement
from core.records.store import Records
from core.search.rank import rank
from templates.gpu import known_gpu


def plan_figures(
    plan: FusionPlan, gpu: str, records: Records, check: Callable[[], None] = lambda: None
) -> dict[str, tuple[float, bool]]:
    """Workload key -> (microseconds, whether it was measured). Workloads that no family serves are left out.

    Args:
        gpu: short or driver's name.
        check: called for each workload; raises to stop.

    Raises:
        DeviceError: a GPU that is neither known nor here.
    """
    spec = known_gpu(gpu) or resolve_gpu(gpu).spec
    found: dict[str, tuple[float, bool]] = {}
    for key, regions in plan.workloads.items():
        check()
        best = records.best(key, spec.name)
        workload = regions[0].workload
        if best is not None and isinstance(best.outcome, Measurement):
            found[key] = best.outcome.us, True
        elif workload is not None and (ranked := rank(workload, spec, limit=1).candidates):
            found[key] = ranked[0].score.us, False
    return found
