"""Which proposals become one kernel: those that were measured faster than the best kernels of their parts.

Times are medians of the finals, and only figures of one run compare, because clocks differ between runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.fusion.plan import FusionPlan
from core.fusion.propose import Proposal
from core.fusion.replan import replan
from core.graph.ir import Graph
from core.measure.measurement import Measurement
from core.records.rows import Identity, Record
from core.records.store import Records

_COUNTS = {2: "two", 3: "three"}


@dataclass(frozen=True)
class Decision:
    """What became of a proposal. Times in microseconds; None where there is no record to compare."""

    proposal: Proposal
    fused: bool
    fused_us: float | None
    parts_us: tuple[float, ...] | None
    reason: str

    @property
    def gain_us(self) -> float:
        """What one kernel saves; 0 without figures."""
        if self.fused_us is None or self.parts_us is None:
            return 0.0
        return sum(self.parts_us) - self.fused_us


def decide(
    graph: Graph,
    plan: FusionPlan,
    proposals: Sequence[Proposal],
    records: Records,
    gpu: Identity | str,
    allow_vendor: bool = False,
) -> tuple[FusionPlan, list[Decision]]:
    """The plan with every proposal that pays fused, and a decision for each proposal, in their order.

    Of proposals that share a region the one that saves most is made. `allow_vendor`: a part's best form may be the
    vendor's kernel; the fused one is always a template's.
    """
    judged = [_judge(p, records, gpu, allow_vendor) for p in proposals]
    taken: dict[str, Decision] = {}
    decisions: dict[int, Decision] = {}
    for index, decision in sorted(enumerate(judged), key=lambda i: -i[1].gain_us):
        proposal = decision.proposal
        if decision.gain_us <= 0:
            decisions[index] = decision
            continue
        other = next((taken[r] for r in proposal.regions if r in taken), None)
        if other is not None:
            reason = f"{decision.reason}, but {' with '.join(other.proposal.regions)} saves more"
            decisions[index] = Decision(proposal, False, decision.fused_us, decision.parts_us, reason)
            continue
        decisions[index] = Decision(proposal, True, decision.fused_us, decision.parts_us, decision.reason)
        taken |= dict.fromkeys(proposal.regions, decision)
    made = [decisions[i] for i in range(len(judged))]
    return _fused(graph, plan, [d.proposal for d in made if d.fused]), made


def _fused(graph: Graph, plan: FusionPlan, chosen: Sequence[Proposal]) -> FusionPlan:
    if not chosen:
        return plan
    gone = {region for p in chosen for region in p.regions}
    kept = [r.nodes for r in plan.regions if r.id not in gone]
    return replan(plan, graph, [*(p.nodes for p in chosen), *kept])


def _judge(proposal: Proposal, records: Records, gpu: Identity | str, allow_vendor: bool) -> Decision:
    """The proposal's figures, not yet compared with other proposals."""
    fused = records.best(proposal.workload.key, gpu)
    if fused is None:
        return Decision(proposal, False, None, None, "no kernel of them all was measured")
    parts: list[float] = []
    for key in proposal.parts:
        best = _best_form(key, records, gpu, allow_vendor)
        if best is None:
            return Decision(proposal, False, _us(fused), None, f"no kernel was measured for {key}")
        if best.run != fused.run:
            why = f"{key} was measured in another run than the kernel of them all; tune with --retune"
            return Decision(proposal, False, _us(fused), None, why)
        parts.append(_us(best))
    verb = "faster than" if _us(fused) < sum(parts) else "no faster than"
    apart = " + ".join(f"{us:.2f}" for us in parts)
    reason = f"{_us(fused):.2f} us in one kernel, {verb} {apart} us in {_COUNTS.get(len(parts), len(parts))}"
    return Decision(proposal, False, _us(fused), tuple(parts), reason)


def _best_form(key: str, records: Records, gpu: Identity | str, allow_vendor: bool) -> Record | None:
    ours = records.best(key, gpu)
    vendor = records.best(key, gpu, vendor=True) if allow_vendor else None
    if ours is not None and vendor is not None and vendor.run == ours.run:
        return min(ours, vendor, key=_us)
    return ours or vendor


def _us(record: Record) -> float:
    assert isinstance(record.outcome, Measurement)
    return record.outcome.us
