"""Time over batch size, and where the curve bends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.advise.advice import Advice, Kind, SetBatch, Term, Way, priced
from core.advise.subject import Subject
from templates.attention import AttentionWorkload
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Workload

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_NEAR = 0.9  # of the best throughput
_FREE = 1.1  # of the time of one sample


@dataclass(frozen=True)
class Knees:
    """`free`: the largest batch that takes hardly longer than the smallest. `full`: the smallest with nearly the best
    throughput.
    """

    free: int
    full: int


def knees(curve: Sequence[tuple[int, float]]) -> Knees:
    """Of (batch, us) pairs, in rising order of batch; at least one."""
    best = max(batch / us for batch, us in curve)
    full = next(batch for batch, us in curve if batch / us >= _NEAR * best)
    free = max(batch for batch, us in curve if us <= _FREE * curve[0][1])
    return Knees(free, full)


def rebatched(workload: Workload, old: int, new: int) -> Workload | None:
    """The workload at another batch; None where the batch does not divide the extent that would hold it.

    The batch lies in M of a product with weights, in the batch of a product of two activations, in N of a convolution.
    """
    if isinstance(workload, B2bGemmWorkload):
        first = rebatched(workload.first, old, new)
        return replace(workload, first=first) if isinstance(first, GemmWorkload) else None
    if isinstance(workload, B2bConvWorkload):
        conv = rebatched(workload.first, old, new)
        return replace(workload, first=conv) if isinstance(conv, ConvWorkload) else None
    if isinstance(workload, ConvWorkload):
        return None if workload.n % old else replace(workload, n=workload.n // old * new)
    if isinstance(workload, AttentionWorkload):  # of one sample no stride to the next is known
        known = workload.batch % old == 0 and not (old == 1 < new)
        return replace(workload, batch=workload.batch // old * new) if known else None
    if not isinstance(workload, GemmWorkload):
        return None
    if workload.batch > 1 and not workload.shared_b:
        return None if workload.batch % old else replace(workload, batch=workload.batch // old * new)
    return None if workload.m % old else replace(workload, m=workload.m // old * new)


def advise_batches(subject: Subject, batches: Sequence[int] = BATCHES) -> list[Advice]:
    """One piece of advice: the curve, its knees, and the batch at the second knee as the change. None where the
    model's workloads do not scale with its batch. Prices are of as many samples as the model's own batch holds.
    """
    groups = subject.groups()
    ways = []
    for batch in sorted({*batches, subject.batch}):
        scaled = [(w, rebatched(w, subject.batch, batch), len(regions)) for w, regions in groups]
        per_sample = subject.batch / batch
        terms = [Term(count, (old,), (new,), per_sample) for old, new, count in scaled if new is not None]
        if groups and len(terms) == len(groups):
            ways.append((batch, priced(f"batch {batch}", terms, subject.history, subject.estimate)))
    return [_advice(subject, ways)] if len(ways) > 1 else []


def _advice(subject: Subject, ways: list[tuple[int, Way]]) -> Advice:
    curve = [(b, us * b / subject.batch) for b, way in ways if (us := way.price.after_us) is not None]
    chosen, why = subject.batch, "fewer than two batch sizes are measured, so where it bends is not known"
    facts: tuple[tuple[str, str], ...] = ()
    if len(curve) > 1:
        bend = knees(curve)
        chosen = bend.full
        why = (
            f"up to batch {bend.free} more samples take hardly more time than {curve[0][0]}; "
            f"from batch {bend.full} on throughput hardly grows"
        )
        facts = tuple((f"batch {b}", f"{us:,.4g} us, {b / us * 1e6:,.0f} samples/s") for b, us in curve)
    order = sorted(ways, key=lambda w: w[0] != chosen)  # stable: the change's own way first
    runs = max((way.price.runs for _, way in ways), default=0)
    return Advice(
        id="batch",
        kind=Kind.BATCH,
        what=f"the batch size: now {subject.batch}" + (f", the knee is at {chosen}" if len(curve) > 1 else ""),
        why=why + (" (figures of several runs)" if runs > 1 else ""),
        regions=(),
        nodes=(),
        ways=tuple(way for _, way in order),
        change=SetBatch(chosen) if chosen != subject.batch else None,
        unchanged="" if chosen != subject.batch else "the model has this batch already, or no better one is known",
        facts=facts,
    )
