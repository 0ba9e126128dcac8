"""Which kernel each workload of a plan gets: the winner on record, or the vendor's where the user allows it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.fusion.plan import FusionPlan
from core.measure.measurement import Measurement
from core.records.rows import Identity
from core.records.store import Records
from core.search.rank import rank
from templates.family import Candidate, Family
from templates.gpu import GpuSpec
from templates.workload import Workload


class Origin(StrEnum):
    """Where the choice comes from; only the first two rest on a measurement."""

    OWN = "measured by this user"
    SHIPPED = "shipped record"
    ESTIMATE = "estimate"


@dataclass(frozen=True)
class Choice:
    """`candidate` is the best template candidate, `measured` its finals; `vendor` the fastest vendor kernel beside it.

    `use_vendor` is set when the user allows vendor kernels and this one was the faster. Either may be missing.
    """

    workload: str
    candidate: Candidate | None
    measured: Measurement | None
    vendor: Measurement | None
    origin: Origin
    use_vendor: bool = False

    @property
    def us(self) -> float | None:
        """The chosen kernel's median; None for an estimate."""
        chosen = self.vendor if self.use_vendor else self.measured
        return chosen.us if chosen else None


def choose(
    work: FusionPlan | Iterable[str], records: Records, gpu: Identity | str, allow_vendor: bool = False
) -> dict[str, Choice]:
    """The choice for each workload that has a record, by workload key.

    Args:
        work: a plan, or workload keys.
        gpu: an identity (records must match all of it), or a GPU's name as the driver gives it.
        allow_vendor: take the vendor's kernel where it was the faster one in the same finals.
    """
    keys = work.workloads if isinstance(work, FusionPlan) else work
    choices = {}
    for key in keys:
        best = records.best(key, gpu)
        vendor = records.peer(best) if best else records.best(key, gpu, vendor=True)
        newest = best or vendor
        if newest is None:
            continue
        ours = best.outcome if best and isinstance(best.outcome, Measurement) else None
        peer = vendor.outcome if vendor and isinstance(vendor.outcome, Measurement) else None
        choices[key] = Choice(
            workload=key,
            candidate=best.candidate if best else None,
            measured=ours,
            vendor=peer,
            origin=Origin.SHIPPED if newest.shipped else Origin.OWN,
            use_vendor=allow_vendor and peer is not None and (ours is None or peer.us < ours.us),
        )
    return choices


def estimated(workload: Workload, gpu: GpuSpec, families: Mapping[str, Family] | None = None) -> Choice | None:
    """The most promising candidate by the rules alone, for a GPU without records; None if no family serves it."""
    ranking = rank(workload, gpu, families, limit=1)
    if not ranking.candidates:
        return None
    return Choice(workload.key, ranking.candidates[0].candidate, None, None, Origin.ESTIMATE)
